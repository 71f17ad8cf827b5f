"""Put files and folders in place as a whole, or not at all."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import re
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

from trainerd.errors import UsageError
from trainerd.system import safe_paths
from trainerd.system.durable_files import fsync_directory, fsync_file

_SUFFIX = ".trainerd-staging"
_STAGING = re.compile(rf"\..+\.[a-z0-9_]{{8}}{re.escape(_SUFFIX)}")
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_TAKEN = (errno.EEXIST, errno.ENOTEMPTY, errno.ENOTDIR, errno.EISDIR)
_CURE = "Choose another name."


@contextlib.contextmanager
def staged(folder: Path) -> Iterator[Path]:
    """Make a new folder of this name inside a hidden one beside it, in which the whole is put together.

    The hidden folder is removed at the end of the block. The process locks it: if a kill leaves it, the next block
    in the same parent folder removes it, since nobody holds its lock. A file system without locks keeps it.

    Args:
      folder: the name of what is made, in the folder where it is to be.

    Raises:
      OSError: it cannot be made.
    """
    folder.parent.mkdir(parents=True, exist_ok=True)
    for path in folder.parent.iterdir():
        if _STAGING.fullmatch(path.name):
            _remove_if_left(path)
    place, descriptor = _make_locked(folder)
    try:
        safe_paths.make_folder(place / folder.name)
        yield place / folder.name
    finally:
        with contextlib.suppress(OSError):
            safe_paths.remove_tree(place)
        os.close(descriptor)


def _make_locked(folder: Path) -> tuple[Path, int]:
    """Return a new staging folder, and a descriptor that holds the lock on it."""
    while True:
        place = Path(tempfile.mkdtemp(prefix=f".{folder.name}.", suffix=_SUFFIX, dir=folder.parent))
        with contextlib.suppress(FileNotFoundError):  # another block has removed it before it was locked
            descriptor = os.open(place, _FOLDER)
            with contextlib.suppress(OSError):
                fcntl.flock(descriptor, fcntl.LOCK_EX)
            if place.exists():
                return place, descriptor
            os.close(descriptor)


def _remove_if_left(place: Path) -> None:
    """Remove a staging folder on which no process holds the lock."""
    with contextlib.suppress(OSError):
        descriptor = os.open(place, _FOLDER)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            shutil.rmtree(place, ignore_errors=True)
        finally:
            os.close(descriptor)


def put_in_place(staging: Path, target: Path) -> None:
    """Put a file, or a folder with all its files, on disk and give it its name. Nothing is replaced.

    Args:
      staging: the file or folder, on the file system of the target.
      target: its name. An empty folder may have it.

    Raises:
      UsageError: something has that name.
      OSError: it cannot be done; the name has what it had.
    """
    for path in sorted(staging.rglob("*")):
        fsync_directory(path) if path.is_dir() else fsync_file(path)
    fsync_directory(staging) if staging.is_dir() else fsync_file(staging)
    try:
        safe_paths.rename(staging, target) if staging.is_dir() else _name_file(staging, target)
    except OSError as error:
        if error.errno in _TAKEN:
            raise _taken(target) from error
        raise
    fsync_directory(target.parent)


def require_free(target: Path, cure: str = _CURE) -> None:
    """Require that nothing but an empty folder has this name.

    Raises:
      UsageError: something has it.
    """
    if target.is_symlink() or (target.exists() and (not target.is_dir() or any(target.iterdir()))):
        raise _taken(target, cure)


def _taken(target: Path, cure: str = _CURE) -> UsageError:
    return UsageError(f"{target} exists and is not empty. {cure}")


def _name_file(staging: Path, target: Path) -> None:
    """Give a file its name. A link, unlike a rename, never replaces what has that name."""
    if not safe_paths.link(staging, target):
        require_free(target)
        safe_paths.rename(staging, target)
