"""Follows a run's curve as it grows: each look reads what was written since the last, and memory stays bounded."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from trainerd.history.curves import Curve, CurveReader, event_files, events
from trainerd.history.lines import Line, lines
from trainerd.rundir.paths import RunDirectory
from trainerd.system.durable_files import storage
from trainerd.system.regular_files import open_to_read

_LARGEST = 1 << 16  # bytes of an event: metrics take less, pictures and graphs more


class CurveFollower:
    """Follows the curve of one metric.

    If the run has gone back, or a file was removed or replaced, it rereads all files.

    Args:
      rundir: the run directory.
      tag: the metric.
      most: keep fewer than twice as many points, at regular distances.
      at_once: events that one look reads.

    Attributes:
      is_complete: whether the last look has come to the end of what there was.
    """

    def __init__(self, rundir: RunDirectory, tag: str, *, most: int = 250, at_once: int = 20_000) -> None:
        self._rundir, self._tag, self._most, self._at_once = rundir, tag, most, at_once
        self.is_complete = False
        self._begin(())

    def _begin(self, left: Sequence[Line]) -> None:
        self._left = left
        self._reader = CurveReader(left, self._tag, self._most)
        self._read: dict[Path, tuple[int, int]] = {}  # of each file: its inode, and up to where it was read

    def read(self) -> Curve:
        """Read on.

        Returns:
          The curve so far; the next look changes it.

        Raises:
          StorageError: an event file cannot be read.
        """
        left, files = lines(self._rundir), event_files(self._rundir)
        if left != self._left or not self._are_there(files):
            self._begin(left)
        to_read = self._at_once
        for path in files:
            with storage(f"read {path}", missing_ok=True):
                to_read -= self._read_on(path, to_read)
        self.is_complete = to_read > 0
        return self._reader.curve

    def _are_there(self, files: Sequence[Path]) -> bool:
        """Return whether all that was read is still there, in what files there are now."""
        for path, (inode, offset) in self._read.items():
            try:
                found = path.lstat()
            except OSError:
                return False
            if path not in files or found.st_ino != inode or found.st_size < offset:
                return False
        return True

    def _read_on(self, path: Path, at_most: int) -> int:
        """Read what a file has grown by. Returns how many events that were."""
        _, offset = self._read.get(path, (0, 0))
        if at_most <= 0 or path.lstat().st_size == offset:
            return 0
        count = 0
        with open_to_read(path) as file:
            inode = os.fstat(file.fileno()).st_ino
            file.seek(offset)
            for event in events(file, _LARGEST):
                self._reader.read(event)
                self._read[path] = (inode, file.tell())
                if (count := count + 1) >= at_most:
                    break
        return count
