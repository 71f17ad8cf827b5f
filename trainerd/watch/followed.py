"""Follows one run: which of its events are new, what state it is in, whether it trains."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
from collections.abc import Sequence
from pathlib import Path

from trainerd.errors import StorageError
from trainerd.rundir import run_events
from trainerd.rundir.lock import find_removed, read_holder
from trainerd.rundir.paths import RunDirectory
from trainerd.rundir.run_events import Event
from trainerd.rundir.state import State, read_state
from trainerd.watch import rules

_KEPT = 50  # lines by which the last one that was read is found again when the file was shortened


class Followed:
    """One run. A file is read again only if it has changed.

    Args:
      path: the run directory.
      lines_read: the last lines of its events that were read by an earlier watcher.

    Attributes:
      name: the run's name.
      state: its last state; None if there is none, or it cannot be read.
      is_running: whether a process trains it.
      is_left: whether its process has gone, and could not say so.
      told: the keys of what was told of it and holds on.
    """

    def __init__(self, path: Path, lines_read: list[str]) -> None:
        self.path, self.name, self.lines_read = path, path.name, lines_read
        self.state: State | None = None
        self.is_running = self.is_left = False
        self.told: set[str] = set()
        self._rundir = RunDirectory(path)
        self._state_stamp: object = None
        self._events_stamp: object = None
        self._seemed_left = False
        self._position: object = None
        self._moved_at = 0.0

    def look(self) -> State | None:
        """Look at its state once. Returns it."""
        if (stamp := _stamp(self._rundir.state)) != self._state_stamp:
            self._state_stamp, self.state = stamp, None
            with contextlib.suppress(StorageError):
                self.state = read_state(self._rundir.state)
        elif self.state is None or (self.state.phase.is_over and not self.is_running):
            return self.state
        self.is_running = self._is_held()
        # A process names itself in the lock before it writes a state: two looks in a row must say so.
        seems_left = self.state is not None and rules.is_left(self.state, self.is_running)
        self.is_left, self._seemed_left = seems_left and self._seemed_left, seems_left
        return self.state

    def _is_held(self) -> bool:
        try:
            return read_holder(self._rundir) is not None or find_removed(self._rundir) is not None
        except StorageError:
            return True  # nobody knows

    def stands_for(self, now: float) -> float:
        """For how many seconds the run trains and has made no step; 0 if it does not train.

        Args:
          now: seconds on a clock that is never set.
        """
        state = self.state
        if state is None or not rules.is_training(state, self.is_running):
            self._position = None
            return 0.0
        if (position := (state.pid, state.create_time, state.step)) != self._position:
            self._position, self._moved_at = position, now
        return now - self._moved_at

    def new_events(self, begun_at: float) -> tuple[list[Event], list[str]]:
        """The events that were not read yet, and the last lines as they are now; nothing if the file has not changed.

        Args:
          begun_at: events from before that are not new if none was ever read, in seconds since 1970 (UTC).
        """
        if (stamp := _stamp(self._rundir.events)) == self._events_stamp:
            return [], []
        try:
            events = run_events.read(self._rundir)
        except StorageError:
            return [], []
        self._events_stamp = stamp
        lines = [_line(event) for event in events]
        return _new(events, lines, self.lines_read, begun_at), lines[-_KEPT:]

    def read_again(self) -> None:
        """What was read last could not be noted: it is read again."""
        self._events_stamp = None


def _new(events: Sequence[Event], lines: Sequence[str], lines_read: Sequence[str], begun_at: float) -> list[Event]:
    """The events after the last one that was read."""
    if not lines_read:
        return [event for event in events if event.at >= begun_at]
    known = set(lines_read)
    last = next((number for number in range(len(lines) - 1, -1, -1) if lines[number] in known), None)
    if last is None:  # the folder is another run's now
        return [event for event in events if event.at >= begun_at]
    return list(events[last + 1 :])


def _line(event: Event) -> str:
    return hashlib.sha256(json.dumps(event.to_json(), sort_keys=True).encode()).hexdigest()[:16]


def _stamp(path: Path) -> object:
    """What changes with a file's content; None for a missing one."""
    try:
        found = os.stat(path)  # noqa: PTH116  a third of the time of Path.stat, for each run each second
    except OSError:
        return None
    return found.st_ino, found.st_size, found.st_mtime_ns
