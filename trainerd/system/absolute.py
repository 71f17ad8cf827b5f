"""Absolute paths, one spelling for each folder that a person names."""

from __future__ import annotations

from pathlib import Path


def absolute(path: Path) -> Path:
    """Return a path without `..`, from the root.

    Links are followed up to the last `..` alone, where the parent of a link's target is meant; else they keep their
    names.
    """
    path = path.absolute()
    if ".." not in path.parts:
        return path
    rest = path.parts[::-1].index("..")
    end = len(path.parts) - rest
    return Path(*path.parts[:end]).resolve().joinpath(*path.parts[end:])
