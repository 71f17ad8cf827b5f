"""Follows what happens to a run: each look reads the events that were written since the last."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

from trainerd.rundir import run_events
from trainerd.rundir.paths import RunDirectory
from trainerd.rundir.run_events import Event
from trainerd.system.durable_files import storage
from trainerd.system.regular_files import read_regular


class EventReader:
    """Reads the events of one run.

    Args:
      rundir: the run directory.

    Attributes:
      events: all that the file has, oldest first. A look that finds more of them keeps the objects of those before.
      counts: how many of each kind happened since the first look, those that were there included. It never falls,
        although the oldest events are dropped from the file.
    """

    def __init__(self, rundir: RunDirectory) -> None:
        self.events: tuple[Event, ...] = ()
        self.counts: Counter[str] = Counter()
        self._rundir = rundir
        self._inode = self._offset = 0

    def look(self) -> None:
        """Read on; from the beginning if the file is another one, since it was shortened.

        Raises:
          StorageError: it cannot be read.
        """
        path = self._rundir.events
        with storage(f"read {path}", missing_ok=True):
            found = path.lstat()
            if (found.st_ino, found.st_size) == (self._inode, self._offset):
                return
            is_longer = found.st_ino == self._inode and found.st_size > self._offset
            self._read(path, self._offset if is_longer else 0)
            self._inode = found.st_ino
            return
        self.events, self._inode, self._offset = (), 0, 0

    def _read(self, path: Path, start: int) -> None:
        content = read_regular(path, start=start)
        events, length = run_events.parse(content)
        known = self.events if start else ()
        new = Counter(events) - Counter(() if start else self.events)
        self.counts.update(str(event.kind) for event in new.elements())
        self.events, self._offset = (*known, *events), start + length
