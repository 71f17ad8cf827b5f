"""The navigation: that of zensical.toml, in which each page has its place."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path, PurePosixPath
from typing import Any

import tomlkit


def write(source: Path, target: Path, pages: Sequence[PurePosixPath]) -> list[str]:
    """Write the generator's config, with the pages that a pattern of the navigation such as `commands/*` stands for.

    Returns:
      the pages that the navigation lacks, and those that it names and that are not there.
    """
    config: dict[str, Any] = tomlkit.parse(source.read_text(encoding="utf-8")).unwrap()
    navigation = _expanded(config["project"]["nav"], pages)
    config["project"]["nav"] = navigation
    target.write_text(tomlkit.dumps(config), encoding="utf-8")
    named = {PurePosixPath(page) for page in _named(navigation)}
    return [f"{page}: the navigation of {source.name} lacks it" for page in sorted(set(pages) - named)] + [
        f"{source.name}: the navigation names {page}, which is not there" for page in sorted(named - set(pages))
    ]


def _expanded(items: list[Any], pages: Sequence[PurePosixPath]) -> list[Any]:
    found: list[Any] = []
    for item in items:
        if isinstance(item, dict):
            found.append({title: _expanded(v, pages) if isinstance(v, list) else v for title, v in item.items()})
        elif "*" in item:
            found += [str(page) for page in pages if page.match(item)]
        else:
            found.append(item)
    return found


def _named(items: list[Any]) -> Iterator[str]:
    for item in items:
        for value in item.values() if isinstance(item, dict) else [item]:
            if isinstance(value, list):
                yield from _named(value)
            else:
                yield value
