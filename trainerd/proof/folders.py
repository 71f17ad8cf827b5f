"""A copy of a folder by links: the same content, another inode, another order of entries."""

from __future__ import annotations

import os
import random
from pathlib import Path

_MANY = 10_000  # entries: of a folder above with more, such as one of all runs, only the way down is there


def mirrored(folder: Path, root: Path) -> Path:
    """Make a folder in which relative paths have the same meaning as in another one.

    Every folder from the root of the file system down to it is made below `root`, with links to what is in it, and
    so are the folders within it, as far as there are not too many files: who walks through it follows no links.

    Args:
      folder: the other folder, absolute.
      root: the root of the copy; it must not exist.

    Returns:
      The folder.
    """
    place = root
    place.mkdir()
    for above, below in zip(reversed(folder.parents), folder.parts[1:], strict=True):
        names = [name for name in _names(above) if name != below]
        _link(above, place, names if len(names) <= _MANY else [])
        place /= below
        place.mkdir()
    _mirror(folder, place, _MANY, root)
    return place


def _mirror(source: Path, place: Path, left: int, root: Path) -> int:
    """Make a folder's entries, without `root`. Returns how many more there may be, of folders that are made again."""
    names = _names(source)
    inner = [name for name in names if (source / name).is_dir() and not (source / name).is_symlink()]
    left -= len(names)
    if left < 0:
        inner = []
    _link(source, place, [name for name in names if name not in set(inner)])
    for name in inner:
        if (source / name).samefile(root):  # temporary files may be in a folder of the project
            continue
        (place / name).mkdir()
        left = _mirror(source / name, place / name, left, root)
    return left


def _names(folder: Path) -> list[str]:
    try:
        names = os.listdir(folder)
    except PermissionError:  # a folder that may only be gone through
        return []
    random.shuffle(names)
    return names


def _link(source: Path, place: Path, names: list[str]) -> None:
    for name in names:
        (place / name).symlink_to(source / name)
