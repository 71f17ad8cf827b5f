"""The tools of the documentation find what is wrong with a site, and read from the source what a page says."""

from __future__ import annotations

import xml.etree.ElementTree as ElementTree
from pathlib import Path, PurePosixPath

import pytest

from tools.recording.picture import Style, picture
from tools.site import check, messages, navigation
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
    (site / "a.html").write_text(body)
    (site / "b.html").write_text('<h2 id="there">')
    (tmp_path / "outside.html").write_text("")
    assert check.wrong(site) == ([] if mistake is None else [f"a.html: {mistake}"])


def test_a_style_of_the_site_loads_nothing_from_elsewhere_and_no_page_is_a_mistake(tmp_path: Path) -> None:
    (tmp_path / "a.css").write_text('@import "https://example.com/font.css"; p { background: url(here.png) }')
    assert check.wrong(tmp_path) == ["a.css: loads https://example.com/font.css from another host", "there is no page"]


def test_a_page_that_the_navigation_lacks_and_one_that_is_not_there_are_mistakes(tmp_path: Path) -> None:
    source = tmp_path / "zensical.toml"
    source.write_text('[project]\nnav = [{ "A" = ["a.md", "gone.md", { "Made" = ["made/*.md"] }] }]\n')
    pages = {PurePosixPath(name) for name in ("a.md", "new.md", "made/x.md", "made/y.md")}
    assert navigation.write(source, tmp_path / "whole.toml", pages) == [
        "new.md: the navigation of zensical.toml lacks it",
        "zensical.toml: the navigation names gone.md, which is not there",
    ]
    assert "made/x.md" in (tmp_path / "whole.toml").read_text()


def test_links_of_a_page_lead_to_the_same_files_from_its_place_on_the_site() -> None:
    text = (
        "[a](../README.md) [b](../CHANGELOG.md#x) [c](https://example.com/README.md)\n```sh\n[a](../README.md)\n```\n"
    )
    source = DOCS / "concepts" / "glossary.md"
    moved = with_links(text.replace("../CHANGELOG", "../../CHANGELOG"), source, PurePosixPath("x/y/z.md"))
    assert moved.startswith("[a](../../index.md) [b](../../changelog.md#x) [c](https://example.com/README.md)")
    assert moved.endswith("[a](../README.md)\n```\n")
    assert (ROOT / "CHANGELOG.md").exists()


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


def test_every_class_of_errors_has_its_cure_and_its_messages() -> None:
    [page] = messages.pages().values()
    assert "| 75 | [InUseError](#InUseError) |" in page and "--forever and --max-steps contradict" in page
    assert page.count("\n- ``") > 200


def test_a_recording_is_a_picture_that_holds_what_was_shown_and_no_more_time_than_that_takes() -> None:
    first = (((Style("default", False), "$ <b>&"),),)
    second = (((Style("green", True), "done"),),)
    drawn = picture([(0.0, first), (0.1, first), (60.0, second)], 20, 1, 'a "title"')
    root = ElementTree.fromstring(drawn)
    assert [text.text for text in root.iter("{http://www.w3.org/2000/svg}tspan")] == ["$ <b>&", "done"]
    assert "film 5.6s" in drawn  # 1.6 of the 60, and the end
