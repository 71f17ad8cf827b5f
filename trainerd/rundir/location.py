"""Watches where a run directory is: a person may move it, or remove it, while a process trains in it."""

from __future__ import annotations

import logging
from collections.abc import Callable

from trainerd.rundir import lock
from trainerd.rundir.paths import RunDirectory
from trainerd.rundir.reporter import Reporter

log = logging.getLogger(__name__)

_MOVED, _REMOVED = "the run directory was moved", "the run directory was removed"


class Place:
    """Looks a few times a second, on a thread of its own, and says what has become of it.

    Args:
      rundir: which.
      reporter: told.
      moved: called where it was moved.
    """

    def __init__(self, rundir: RunDirectory, reporter: Reporter, moved: Callable[[], None] = lambda: None) -> None:
        self._rundir = rundir
        self._reporter = reporter
        self._moved = moved
        self._was_at = rundir.path
        self._is_gone = False

    def look(self) -> None:
        """Look once."""
        is_there = lock.keep_up(self._rundir)
        if self._rundir.path != self._was_at:
            self._was_at = self._rundir.path
            self._moved()
            log.warning("%s: it is %s now", _MOVED, self._was_at, extra={"event": "moved"})
            self._reporter.hold(logdir=str(self._was_at))
            self._reporter.unwarn(_MOVED)
            self._reporter.warn(f"{_MOVED}: it is {self._was_at} now")
        if self._is_gone == is_there:
            self._is_gone = not is_there
            if self._is_gone:
                log.error("%s", lock.removed(self._rundir), extra={"event": "removed"})
                self._reporter.warn(f"{_REMOVED}: {lock.removed(self._rundir)}")
            else:
                self._reporter.unwarn(_REMOVED)
