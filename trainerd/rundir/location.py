"""Watches that a run directory is there: a person may remove it while a process trains in it."""

from __future__ import annotations

import logging

from trainerd.rundir import lock
from trainerd.rundir.paths import RunDirectory
from trainerd.rundir.reporter import Reporter

log = logging.getLogger(__name__)

_REMOVED = "the run directory was removed"


class LogdirWatcher:
    """Looks a few times a second, on a thread of its own, and warns while the folder is missing.

    Args:
      rundir: which.
      reporter: has the warning.
    """

    def __init__(self, rundir: RunDirectory, reporter: Reporter) -> None:
        self._rundir = rundir
        self._reporter = reporter
        self._is_gone = False

    def check(self) -> None:
        """Look once."""
        is_there = lock.is_there(self._rundir)
        if self._is_gone == is_there:
            self._is_gone = not is_there
            if self._is_gone:
                log.error("%s", lock.removed(self._rundir), extra={"event": "removed"})
                self._reporter.warn(f"{_REMOVED}: {lock.removed(self._rundir)}")
            else:
                self._reporter.unwarn(_REMOVED)
