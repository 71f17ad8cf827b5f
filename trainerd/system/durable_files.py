"""Durable writes: temporary file, fsync, rename, fsync of the directory.

The sequence is the one of `SaveFile` in BorgBackup and of "Files are hard" (LWN, 2009): a reader sees the old
content or the new, never a part, and what was written durably survives a power cut.
"""

from __future__ import annotations

import contextlib
import errno
import os
import re
import sys
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO, TypeVar

import msgspec
import xxhash

from trainerd.errors import StorageError
from trainerd.system import safe_paths
from trainerd.system.regular_files import open_to_read, read_regular

_Content = TypeVar("_Content")

_TEMPORARY = re.compile(r"\..+\.[0-9a-f]+\.tmp")  # the name of a file that is not written yet
_LEFT_SECS = 60.0  # after which a process that is gone has left such a file: to write one takes milliseconds
_CHUNK = 1 << 20
_NO_FSYNC = (errno.EINVAL, errno.ENOTSUP)  # of a directory, on some file systems of a network
_OF_DEVICE = (errno.EIO, errno.EREMOTEIO, errno.ENODEV, errno.ETIMEDOUT, errno.ENODATA, errno.EUCLEAN, errno.EBADMSG)
_NOT_OURS = (errno.ELOOP, errno.ENXIO, errno.EMLINK, errno.EOVERFLOW)
_PERMISSION = (
    "`ls -ld` shows the owner; change it with `chown`, or choose another `logdir`; for the run of a unit, which has a "
    "user of its own, use sudo."
)


@contextlib.contextmanager
def storage(doing: str, *, missing_ok: bool = False) -> Iterator[None]:
    """Turn an OSError inside the block into a StorageError that says what was being done.

    Args:
      doing: what is being done, with the path, such as "write /runs/a/state.json".
      missing_ok: whether a file that is not there ends the block without an error.
    """
    try:
        yield
    except OSError as error:
        if missing_ok and isinstance(error, safe_paths.MISSING):
            return
        raise storage_error(error, doing) from error


def read_json(path: Path, kind: type[_Content]) -> _Content | None:
    """Return the content of a file of JSON as this type; None if the file is missing or damaged.

    Raises:
      StorageError: it cannot be read.
    """
    with storage(f"read {path}", missing_ok=True), contextlib.suppress(ValueError, RecursionError):
        return msgspec.json.decode(read_regular(path), type=kind)
    return None


def storage_error(error: OSError, doing: str) -> StorageError:
    """Return the StorageError for an OSError; see `storage`."""
    advice = _of_missing_folder(error, doing) or _advice(error)
    return StorageError(f"cannot {doing}: {error.strerror or error}. {advice}".rstrip())


def _of_missing_folder(error: OSError, doing: str) -> str:
    """Return what to do about a missing folder; empty if the file itself is missing, or if that is not known."""
    missing = error.filename
    if error.errno != errno.ENOENT or not isinstance(missing, str) or not Path(missing).is_absolute():
        return ""
    folder = Path(missing) if f"{missing}/" in doing else Path(missing).parent
    with contextlib.suppress(OSError):
        return "" if safe_paths.exists(folder) else f"The directory {folder} does not exist; create it."
    return ""


def _advice(error: OSError) -> str:
    return {
        errno.ENOSPC: "Free some space on that file system (or inodes: see `df -i`).",
        errno.EDQUOT: "The disk quota is used up; free some space or raise it.",
        errno.EACCES: _PERMISSION,
        errno.EPERM: _PERMISSION,
        errno.EROFS: "The file system is read-only; remount it or choose another `logdir`.",
        errno.ENOTDIR: "A file stands where a directory is needed; move it or choose another `logdir`.",
        errno.EISDIR: "A folder stands where a file is needed; move it or choose another `logdir`.",
        errno.EEXIST: "A file stands where a directory is needed; move it or choose another `logdir`.",
        **dict.fromkeys(_OF_DEVICE, "The device reports an error; see `dmesg`."),
        **dict.fromkeys(_NOT_OURS, "trainerd did not write it; move it away."),
    }.get(error.errno or 0, "")


def is_damage(error: OSError) -> bool:
    """Return whether a file is missing, or the disk cannot read it.

    A missing permission, or a lack of descriptors, says nothing of the file's content.
    """
    gone = (errno.ENOENT, errno.ENOTDIR, errno.EIO, errno.ENODATA)
    return error.errno in (*gone, errno.EISDIR, errno.ELOOP, errno.ENXIO, errno.EOVERFLOW)


