"""The tools of the documentation find what is wrong with a site, and read from the source what a page says."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ElementTree
from pathlib import Path, PurePosixPath

import pytest

from tools.recording.picture import Frame, Style, film, film_seconds, in_film, picture
from tools.recording.traces import Chart, Mark, Trace
from tools.site import check, commands, messages, navigation
from tools.site.pages import DOCS, ROOT, with_links
from tools.site.source_texts import Said
from tools.site.source_texts import messages as messages_of


@pytest.mark.parametrize(
    ("body", "mistake"),
    [
        ('<a href="b.html#there">', None),
        ('<a href="#here"><p id="here">', None),
        ('<a href="https://example.com/x">', None),
        ('<link rel="canonical" href="https://example.com/x">', None),
        ('<img src="data:image/png;base64,AAAA">', None),
        ('<a href="c.html">', "c.html leads nowhere"),
        ('<a href="b.html#nowhere">', "b.html#nowhere leads nowhere"),
        ('<a href="../outside.html">', "../outside.html leads nowhere"),
        ('<img src="gone.png">', "gone.png leads nowhere"),
        ('<script src="https://example.com/x.js">', "loads https://example.com/x.js from another host"),
        ('<link rel="stylesheet" href="//example.com/x.css">', "loads //example.com/x.css from another host"),
        ('<img srcset="https://example.com/x.png 2x">', "loads https://example.com/x.png from another host"),
        ('<p style="background: url(https://example.com/x)">', "loads https://example.com/x from another host"),
    ],
)
def test_a_page_of_the_site_leads_somewhere_and_loads_nothing_from_elsewhere(
    tmp_path: Path, body: str, mistake: str | None
) -> None:
    site = tmp_path / "site"
    site.mkdir()
    onward = '<article><a href="b.html"></a></article>'
    (site / "a.html").write_text(f"{onward}{body}")
    (site / "b.html").write_text('<article><h2 id="there"><a href="a.html">')
    (tmp_path / "outside.html").write_text("")
    assert check.wrong(site) == ([] if mistake is None else [f"a.html: {mistake}"])


def test_a_style_of_the_site_loads_nothing_from_elsewhere_and_no_page_is_a_mistake(tmp_path: Path) -> None:
    (tmp_path / "a.css").write_text('@import "https://example.com/font.css"; p { background: url(here.png) }')
    assert check.wrong(tmp_path) == ["a.css: loads https://example.com/font.css from another host", "there is no page"]


def test_a_page_without_a_link_onward_is_a_mistake(tmp_path: Path) -> None:
    (tmp_path / "a.html").write_text('<nav><a href="b.html"></a></nav><article><a href="#x" id="x"></a></article>')
    (tmp_path / "b.html").write_text('<article><a href="a.html"></a></article>')
    assert check.wrong(tmp_path) == ["a.html: its text has no link to another page"]


def test_a_page_that_the_navigation_lacks_and_one_that_is_not_there_are_mistakes(tmp_path: Path) -> None:
    source = tmp_path / "zensical.toml"
    source.write_text('[project]\nnav = [{ "A" = ["a.md", "gone.md", { "Made" = ["made/*.md"] }] }]\n')
    pages = [PurePosixPath(name) for name in ("a.md", "new.md", "made/y.md", "made/x.md")]
    assert navigation.write(source, tmp_path / "whole.toml", pages) == [
        "new.md: the navigation of zensical.toml lacks it",
        "zensical.toml: the navigation names gone.md, which is not there",
    ]
    assert '["made/y.md", "made/x.md"]' in (tmp_path / "whole.toml").read_text()


def test_links_of_a_page_lead_to_the_same_files_from_its_place_on_the_site() -> None:
    text = (
        "[a](../README.md) [b](../CHANGELOG.md#x) [c](https://example.com/README.md)\n```sh\n[a](../README.md)\n```\n"
    )
    source = DOCS / "concepts" / "glossary.md"
    moved = with_links(text.replace("../CHANGELOG", "../../CHANGELOG"), source, PurePosixPath("x/y/z.md"))
    assert moved.startswith("[a](../../index.md) [b](../../changelog.md#x) [c](https://example.com/README.md)")
    assert moved.endswith("[a](../README.md)\n```\n")
    assert (ROOT / "CHANGELOG.md").exists()


def test_commands_in_the_text_of_a_page_become_links_to_their_pages() -> None:
    text = "# `trainerd run`\n`trainerd save --wait` [`trainerd run`](#a) `trainerd nosuch`\n```sh\ntrainerd run\n```\n"
    linked = with_links(text, DOCS / "faq.md", PurePosixPath("guides/x.md"))
    assert linked == text.replace("`trainerd save --wait`", "[`trainerd save --wait`](../reference/commands/save.md)")


def test_an_empty_sitemap_is_dropped_and_one_with_pages_is_kept(tmp_path: Path) -> None:
    sitemap = tmp_path / "sitemap.xml"
    sitemap.write_text("<urlset><url><loc>https://example.com/a.html</loc></url></urlset>")
    check.drop_empty_sitemap(sitemap)
    assert sitemap.exists()
    sitemap.write_text("<urlset></urlset>")
    check.drop_empty_sitemap(sitemap)
    assert not sitemap.exists()


def test_messages_are_read_from_the_source(tmp_path: Path) -> None:
    path = tmp_path / "source.py"
    path.write_text(
        """
