"""What is wrong with the built site: links that lead nowhere, pages without a link, and loads from another host."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass, field
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

_CSS_LOADS = re.compile(r"(?:url\(|@import)\s*['\"]?\s*((?:https?:)?//[^'\")\s]+)")
# What a browser fetches by itself; `a` is followed by a person.
_LOADS = {("link", "href"), ("form", "action"), ("object", "data")}
_NOT_FOUND = "404.html"
_NO_LOADS = {"canonical", "alternate", "prev", "next"}


@dataclass
class _Page(HTMLParser):
    """The anchors of a page, its links, those of its text to other pages, and what it loads."""

    anchors: set[str] = field(default_factory=set)
    links: list[str] = field(default_factory=list)
    loads: list[str] = field(default_factory=list)
    onward: list[str] = field(default_factory=list)
    _is_in_article: bool = False

    def __post_init__(self) -> None:
        super().__init__()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Note what an element has."""
        found = {name: value or "" for name, value in attrs}
        self._is_in_article = self._is_in_article or tag == "article"
        if tag == "a" and self._is_in_article and not found.get("href", "#").startswith("#"):
            self.onward.append(found["href"])
        self.anchors |= {found[name] for name in ("id", "name") if name in found}
        for name, value in found.items():
            loads = name in ("src", "poster") or ((tag, name) in _LOADS and found.get("rel") not in _NO_LOADS)
            if loads:
                self.loads.append(value)
            if loads or name == "href":
                self.links.append(value)
            if name == "style":
                self.loads += _CSS_LOADS.findall(value)
            if name == "srcset":
                self.loads += [part.split()[0] for part in value.split(",") if part.strip()]

    def handle_endtag(self, tag: str) -> None:
        """Note the end of the text."""
        self._is_in_article = self._is_in_article and tag != "article"


def wrong(site: Path) -> list[str]:
    """All that is wrong with the site in a folder, a line each."""
    pages = {path: _read(path) for path in sorted(site.rglob("*.html"))}
    found = []
    for path, page in pages.items():
        name = path.relative_to(site)
        found += [f"{name}: loads {load} from another host" for load in page.loads if urlsplit(load).netloc]
        found += [f"{name}: {link} leads nowhere" for link in page.links if not _leads(link, path, site, pages)]
        if not page.onward and name.name != _NOT_FOUND:
            found.append(f"{name}: its text has no link to another page")
    for path in sorted(site.rglob("*.css")):
        loads = _CSS_LOADS.findall(path.read_text(encoding="utf-8"))
        found += [f"{path.relative_to(site)}: loads {load} from another host" for load in loads]
    return found if pages else [*found, "there is no page"]


def _read(path: Path) -> _Page:
    page = _Page()
    page.feed(path.read_text(encoding="utf-8"))
    return page


def _leads(link: str, path: Path, site: Path, pages: dict[Path, _Page]) -> bool:
    """Whether a link of a page leads somewhere: to a file here, to an anchor that is there, or to another host."""
    parts = urlsplit(link)
    if parts.scheme or parts.netloc:
        return True
    where = unquote(parts.path)
    target = Path(os.path.normpath((site / where.lstrip("/")) if where.startswith("/") else path.parent / where))
    target = path if not where else target / "index.html" if target.is_dir() else target
    if not target.is_file() or not target.is_relative_to(site):
        return False
    return not parts.fragment or target not in pages or unquote(parts.fragment) in pages[target].anchors


def drop_empty_sitemap(path: Path) -> None:
    """Remove a sitemap that lists no page. Addresses need `site_url` in zensical.toml."""
    if path.is_file() and "<loc>" not in path.read_text(encoding="utf-8"):
        path.unlink()
