"""Writing a large file past the page cache: from a small buffer straight to the disk.

A buffered write copies everything into pages of the kernel, which it may have to find first, and writes them to the
disk later: several times the processor's work, all of it taken from the training that goes on meanwhile. A checkpoint
is not read again before the next start, so nothing is gained by its being cached either.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import fcntl
import mmap
import os
from pathlib import Path
from types import TracebackType

import xxhash

PIECE = 1 << 18  # what is given to `write` at a time: it stays in the processor's cache while it is looked at
CHUNK = 1 << 22  # what is written at a time: fewer calls
_ALIGNMENT = 4096  # of memory, offsets and sizes, for any disk
_HUGE_PAGE = 1 << 21


class DirectFile:
    """A new file that is written from its beginning to its end, once.

    Where the file system does not take direct writes it is written as any other.

    Args:
      path: the file; it must not exist.

    Attributes:
      size: bytes that were written so far.

    Raises:
      OSError: it cannot be made.
    """

    def __init__(self, path: Path) -> None:
        self.size = 0
        self._digest = xxhash.xxh3_128()
        self._memory = mmap.mmap(-1, CHUNK + _HUGE_PAGE)
        self._view = _in_huge_pages(self._memory)
        self._filled = 0
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
        try:
            self._descriptor = os.open(path, flags | os.O_DIRECT, 0o666)
        except OSError as error:
            if error.errno != errno.EINVAL:
                raise
            path.unlink(missing_ok=True)  # some file systems make it before they refuse
            self._descriptor = os.open(path, flags, 0o666)

    def write(self, content: memoryview) -> None:
        """Append bytes; `content` is contiguous, with items of a byte.

        Raises:
          OSError: they cannot be written.
        """
        self._digest.update(content)
        self.size += len(content)
        while len(content):
            part = content[: CHUNK - self._filled]
            self._view[self._filled : self._filled + len(part)] = part
            self._filled += len(part)
            content = content[len(part) :]
            if self._filled == CHUNK:
                self._write_out(CHUNK)
                self._filled = 0

    def finish(self) -> str:
        """Write what is left. Returns the file's 128-bit XXH3. It is on disk for sure after an fsync.

        Raises:
          OSError: it cannot be written.
        """
        if self._filled:
            padded = -(-self._filled // _ALIGNMENT) * _ALIGNMENT
            self._view[self._filled : padded] = bytes(padded - self._filled)
            self._write_out(padded)
            os.ftruncate(self._descriptor, self.size)
        return self._digest.hexdigest()

    def _write_out(self, size: int) -> None:
        """Write from the buffer's beginning."""
        begin = 0
        while begin < size:
            with self._view[begin:size] as part:
                try:
                    begin += os.write(self._descriptor, part)
                except OSError as error:
                    if error.errno != errno.EINVAL or not self._is_direct():
                        raise
                    self._write_buffered()  # it was opened so, but is not written so
            if begin % _ALIGNMENT and self._is_direct():
                self._write_buffered()  # what is left is not aligned any more

    def _is_direct(self) -> bool:
        return bool(fcntl.fcntl(self._descriptor, fcntl.F_GETFL) & os.O_DIRECT)

    def _write_buffered(self) -> None:
        flags = fcntl.fcntl(self._descriptor, fcntl.F_GETFL)
        fcntl.fcntl(self._descriptor, fcntl.F_SETFL, flags & ~os.O_DIRECT)

    def __enter__(self) -> DirectFile:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        os.close(self._descriptor)
        with contextlib.suppress(BufferError):  # an error that is on its way holds on to it
            self._view.release()
            self._memory.close()


def _in_huge_pages(memory: mmap.mmap) -> memoryview:
    """A part of `memory`, of CHUNK bytes, for which the kernel has to look up two pages and not a thousand."""
    with contextlib.suppress(OSError):  # a kernel without them
        memory.madvise(mmap.MADV_HUGEPAGE)
    first = ctypes.c_char.from_buffer(memory)
    offset = -ctypes.addressof(first) % _HUGE_PAGE
    del first
    return memoryview(memory)[offset : offset + CHUNK]
