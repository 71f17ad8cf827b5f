"""Durable writes: temporary file, fsync, rename, fsync of the directory.

The sequence is the one of `SaveFile` in BorgBackup and of "Files are hard" (LWN, 2009): a reader sees the old
content or the new, never a part, and what was written durably survives a power cut.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
from collections.abc import Iterator
from pathlib import Path

from trainerd.errors import StorageError

_CHUNK = 1 << 20


@contextlib.contextmanager
def storage(doing: str) -> Iterator[None]:
    """Turn an OSError inside the block into a StorageError that says what was being done.

    Args:
      doing: what is being done, with the path, such as "write /runs/a/state.json".
    """
    try:
        yield
    except OSError as error:
        raise StorageError(f"cannot {doing}: {error.strerror or error}. {_advice(error)}") from error


def _advice(error: OSError) -> str:
    import errno

    return {
        errno.ENOSPC: "Free some space on that file system; it is tried again.",
        errno.EDQUOT: "The disk quota is used up; free some space or raise it.",
        errno.EACCES: "Give this user permission to write there, or choose another `logdir`.",
        errno.EPERM: "Give this user permission to write there, or choose another `logdir`.",
        errno.EROFS: "The file system is read-only; remount it or choose another `logdir`.",
        errno.ENOTDIR: "A file stands where a directory is needed; move it or choose another `logdir`.",
        errno.EIO: "The device reports an error; see `dmesg`.",
    }.get(error.errno or 0, "See the message above and `dmesg`.")


def fsync_file(path: Path) -> None:
    """Put a file's content on disk."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def fsync_directory(path: Path) -> None:
    """Put a directory's entries on disk: a rename is durable only after this."""
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def write_atomic(path: Path, content: bytes, *, durable: bool = True) -> None:
    """Replace a file's content as a whole.

    Args:
      path: the file.
      content: its new bytes.
      durable: whether the content must be on disk when this returns. Without it a power cut may bring the old
        content back, and a reader still never sees a part.
    """
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        with temporary.open("wb") as file:
            file.write(content)
            if durable:
                file.flush()
                os.fsync(file.fileno())
        temporary.replace(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    if durable:
        fsync_directory(path.parent)


def sha256(path: Path) -> str:
    """The SHA-256 of a file, as `sha256sum` prints it."""
    digest = hashlib.sha256()
    with path.open("rb", buffering=0) as file:
        while chunk := file.read(_CHUNK):
            digest.update(chunk)
    return digest.hexdigest()


def pages_written_back() -> int:
    """How many pages the kernel has written to disks since it booted; 0 where /proc does not tell."""
    try:
        text = Path("/proc/vmstat").read_text()
    except OSError:
        return 0
    return next((int(line.split()[1]) for line in text.splitlines() if line.startswith("nr_written ")), 0)
