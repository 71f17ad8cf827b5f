"""Measures how long ago something was, when only its wall-clock time is known: a file or another process gave it."""

from __future__ import annotations

import time
from collections.abc import Callable


class Elapsed:
    """Reads a wall-clock time once, and counts on a clock that is never set from then on.

    A wall clock that is set back makes a wait longer by as much. Waits and due times use `time.monotonic`, which other
    processes cannot read.

    Args:
      clock: seconds since 1970 (UTC).
      timer: seconds on a clock that is never set.
    """

    def __init__(self, clock: Callable[[], float] = time.time, timer: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._timer = timer
        self._at: float | None = None
        self._since = 0.0

    def secs_since(self, at: float) -> float:
        """Return the seconds since `at`, in seconds since 1970 (UTC). A time in the future counts as now."""
        if at != self._at:
            self._at, self._since = at, self._timer() - max(0.0, self._clock() - at)
        return self._timer() - self._since
