"""A folder that has the same in it as another, and is another: with its own inode, and its own order of entries."""

from __future__ import annotations

import os
import random
from pathlib import Path

_MANY = 10_000  # entries: of a folder above with more, such as one of all runs, only the way down is there


def mirrored(folder: Path, root: Path) -> Path:
    """Make a folder in which relative paths lead to what they lead to in another one.

    Every folder from the root of the file system down to it is made anew below `root`, with links to what is in it.

    Args:
      folder: the other, absolute.
      root: is made; must not be there.

    Returns:
      The folder.
    """
    place = root
    place.mkdir()
    for above, below in zip(reversed(folder.parents), folder.parts[1:], strict=True):
        _link(above, place, without=below, limit=_MANY)
        place /= below
        place.mkdir()
    _link(folder, place)
    return place


def _link(source: Path, place: Path, *, without: str = "", limit: int | None = None) -> None:
    try:
        names = [name for name in os.listdir(source) if name != without]
    except PermissionError:  # a folder that may only be gone through
        return
    if limit is not None and len(names) > limit:
        return
    random.shuffle(names)
    for name in names:
        (place / name).symlink_to(source / name)
