"""Where the files of the repository are on the site, and their links there."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Mapping
from pathlib import Path, PurePosixPath

from trainerd.cli.app import COMMANDS

ROOT = Path(__file__).resolve().parent.parent.parent
DOCS = ROOT / "docs"
COMMAND_PAGES = PurePosixPath("reference/commands")
LICENSE = ROOT / "LICENSE"

_FENCE = re.compile(r"^ *(```+).*?^ *\1\s*?$", re.MULTILINE | re.DOTALL)
_COMMAND = re.compile(r"(?<!\[)`trainerd ([a-z]+)\b[^`\n]*`(?!\])")
_HEADING = re.compile(r"^#+ ")
_LINK = re.compile(r"(\]\(|(?:src|href)=\")(?![a-z]+:|#)([^()\s\"#]+)")


def place(path: Path) -> PurePosixPath:
    """Where a file of the repository is on the site: pages of docs/ as they are there, others beside them.

    Args:
      path: absolute, and in the repository.
    """
    if path.is_relative_to(DOCS):
        found = PurePosixPath(path.relative_to(DOCS))
        return found.with_name("index.md") if found.name == "README.md" else found
    if path == LICENSE:
        return PurePosixPath("license.md")
    found = PurePosixPath(path.relative_to(ROOT))
    return PurePosixPath(found.name.lower()) if found.suffix == ".md" else "files" / found


def title_of(path: Path) -> str:
    """Return the title of a page of docs/."""
    return path.read_text(encoding="utf-8").partition("\n")[0].removeprefix("# ")


def with_links(text: str, source: Path, at: PurePosixPath) -> str:
    """The text of a page, with links that lead to the same files from its place on the site.

    A command in the text, such as `trainerd status`, becomes a link to its page.

    Args:
      text: the page.
      source: the file that its links are relative to.
      at: where the page is on the site.
    """

    def moved(match: re.Match[str]) -> str:
        target = (source.parent / match[2]).resolve()
        if not target.is_file() or not target.is_relative_to(ROOT):
            return match[0]  # the generator says so
        return match[1] + os.path.relpath(place(target), at.parent)

    def linked(match: re.Match[str]) -> str:
        page = os.path.relpath(COMMAND_PAGES / f"{match[1]}.md", at.parent)
        return f"[{match[0]}]({page})" if match[1] in COMMANDS else match[0]

    def prose(part: str) -> str:
        lines = _LINK.sub(moved, part).splitlines(keepends=True)
        return "".join(line if _HEADING.match(line) else _COMMAND.sub(linked, line) for line in lines)

    fences = [match.span() for match in _FENCE.finditer(text)]
    parts, end = [], 0
    for start, stop in fences:
        parts += [prose(text[end:start]), text[start:stop]]
        end = stop
    return "".join([*parts, prose(text[end:])])


def stage(folder: Path, made: Mapping[PurePosixPath, str]) -> list[PurePosixPath]:
    """Put all that is on the site into a folder: docs/, what its pages link to elsewhere, and the pages that are made.

    Returns:
      the pages, the made ones in their order.
    """
    shutil.copytree(DOCS, folder, ignore=shutil.ignore_patterns("*.md"))
    waiting, placed = sorted(DOCS.rglob("*.md")), set()
    while waiting:
        source = waiting.pop()
        placed.add(at := place(source))
        target = folder / at
        target.parent.mkdir(parents=True, exist_ok=True)
        if source.suffix == ".md":
            text = source.read_text(encoding="utf-8")
            target.write_text(with_links(text, source, at), encoding="utf-8")
            linked = {(source.parent / match[2]).resolve() for match in _LINK.finditer(_FENCE.sub("", text))}
            waiting += sorted(each for each in linked if _is_beside(each) and place(each) not in placed)
        else:
            shutil.copyfile(source, target)
    for at, text in made.items():
        (folder / at).parent.mkdir(parents=True, exist_ok=True)
        (folder / at).write_text(text, encoding="utf-8")
    return [*sorted(at for at in placed if at.suffix == ".md" and at not in made), *made]


def _is_beside(path: Path) -> bool:
    return path.is_file() and path.is_relative_to(ROOT) and not path.is_relative_to(DOCS)
