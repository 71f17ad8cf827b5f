"""Folders that are put in place as a whole, or not at all."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
from collections.abc import Iterator
from pathlib import Path

import psutil

from trainerd.system.durable_files import fsync_directory, fsync_file


@contextlib.contextmanager
def staged(folder: Path) -> Iterator[Path]:
    """A new folder beside this one, of the same name within a hidden one, in which it is put together.

    It is removed at the end of the block, if it is still there. What a killed process has left of one is removed first.

    Args:
      folder: where the whole is to be.

    Raises:
      OSError: it cannot be made.
    """
    _remove_leftovers(folder)
    place = folder.with_name(f".{folder.name}.{os.getpid()}.staging")
    try:
        (place / folder.name).mkdir(parents=True)
        yield place / folder.name
    finally:
        shutil.rmtree(place, ignore_errors=True)


def put_in_place(staging: Path, folder: Path) -> None:
    """Put all files of a folder on disk, and give it its name, which an empty folder may have.

    Raises:
      OSError: it cannot be done; the name is free then, or has what it had.
    """
    for path in sorted(staging.rglob("*")):
        fsync_directory(path) if path.is_dir() else fsync_file(path)
    fsync_directory(staging)
    staging.rename(folder)
    fsync_directory(folder.parent)


def _remove_leftovers(folder: Path) -> None:
    pattern = re.compile(rf"\.{re.escape(folder.name)}\.(\d+)\.staging")
    for path in folder.parent.iterdir() if folder.parent.is_dir() else ():
        match = pattern.fullmatch(path.name)
        if match and not psutil.pid_exists(int(match[1])) and not path.is_symlink():
            shutil.rmtree(path)