def fsync_file(path: Path) -> None:
    """Put a file's content on disk."""
    with open_to_read(path) as file:
        os.fsync(file.fileno())


def fsync_directory(path: Path) -> None:
    """Put a directory's entries on disk: a rename is durable only after this."""
    with safe_paths.opened(path) as folder:
        descriptor = os.open(".", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC, dir_fd=folder)
        try:
            os.fsync(descriptor)
        except OSError as error:
            if error.errno not in _NO_FSYNC:
                raise
        finally:
            os.close(descriptor)


def write_durable(path: Path, content: bytes) -> None:
    """Write a file that nobody reads yet, and put its content on disk."""
    with open_new(path) as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())


def write_atomic(
    path: Path, content: bytes, *, durable: bool = True, for_all: bool = False, replace: bool = True
) -> None:
    """Replace a file's content as a whole.

    Args:
      path: the file.
      content: its new bytes.
      durable: whether the content must be on disk when this returns. Without it a power cut may bring the old
        content back, and a reader still never sees a part.
      for_all: whether other users may read it, whatever the umask.
      replace: whether a file that is there is replaced.

    Raises:
      FileExistsError: it is not to be replaced, and is there.
      OSError: it cannot be written.
    """
    temporary = path.with_name(f".{path.name}.{uuid.uuid4().hex}.tmp")
    try:
        with open_new(temporary) as file:
            file.write(content)
            if for_all:
                os.fchmod(file.fileno(), 0o644)
            if durable:
                file.flush()
                os.fsync(file.fileno())
        if not replace and _linked(temporary, path):  # no rename after that: whoever reads the file may have removed it
            safe_paths.remove(temporary)
        else:
            safe_paths.rename(temporary, path)
    except BaseException:
        with contextlib.suppress(OSError):
            safe_paths.remove(temporary)
        raise
    if durable:
        fsync_directory(path.parent)


def _linked(temporary: Path, path: Path) -> bool:
    """Give a file a second name that is free. Returns False on a file system without links, if the name is free there.

    Raises:
      FileExistsError: it is not free.
    """
    if safe_paths.link(temporary, path):
        return True
    if safe_paths.exists(path):
        raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), str(path))
    return False


def remove_temporaries(folder: Path, *, of: str = "") -> None:
    """Remove the temporary files that killed processes have left in a folder.

    Args:
      folder: the folder.
      of: the name of the file that they were to become; empty for all.

    Raises:
      OSError: one cannot be removed.
    """
    for path in safe_paths.starting_with(folder, f".{of}." if of else "."):
        found = safe_paths.lstat(path) if _TEMPORARY.fullmatch(path.name) else None
        if found is not None and time.time() - found.st_mtime > _LEFT_SECS:
            safe_paths.remove(path, missing_ok=True)


def open_new(path: Path) -> IO[bytes]:
    """Open a new file for writing, which replaces what has its name. A link is not followed, and a FIFO not opened.

    Raises:
      OSError: it cannot be made.
    """
    with safe_paths.opened(path.parent) as folder:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(path.name, dir_fd=folder)
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
        return os.fdopen(os.open(path.name, flags, 0o666, dir_fd=folder), "wb")


def free_bytes(path: Path) -> int:
    """Return how many bytes this process may write on the file system that holds `path`."""
    found = os.statvfs(path)
    if not found.f_blocks:
        return sys.maxsize  # the filesystem does not report it
    return found.f_frsize * (found.f_bfree if os.geteuid() == 0 else found.f_bavail)


def total_bytes(path: Path) -> int:
    """Return the size of the file system that holds `path`, in bytes."""
    found = os.statvfs(path)
    return found.f_frsize * found.f_blocks or sys.maxsize  # not all file systems report it


def xxh128(path: Path, moved: Callable[[int], None] = lambda size: None) -> str:
    """Return the 128-bit XXH3 of a file, as `xxhsum -H2` prints it.

    It finds damage, not malice, and as fast as memory can be read; SHA-256 takes longer than reading a checkpoint.

    Args:
      path: the file.
      moved: called with the number of bytes after each read.
    """
    with open_to_read(path) as file:
        return xxh128_of(file.fileno(), moved)


def xxh128_of(descriptor: int, moved: Callable[[int], None] = lambda size: None) -> str:
    """Return the 128-bit XXH3 of an open file, whatever its position; see `xxh128`."""
    digest, buffer = xxhash.xxh3_128(), bytearray(_CHUNK)
    view, offset = memoryview(buffer), 0
    while size := os.preadv(descriptor, [buffer], offset):
        digest.update(view[:size])
        moved(size)
        offset += size
    return digest.hexdigest()
