"""Follows what happens to a run: each read continues where the last one ended."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

from trainerd.rundir import run_events
from trainerd.rundir.paths import RunDirectory
from trainerd.rundir.run_events import Event
from trainerd.system import safe_paths
from trainerd.system.durable_files import storage
from trainerd.system.regular_files import MIB, open_to_read

_MOST = 10_000  # events that are kept of a run


class EventReader:
    """Reads the events of one run.

    Args:
      rundir: the run directory.

    Attributes:
      events: the newest that the file has, oldest first. A read that finds more keeps the objects of those before.
      counts: how many of each kind happened since the first read, those that were there included. It never falls,
        although the oldest events are dropped from the file.
    """

    def __init__(self, rundir: RunDirectory) -> None:
        self.events: tuple[Event, ...] = ()
        self.counts: Counter[str] = Counter()
        self._rundir = rundir
        self._inode = self._offset = 0

    def read(self) -> None:
        """Read the new events; all from the beginning if the file was replaced, since it was shortened.

        Raises:
          StorageError: it cannot be read.
        """
        path = self._rundir.events
        with storage(f"read {path}"):
            found = safe_paths.lstat(path)
            if found is None:
                self.events, self._inode, self._offset = (), 0, 0
            elif (found.st_ino, found.st_size) != (self._inode, self._offset):
                is_longer = found.st_ino == self._inode and found.st_size > self._offset
                self._read(path, self._offset if is_longer else 0, found.st_size)
                self._inode = found.st_ino

    def _read(self, path: Path, known_to: int, size: int) -> None:
        """Read from where the last read ended; the end alone of a file that has grown by more than is read at once."""
        start = max(known_to, size - MIB)
        with open_to_read(path) as file:
            file.seek(start)
            events, length = run_events.parse(file.read(MIB))
        known = self.events if known_to else ()
        new = Counter(events) - Counter(() if known_to else self.events)
        self.counts.update(str(event.kind) for event in new.elements())
        self.events, self._offset = (*known, *events)[-_MOST:], start + length