_GONE = "it is gone: %s"

def check(path, ready):
    raise UsageError(f"{path} is not there. " + ("Make it." if ready else "Wait."))

def told(path):
    return f"cannot read {path}"

def read(path):
    why = "it is a folder"
    log.warning(_GONE, path)
    log.info("nothing")
    raise StorageError(told(path)) from None
    raise StorageError(f"{path}: {why}")
    raise
""",
        encoding="utf-8",
    )
    assert set(messages_of(path)) == {
        Said("UsageError", "… is not there. Make it."),
        Said("UsageError", "… is not there. Wait."),
        Said("StorageError", "cannot read …"),
        Said("StorageError", "…: it is a folder"),
        Said("warning", "it is gone: …"),
    }


def test_messages_are_grouped_by_class_and_topic_with_the_fix_of_each() -> None:
    [page] = messages.pages().values()
    assert "| 75 | [Run directory in use](#InUseError), `InUseError`: another process" in page
    assert "## Configuration errors (exit code 78) {#ConfigError}" in page
    assert "#### `` port … of … is in use `` {#port-of-is-in-use}\n\n- If another TensorBoard has it, open" in page
    anchors = re.findall(r"\{#(.+)\}$", page, re.MULTILINE)
    assert len(anchors) > 300 and len(anchors) == len(set(anchors))


def test_a_page_of_a_command_has_its_options_examples_exit_codes_and_guides() -> None:
    page = commands.pages()[PurePosixPath("reference/commands/prove.md")]
    assert '| <a id="--steps"></a>[`--steps N`](#--steps) | The number of steps' in page
    assert "# Interrupt 100 steps of the job of the current folder four times.\ntrainerd prove\n" in page
    assert "| 70 | They differ, or the job cannot be interrupted. |" in page
    assert "- Guides: [" in page


def test_a_recording_is_a_picture_that_holds_what_was_shown_and_no_more_time_than_that_takes() -> None:
    first = (((Style("default", False), "$ <b>&"),),)
    second = (((Style("green", True), "done"),),)
    drawn = picture([(0.0, first), (0.1, first), (60.0, second)], 20, 1, 'a "title"')
    root = ElementTree.fromstring(drawn)
    assert [text.text for text in root.iter("{http://www.w3.org/2000/svg}tspan")] == ["$ <b>&", "done"]
    assert "film 5.6s" in drawn  # 1.6 of the 60, and the end


def test_recordings_beside_each_other_have_one_clock_which_cuts_only_where_all_of_them_rest() -> None:
    frames: list[Frame] = [(((Style("default", False), str(number)),),) for number in range(3)]
    left = [(0.0, frames[0]), (10.0, frames[1])]
    right = [(0.0, frames[0]), (1.0, frames[1]), (1.05, frames[2]), (9.0, frames[0])]
    seconds = film_seconds([left, right], 2.0, 4.05)
    assert in_film(left, seconds, 0.1) == [(0.0, frames[0]), (pytest.approx(4.05), frames[1])]
    assert in_film(right, seconds, 0.1) == [(0.0, frames[0]), (1.0, frames[2]), (pytest.approx(3.05), frames[0])]
    drawn = film("left", in_film(left, seconds, 0.1), (10, 1), 12.0)
    assert "left 12s" in drawn and "33.750% { transform" in drawn


def test_a_curve_grows_up_to_the_step_that_is_reached_and_is_whole_without_animations() -> None:
    points = [(1, 2.0), (2, 1.0), (3, 0.5)]
    trace = Trace(points, "#123456", 2.0, [(0.0, 0), (1.0, 0), (2.0, 2), (4.0, 3)])
    drawn = Chart((200.0, 100.0), "loss", 4.0).draw([trace], [Mark(2, "killed", "#654321", 2.0, False)])
    offsets = [float(found) for found in re.findall(r"stroke-dashoffset: ([\d.]+)px", drawn)]
    assert offsets == sorted(offsets, reverse=True) and offsets[0] == offsets[1] > offsets[2] > offsets[3] == 0
    assert ElementTree.fromstring(f"<svg>{drawn}</svg>").find("path[@id='curve0']") is not None
    assert "50.00% { opacity: 1 }" in drawn
