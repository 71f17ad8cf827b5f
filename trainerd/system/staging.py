"""Put files and folders in place as a whole, or not at all."""

from __future__ import annotations

import contextlib
import errno
import os
import re
import shutil
import socket
import tempfile
from collections.abc import Iterator
from pathlib import Path

from trainerd.errors import UsageError
from trainerd.system.durable_files import NO_LINKS, fsync_directory, fsync_file
from trainerd.system.process_identity import is_process, process_identity

_TAKEN = (errno.EEXIST, errno.ENOTEMPTY, errno.ENOTDIR, errno.EISDIR)


@contextlib.contextmanager
def staged(folder: Path) -> Iterator[Path]:
    """Make a new folder of this name inside a hidden one beside it, in which the whole is put together.

    The hidden folder is removed at the end of the block. Its name has the name of what is made, and the process that
    made it: the next block in that folder removes what a process that is gone has left.

    Args:
      folder: the name of what is made, in the folder where it is to be.

    Raises:
      OSError: it cannot be made.
    """
    folder.parent.mkdir(parents=True, exist_ok=True)
    _remove_leftovers(folder.parent)
    started = int(process_identity(os.getpid())[1])
    name = f".{folder.name}.{os.getpid()}.{started}@{socket.gethostname()}."
    place = Path(tempfile.mkdtemp(prefix=name, suffix=".staging", dir=folder.parent))
    try:
        (place / folder.name).mkdir()
        yield place / folder.name
    finally:
        shutil.rmtree(place, ignore_errors=True)


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
        staging.rename(target) if staging.is_dir() else _name_file(staging, target)
    except OSError as error:
        if error.errno in _TAKEN:
            raise _taken(target) from error
        raise
    fsync_directory(target.parent)


def require_free(target: Path) -> None:
    """Require that nothing but an empty folder has this name.

    Raises:
      UsageError: something has it.
    """
    if target.is_symlink() or (target.exists() and (not target.is_dir() or any(target.iterdir()))):
        raise _taken(target)


def _taken(target: Path) -> UsageError:
    return UsageError(f"{target} exists and is not empty: choose another name.")


def _name_file(staging: Path, target: Path) -> None:
    """Give a file its name. A link, unlike a rename, never replaces what has that name."""
    try:
        os.link(staging, target, follow_symlinks=False)
    except OSError as error:
        if error.errno not in NO_LINKS:
            raise
        require_free(target)
        staging.rename(target)


def _remove_leftovers(parent: Path) -> None:
    """Remove what processes that are gone have left. A pid says nothing about a process of another machine."""
    pattern = re.compile(rf"\..+\.(\d+)\.(\d+)@{re.escape(socket.gethostname())}\..+\.staging")
    for path in parent.iterdir():
        match = pattern.fullmatch(path.name)
        if match and not path.is_symlink() and not is_process(int(match[1]), float(match[2])):
            shutil.rmtree(path, ignore_errors=True)
