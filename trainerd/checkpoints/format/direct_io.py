"""Writing a large file past the page cache: from where its content lies in memory straight to the disk.

A buffered write copies everything into pages of the kernel, which it may have to find first, and writes them to the
disk later: several times the processor's work, all of it taken from the training that continues meanwhile. A checkpoint
is not read again before the next start, so nothing is gained by its being cached either.

A disk takes whole blocks from addresses that are multiples of a block. What has another place in a block of memory
than in a block of the file is copied to a small buffer first. Many pieces are given to the disk at once: each call has
its price, and the thread would wait for each.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import mmap
import os
from pathlib import Path
from types import TracebackType

import numpy as np

BLOCK = 4096  # memory, offsets and sizes are multiples of it, for any disk
IN_PLACE = 1 << 20  # bytes: what is as large as that is not copied, where it lies right
LOT = 1 << 24  # bytes that are given to the disk in one go
_BUFFER = 1 << 20  # bytes


class DirectFile:
    """A new file that is written from its beginning to its end, once.

    If the file system does not take direct writes, it is written like any other.

    Args:
      path: the file; it must not exist.

    Attributes:
      size: bytes that were written so far.
      lot, is_direct: how much is best appended in one go, and that its place in memory matters.

    Raises:
      OSError: it cannot be made.
    """

    lot = LOT
    is_direct = True

    def __init__(self, path: Path) -> None:
        self.size = 0
        self._memory = mmap.mmap(-1, _BUFFER)
        self._view = memoryview(self._memory)
        self._filled = 0  # of the buffer
        self._listed = 0  # of the buffer, in `_parts` too
        self._parts: list[memoryview] = []  # what is next, of the buffer and from elsewhere
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

        Most of it is not copied if there is much of it, and its address is as many bytes past a block as the file's
        size. Then it must stay as it is until the file is finished.

        Raises:
          OSError: they cannot be written.
        """
        if len(content) >= IN_PLACE and address(content) % BLOCK == self.size % BLOCK:
            begin = -self.size % BLOCK
            end = len(content) - (len(content) - begin) % BLOCK
            self._copy(content[:begin])
            self._take(content[begin:end])
            content = content[end:]
        self._copy(content)

    def finish(self) -> None:
        """Write what is left. It is on disk for sure after an fsync.

        Raises:
          OSError: it cannot be written.
        """
        if padding := -self._filled % BLOCK:
            self._view[self._filled : self._filled + padding] = bytes(padding)
            self._filled += padding
        self._write_out()
        os.ftruncate(self._descriptor, self.size)

    def _copy(self, content: memoryview) -> None:
        """Append to the buffer, and write out what there is when the buffer is full."""
        self.size += len(content)
        while len(content):
            part = content[: _BUFFER - self._filled]
            self._view[self._filled : self._filled + len(part)] = part
            self._filled += len(part)
            content = content[len(part) :]
            if self._filled == _BUFFER:
                self._write_out()

    def _take(self, content: memoryview) -> None:
        """Append whole blocks from where they lie, and write out what there is if it is much."""
        self.size += len(content)
        self._list_buffer()
        self._parts.append(content)
        if sum(map(len, self._parts)) >= LOT:
            self._write_out()

    def _list_buffer(self) -> None:
        if self._listed < self._filled:
            self._parts.append(self._view[self._listed : self._filled])
            self._listed = self._filled

    def _write_out(self) -> None:
        """Write what there is to the disk: whole blocks, as long as it is written to directly."""
        self._list_buffer()
        while self._parts:
            try:
                written = os.writev(self._descriptor, self._parts)
            except OSError as error:
                if error.errno != errno.EINVAL or not self._is_direct():
                    raise
                self._write_buffered()  # it was opened so, but is not written so
                continue
            self._parts = _without(self._parts, written)
            if written % BLOCK and self._is_direct():
                self._write_buffered()  # what is left is not aligned any more
        self._filled = self._listed = 0

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
            self._parts.clear()
            self._view.release()
            self._memory.close()


def _without(parts: list[memoryview], size: int) -> list[memoryview]:
    """Return the rest of these parts without their first `size` bytes."""
    left = []
    for part in parts:
        if size < len(part):
            left.append(part[size:])
        size = max(0, size - len(part))
    return left


def address(content: memoryview) -> int:
    """Return the address at which a contiguous piece of memory begins."""
    return int(np.frombuffer(content, np.uint8).__array_interface__["data"][0])
