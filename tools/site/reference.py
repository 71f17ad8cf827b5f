"""The landing page of the reference: what is in its part of the navigation, each with its first sentence."""

from __future__ import annotations

import os
import re
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import PurePosixPath
from typing import Any

from tools.site.pages import DOCS, ROOT

PLACE = PurePosixPath("reference/index.md")
SECTION = "Reference"


def page(made: Mapping[PurePosixPath, str]) -> str:
    """Return the page.

    Args:
      made: the pages that are made from the code.
    """
    config = tomllib.loads((ROOT / "zensical.toml").read_text(encoding="utf-8"))
    [items] = [each[SECTION] for each in config["project"]["nav"] if SECTION in each]
    parts = [
        "# Reference\n",
        "Every command, key, name, message, exit code and file.\n",
        "| page | what it has |",
        "|---|---|",
    ]
    for place in _first_pages(items):
        text = made[place] if place in made else (DOCS / place).read_text(encoding="utf-8")
        title, sentence = _summary(text)
        parts.append(f"| [{title}]({os.path.relpath(place, PLACE.parent)}) | {sentence} |")
    return "\n".join(parts) + "\n"


def _first_pages(items: list[Any]) -> Iterator[PurePosixPath]:
    """Yield each page of the section, and the index of each folder in it."""
    for item in items:
        found = next(iter(item.values())) if isinstance(item, dict) else item
        first = found[0] if isinstance(found, list) else found
        place = PurePosixPath(first)
        place = place.with_name("index.md") if "*" in first else place
        if place != PLACE:
            yield place


def _summary(text: str) -> tuple[str, str]:
    """Return the title of a page, and its first sentence without links."""
    title, _, rest = text.partition("\n")
    first = rest.strip().partition("\n\n")[0]
    plain = re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", " ".join(first.split()))
    return title.removeprefix("# ").strip(), re.split(r"(?<=\.) (?=[A-Z`])", plain)[0].rstrip(":")
