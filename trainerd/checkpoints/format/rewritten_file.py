"""Writing over a file in memory: its pages are there already.

A new file in a tmpfs takes two to three times the processor's time: the kernel finds and clears each page, and frees
those of the file before.
"""

from __future__ import annotations

import os
from pathlib import Path
from types import TracebackType

LOT = 1 << 20  # bytes that are written in one go: they are in the processor's cache, since they were just checked


class RewrittenFile:
    """A file that exists, and that is written over from its beginning to its end, once.

    Args:
      path: the file.

    Attributes:
      size: bytes that were written so far.

    Raises:
      OSError: it cannot be opened.
    """

    lot = LOT
    is_direct = False

    def __init__(self, path: Path) -> None:
        self.size = 0
        self._descriptor = os.open(path, os.O_WRONLY | os.O_CLOEXEC | os.O_NOFOLLOW)

    def write(self, content: memoryview) -> None:
        """Append bytes; `content` is contiguous, with items of a byte.

        Raises:
          OSError: they cannot be written.
        """
        self.size += len(content)
        while content:
            content = content[os.write(self._descriptor, content) :]

    def finish(self) -> None:
        """Cut off the rest of the old content.

        Raises:
          OSError: it cannot be cut off.
        """
        os.ftruncate(self._descriptor, self.size)

    def __enter__(self) -> RewrittenFile:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        os.close(self._descriptor)
