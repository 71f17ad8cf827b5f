"""A thread that raises the flag when a service is due by the clock, or there is a request file."""

from __future__ import annotations

import contextlib
import math
import threading
import time
from collections.abc import Callable

from trainerd.loop.flag import Flag, Request
from trainerd.rundir import lock, request_files
from trainerd.rundir.paths import RunDirectory
from trainerd.system.threads import called_every

POLL_SECS = 0.25


class Ticker:
    """Raises the flag; touches nothing else.

    Args:
      flag: what to raise.
      rundir: the folder of the request files `pause` and `save`.
      timer: seconds on a clock that is never set.
    """

    def __init__(self, flag: Flag, rundir: RunDirectory, *, timer: Callable[[], float] = time.monotonic) -> None:
        self._flag = flag
        self._rundir = rundir
        self._timer = timer
        self._due = math.inf
        self._wake = threading.Event()
        self._wake.set()  # the first poll comes at once

    def running(self) -> contextlib.AbstractContextManager[None]:
        """Poll on a thread of its own while the block runs."""
        return called_every(POLL_SECS, self.poll, name="ticker", wake=self._wake)

    def set_due(self, when: float) -> None:
        """Raise the flag at this time, once. The loop calls it at each boundary."""
        sooner, self._due = when < self._due, when
        if sooner and when - self._timer() < POLL_SECS:
            self._wake.set()

    def poll(self) -> float:
        """Look once.

        Returns:
          The seconds until the next check.
        """
        if not lock.is_in_place(self._rundir):  # what is asked for there is asked of another, and nothing can be saved
            self._flag.raise_for(Request.PAUSE)
            return POLL_SECS
        if (by := request_files.who_asks_for_pause(self._rundir)) is not None:
            self._flag.raise_for(Request.PAUSE, by)
        if request_files.is_save_asked(self._rundir):
            self._flag.raise_for(Request.SAVE)
        if request_files.is_asked(self._rundir.set_request):
            self._flag.raise_for(Request.SET)
        if request_files.is_asked(self._rundir.rollback):
            self._flag.raise_for(Request.ROLLBACK)
        left = self._due - self._timer()
        if left <= 0:
            self._due = math.inf
            self._flag.raise_for(Request.TICK)
        return min(POLL_SECS, left) if left > 0 else POLL_SECS
