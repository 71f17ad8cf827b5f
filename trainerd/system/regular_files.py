"""The only way to open files of a run directory: a job may have put anything there for root to follow.

Links are not followed, only regular files are opened, nothing blocks, and a read is bounded. A file of another user in
a folder that only its owner may write to was planted, and is refused. The checks are made on the open descriptor, so
nothing can be exchanged between check and use.
"""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path
from typing import IO

from trainerd.system import safe_paths
from trainerd.text import size as size_text

MIB = 1 << 20
_KINDS = {stat.S_IFDIR: "a folder", stat.S_IFIFO: "a FIFO", stat.S_IFSOCK: "a socket"}
_KINDS |= {stat.S_IFCHR: "a device", stat.S_IFBLK: "a device"}
_FLAGS = os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK


def read_regular(path: Path, limit: int = MIB) -> bytes:
    """Return the content of a regular file.

    Args:
      path: the file.
      limit: bytes; a larger file is refused.

    Raises:
      OSError: it cannot be read; ELOOP for a link, EISDIR for a folder, ENXIO for anything else but a file,
        EOVERFLOW for a file that is too large, EPERM for a file that another user has planted.
    """
    descriptor = _opened(path, os.O_RDONLY)  # a listing reads thousands: a file object would take half as long again
    try:
        size = os.fstat(descriptor).st_size
        _require_small(size, limit, path)
        content = os.read(descriptor, size + 1)
        _require_small(len(content), limit, path)
        while len(content) != size and (more := os.read(descriptor, limit + 1 - len(content))):  # it has grown
            content, size = content + more, -1
            _require_small(len(content), limit, path)
        return content
    finally:
        os.close(descriptor)


def read_end(path: Path) -> bytes:
    """Return the last mebibyte of a regular file; see `read_regular`."""
    with open_to_read(path) as file:
        file.seek(max(0, os.fstat(file.fileno()).st_size - MIB))
        return file.read(MIB)


def open_to_read(path: Path) -> IO[bytes]:
    """Open a regular file for reading; see `read_regular`."""
    return os.fdopen(_opened(path, os.O_RDONLY), "rb")


def open_to_append(path: Path, mode: int = 0o644) -> int:
    """Open a regular file for appending, and make it if it is missing. Returns its descriptor.

    Raises:
      OSError: as `read_regular`; EMLINK for a file with a second name in another user's folder.
    """
    return _opened(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, mode)


def open_to_append_for_all(path: Path) -> int:
    """Open a regular file for appending. If it is missing, make it so that all may read it, whatever the umask.

    Returns:
      Its descriptor.

    Raises:
      OSError: see `open_to_append`.
    """
    try:
        descriptor = _opened(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_EXCL)
    except FileExistsError:  # its mode stays: somebody may have moved a secret of ours there
        return open_to_append(path)
    os.fchmod(descriptor, 0o644)
    return descriptor


def _opened(path: Path, flags: int, mode: int = 0o644) -> int:
    with safe_paths.opened(path.parent) as folder:
        try:
            descriptor = os.open(path.name, flags | _FLAGS, mode, dir_fd=folder)
        except OSError as error:
            raise _named(error, path, folder) from error
        try:
            _require_sound(os.fstat(descriptor), os.fstat(folder), path, is_written=flags & os.O_WRONLY != 0)
        except BaseException:
            os.close(descriptor)
            raise
        return descriptor


def _named(error: OSError, path: Path, folder: int) -> OSError:
    """Return the same error of `open`, with what is there if that is what is wrong."""
    if error.errno not in (errno.ELOOP, errno.ENXIO):
        return OSError(error.errno, error.strerror, str(path))
    found = os.stat(path.name, dir_fd=folder, follow_symlinks=False)
    if stat.S_ISLNK(found.st_mode):
        return OSError(errno.ELOOP, "it is a symbolic link, which is not followed", str(path))
    return OSError(error.errno, f"it is {_kind(found)} and not a regular file", str(path))  # a FIFO without a reader


def _require_sound(found: os.stat_result, folder: os.stat_result, path: Path, *, is_written: bool) -> None:
    if not stat.S_ISREG(found.st_mode):
        code = errno.EISDIR if stat.S_ISDIR(found.st_mode) else errno.ENXIO
        raise OSError(code, f"it is {_kind(found)} and not a regular file", str(path))
    is_shared = folder.st_mode & (stat.S_IWGRP | stat.S_IWOTH)
    if not is_shared and found.st_uid not in (0, os.geteuid(), folder.st_uid):
        raise OSError(
            errno.EPERM, f"it belongs to uid {found.st_uid}, and its folder to uid {folder.st_uid}", str(path)
        )
    if is_written and found.st_nlink > 1 and folder.st_uid != os.geteuid():
        raise OSError(errno.EMLINK, "it is a link to a file that has another name", str(path))


def _kind(found: os.stat_result) -> str:
    return _KINDS.get(stat.S_IFMT(found.st_mode), "something else")


def _require_small(count: int, limit: int, path: Path) -> None:
    if count > limit:
        most = f"it has {size_text(count)}, and at most {size_text(limit)} are read"
        raise OSError(errno.EOVERFLOW, most, str(path))
