"""The list of words to avoid finds them in pages and in the texts of the code, and not in the code itself."""

from __future__ import annotations

import pytest

from tools import words


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("The run goes on from there.", ["goes on"]),
        ("The run goes\n    # on from there.", ["goes on"]),
        ("What goes on in a run.", []),
        ("A part is no dataset.", ["is no"]),
        ("There is no dataset, and it is no longer read.", []),
        ("The input is another dataset.", ["is another"]),
        ("The file is another user's.", []),
        ("Three runs, two of which train.", ["of which"]),
        ("Three runs, all of which train.", []),
        ("| `release.json` | step, metrics, figures, config |", []),
    ],
)
def test_words_are_found_where_they_are_wrong(text: str, found: list[str]) -> None:
    assert [said for rule in words.RULES for _, said in rule.findings(text)] == found


def test_code_has_only_its_strings_and_comments_read() -> None:
    source = 'figures = 1  # two figures\nsay("anew",\n    """more\n    remarks""")\n'
    read = words.without_code(source)
    assert read.split() == ["#", "two", "figures", '"anew"', '"""more', 'remarks"""']
    assert len(read) == len(source) and read.count("\n") == source.count("\n")


def test_a_changelog_is_read_up_to_its_second_version() -> None:
    assert words.newest_section("# Changes\n\n## New\n\na\n\n## Old\n\nb\n") == "# Changes\n\n## New\n\na\n\n"
