"""Writes state.json: important changes at once, others at most a few times a second."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable

from trainerd.errors import StorageError
from trainerd.rundir import lock
from trainerd.rundir.paths import RunDirectory
from trainerd.rundir.state import Phase, State

log = logging.getLogger(__name__)

MIN_SECS = 0.25
# These come and go while a run trains. Each other phase is a turn in its life, and is written at once.
_MOMENTARY = (Phase.SAVING, Phase.EVALUATING)


class StateWriter:
    """An observer that keeps state.json.

    The next `flush` writes a state that comes too soon after the last one. A failed write is logged once: training does
    not depend on this file.

    Args:
      rundir: where.
      timer: seconds on a clock that is never set.
    """

    def __init__(self, rundir: RunDirectory, *, timer: Callable[[], float] = time.monotonic) -> None:
        self._rundir = rundir
        self._timer = timer
        self._lock = threading.Lock()
        self._pending: State | None = None
        self._written_at = float("-inf")
        self._failed = False
        self._phase: Phase | None = None

    def observe(self, state: State) -> None:
        """Write this state, now or at the next flush."""
        with self._lock:
            self._pending = state
            entered = state.phase not in _MOMENTARY and state.phase is not self._phase
            if entered:
                self._phase = state.phase
            if entered or self._timer() - self._written_at >= MIN_SECS:
                self._write()

    def flush(self) -> None:
        """Write the waiting state. Called by another thread, a few times a second."""
        with self._lock:
            if self._pending is not None and self._timer() - self._written_at >= MIN_SECS:
                self._write()

    def _write(self) -> None:
        assert self._pending is not None
        self._written_at = self._timer()
        try:
            lock.require_in_place(self._rundir)
            self._pending.write(self._rundir.state)
        except StorageError as error:
            if not self._failed:
                log.warning("%s", error, extra={"event": "state-failed"})
            self._failed = True
        else:
            self._failed = False
        self._pending = None
