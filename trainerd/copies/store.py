"""The places where copies lie: what each of them can do, and the one that is a folder of this machine."""

from __future__ import annotations

import contextlib
import errno
import os
import stat
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Protocol

from trainerd.errors import CopyError
from trainerd.system import safe_paths
from trainerd.system.durable_files import fsync_directory, open_new
from trainerd.system.regular_files import open_to_read

PIECE = 1 << 20  # bytes that are moved at a time


class MissingError(CopyError):
    """There is nothing of this name at the destination."""


class CopyStore(Protocol):
    """A folder of named contents at a destination. A name may have one slash. One thread uses it.

    A content is there as a whole or not at all, as far as the destination can promise that.
    """

    def put(self, name: str, source: int, size: int, moved: Callable[[int], None]) -> bool:
        """Write the content of an open file under a name, in place of what has it.

        Args:
          name: the name.
          source: the file's descriptor.
          size: its size in bytes.
          moved: called with how many bytes have been sent, now and then; what it raises ends the upload.

        Returns:
          Whether the destination computed a checksum of its own, and it is that of the file.

        Raises:
          CopyError: it could not be written.
        """

    def read(self, name: str) -> Iterator[bytes]:
        """Return the content under a name in parts.

        Raises:
          MissingError: there is none.
          CopyError: it cannot be read.
        """

    def sizes(self, folder: str) -> dict[str, int]:
        """Return the size of each content whose name begins with this folder, by the rest of its name.

        Raises:
          CopyError: they cannot be listed.
        """

    def delete(self, name: str) -> None:
        """Remove a name, if it is there.

        Raises:
          CopyError: it cannot be removed.
        """

    def close(self) -> None:
        """Free what it has opened."""


class FolderStore:
    """A folder of a file system, such as that of a NAS that is mounted here.

    The folder is made if its parent is there: without that check an upload would fill this machine's own disk whenever
    the NAS is not mounted.

    Args:
      folder: the folder.
      bytes_per_sec: the most bytes that are written in a second; None for no limit.
      timer: seconds on a clock that is never set.
      sleep: waits so many seconds.
    """

    def __init__(
        self,
        folder: Path,
        bytes_per_sec: float | None = None,
        *,
        timer: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._folder, self._bytes_per_sec = folder, bytes_per_sec
        self._timer, self._sleep = timer, sleep

    def put(self, name: str, source: int, size: int, moved: Callable[[int], None]) -> bool:
        """Write it beside its name, put it on disk, and give it the name."""
        path = self._folder / name
        temporary = path.with_name(".part")  # there is one writer; what a kill leaves is replaced by the next
        with _named(f"write {path}"):
            self._require_parent()
            for folder in (self._folder, path.parent):
                safe_paths.make_folder(folder, exist_ok=True)
            with open_new(temporary) as file:
                began, sent = self._timer(), 0
                while part := os.pread(source, PIECE, sent):
                    file.write(part)
                    sent += len(part)
                    moved(sent)
                    if self._bytes_per_sec is not None:
                        self._sleep(max(0.0, began + sent / self._bytes_per_sec - self._timer()))
                file.flush()
                os.fsync(file.fileno())
                os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)  # it is read back from the disk
            safe_paths.rename(temporary, path)
            fsync_directory(path.parent)
        return False

    def read(self, name: str) -> Iterator[bytes]:
        """Read the file."""
        path = self._folder / name
        with _named(f"read {path}"), open_to_read(path) as file:
            while part := file.read(PIECE):
                yield part

    def sizes(self, folder: str) -> dict[str, int]:
        """List the files of a folder. Those that are not written yet begin with a dot."""
        found: dict[str, int] = {}
        with _named(f"read {self._folder}"):
            self._require_parent()
            for name in safe_paths.names(self._folder / folder):
                entry = safe_paths.lstat(self._folder / folder / name)
                if entry is not None and stat.S_ISREG(entry.st_mode) and not name.startswith("."):
                    found[name] = entry.st_size
        return found

    def _require_parent(self) -> None:
        if not os.path.isdir(self._folder.parent):  # noqa: PTH112  a link may lead to where the NAS is mounted
            raise NotADirectoryError(
                errno.ENOTDIR, f"the directory {self._folder.parent} does not exist. Mount it, or create it"
            )

    def delete(self, name: str) -> None:
        """Remove the file."""
        with _named(f"remove {self._folder / name}"):
            safe_paths.remove(self._folder / name, missing_ok=True)

    def close(self) -> None:
        """Do nothing: nothing is open."""


@contextlib.contextmanager
def _named(doing: str) -> Iterator[None]:
    """Turn an error of the file system into a CopyError that says what was being done."""
    try:
        yield
    except FileNotFoundError as error:
        raise MissingError(f"cannot {doing}: {error.strerror}.") from error
    except OSError as error:
        raise CopyError(f"cannot {doing}: {error.strerror or error}.") from error
