"""The watcher's memory of one run between two looks: what was read, and since when nothing has changed."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Sequence

import msgspec

from trainerd.rundir.run_events import Event
from trainerd.watch import rules
from trainerd.watch.run_reader import RunView

_KEPT = 50  # lines by which the last one that was read is found again when the file was shortened
_NOTE_SECS = 60.0


class RunMemory:
    """The memory of one run.

    Args:
      lines_read: the last lines of its events that were read by an earlier watcher.

    Attributes:
      announced: the keys of notices that were sent and still apply.
      is_doubtful: whether its process seems to have gone since the look before.
    """

    def __init__(self, lines_read: list[str]) -> None:
        self.announced: set[str] = set()
        self._lines_read = self._noted = lines_read
        self._noted_at = -math.inf
        self._events: Sequence[Event] = ()
        self.is_doubtful = self._seemed_left = self._has_run = False
        self._position: object = None
        self._moved_at = 0.0
        self._copied: object = None
        self._copied_at = 0.0

    def is_left(self, seen: RunView, begun_at: float) -> bool:
        """Return whether its process has gone, and could not say so.

        A process names itself in the lock before it writes a state: two looks in a row must say so.

        Args:
          seen: the run now.
          begun_at: one that had ended before that does not count, in seconds since 1970 (UTC).
        """
        self._has_run = self._has_run or seen.is_running
        state = seen.state
        seems_left = state is not None and state.is_left(seen.is_running) and (self._has_run or state.at >= begun_at)
        before, self._seemed_left = self._seemed_left, seems_left
        self.is_doubtful = seems_left and not before
        return seems_left and before

    def stands_for(self, seen: RunView, now: float) -> float:
        """Return for how many seconds the run trains and has made no step; 0 if it does not train.

        Args:
          seen: the run now.
          now: seconds on a clock that is never set.
        """
        state = seen.state
        if state is None or not rules.is_training(state, seen.is_running):
            self._position = None
            return 0.0
        if (position := (state.pid, state.create_time, state.step)) != self._position:
            self._position, self._moved_at = position, now
        return now - self._moved_at

    def copy_stands_for(self, seen: RunView, now: float) -> float:
        """Return for how many seconds the newest checkpoint is not copied, and nothing is; 0 without a copy.

        Args:
          seen: the run now.
          now: seconds on a clock that is never set.
        """
        copy, state = seen.copy, seen.state
        is_behind = copy is not None and state is not None and copy.is_behind(state.last_checkpoint, seen.saved_at)
        if copy is None or not is_behind or (copy.copied_at, copy.step) != self._copied:
            self._copied, self._copied_at = (copy.copied_at, copy.step) if copy is not None else None, now
        return now - self._copied_at

    def new_events(self, events: Sequence[Event], begun_at: float) -> tuple[list[Event], list[str]]:
        """Return the events that were not read yet, and the last lines as they are now.

        Args:
          events: all that there are.
          begun_at: events from before that are not new if none was ever read, in seconds since 1970 (UTC).
        """
        known = len(self._events)
        if known and known <= len(events) and events[known - 1] is self._events[-1]:  # the file was read on
            new = list(events[known:])
            return new, [*self._lines_read, *map(_line, new)][-_KEPT:] if new else self._lines_read
        lines = [_line(event) for event in events]
        return _new(events, lines, self._lines_read, begun_at), lines[-_KEPT:] or self._lines_read

    def took(self, events: Sequence[Event], lines: list[str]) -> None:
        """Record that the new events have been dealt with."""
        self._events, self._lines_read = events, lines

    def is_note_due(self, lines: list[str], now: float) -> bool:
        """Return whether the position in the events is to be noted although no notice is due.

        A run may be evaluated at every look, and each note waits for the disk. So it is noted once a minute: what came
        since then is read again by the next watcher, and is not sent again.

        Args:
          lines: the last lines.
          now: seconds on a clock that is never set.
        """
        return lines != self._noted and now >= self._noted_at + _NOTE_SECS

    def noted(self, lines: list[str], now: float) -> None:
        """Record that the position in the events was noted."""
        self._noted, self._noted_at = lines, now


def _new(events: Sequence[Event], lines: Sequence[str], lines_read: Sequence[str], begun_at: float) -> list[Event]:
    """Return the events after the last one that was read."""
    known = set(lines_read)
    last = next((number for number in range(len(lines) - 1, -1, -1) if lines[number] in known), None)
    if last is None:  # none was ever read, or the folder belongs to another run now
        return [event for event in events if event.at >= begun_at]
    return list(events[last + 1 :])


def _line(event: Event) -> str:
    return hashlib.sha256(msgspec.json.encode(event)).hexdigest()[:16]
