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

from trainerd.text import size as size_text

MIB = 1 << 20
_KINDS = {stat.S_IFDIR: "a folder", stat.S_IFIFO: "a FIFO", stat.S_IFSOCK: "a socket"}
_KINDS |= {stat.S_IFCHR: "a device", stat.S_IFBLK: "a device"}
_FLAGS = os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK


def read_regular(path: Path, limit: int = MIB, *, start: int = 0) -> bytes:
    """The content of a regular file.

    Args:
      path: the file.
      limit: bytes; a file with more than that after `start` is refused.
      start: the first byte that is read.

    Raises:
      OSError: it cannot be read; ELOOP for a link, EISDIR for a folder, ENXIO for anything else that is no file, EFBIG
        for a file that is too large, EPERM for a file that another user has planted.
    """
    descriptor = _opened(path, os.O_RDONLY)  # a listing reads thousands: a file object would take half as long again
    try:
        size = max(0, os.fstat(descriptor).st_size - start)
        os.lseek(descriptor, start, os.SEEK_SET)
        _require_small(size, limit, path)
        content = os.read(descriptor, size + 1)
        _require_small(len(content), limit, path)
        while len(content) != size and (more := os.read(descriptor, limit + 1 - len(content))):  # it has grown
            content, size = content + more, -1
            _require_small(len(content), limit, path)
        return content
    finally:
        os.close(descriptor)


def open_to_read(path: Path) -> IO[bytes]:
    """Open a regular file for reading; see `read_regular`."""
    return os.fdopen(_opened(path, os.O_RDONLY), "rb")


def open_to_append(path: Path) -> int:
    """Open a regular file for appending, and make it if it is missing. Returns its descriptor.

    Raises:
      OSError: as `read_regular`; EMLINK for a file with a second name in another user's folder.
    """
    descriptor = _opened(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    if os.fstat(descriptor).st_nlink > 1 and path.parent.stat().st_uid != os.geteuid():
        os.close(descriptor)
        raise OSError(errno.EMLINK, "it is a link to a file that has another name", str(path))
    return descriptor


def _opened(path: Path, flags: int) -> int:
    try:
        descriptor = os.open(path, flags | _FLAGS, 0o644)
    except OSError as error:
        raise _named(error, path) from error
    try:
        _require_sound(os.fstat(descriptor), path)
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def _named(error: OSError, path: Path) -> OSError:
    """The same error of `open`, with what is there if that is what is wrong."""
    if error.errno == errno.ELOOP and path.is_symlink():
        return OSError(errno.ELOOP, "it is a symbolic link, which is not followed", str(path))
    if error.errno == errno.ENXIO:  # a FIFO that nobody reads, a socket
        return OSError(errno.ENXIO, f"it is {_kind(path.lstat())}, and no regular file", str(path))
    return error


def _require_sound(found: os.stat_result, path: Path) -> None:
    if not stat.S_ISREG(found.st_mode):
        code = errno.EISDIR if stat.S_ISDIR(found.st_mode) else errno.ENXIO
        raise OSError(code, f"it is {_kind(found)}, and no regular file", str(path))
    folder = path.parent.stat()
    is_shared = folder.st_mode & (stat.S_IWGRP | stat.S_IWOTH)
    if not is_shared and found.st_uid not in (0, os.geteuid(), folder.st_uid):
        raise OSError(
            errno.EPERM, f"it belongs to uid {found.st_uid}, and its folder to uid {folder.st_uid}", str(path)
        )


def _kind(found: os.stat_result) -> str:
    return _KINDS.get(stat.S_IFMT(found.st_mode), "something else")


def _require_small(count: int, limit: int, path: Path) -> None:
    if count > limit:
        raise OSError(errno.EFBIG, f"it has {size_text(count)}, and at most {size_text(limit)} are read", str(path))
