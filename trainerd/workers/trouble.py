"""The trouble of other workers: the first thing that went wrong, for whoever waits for it."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable
from typing import TypeVar

from trainerd.errors import PeerLostError, TrainerdError

T = TypeVar("T")
POLL_SECS = 0.1
EXPLAIN_SECS = 2.0  # in which a collective operation's failure is explained by whoever has caused it


class Trouble:
    """Holds the first trouble. Any thread may set it.

    Args:
      abort: called with it once; ends what this process and the others do together.

    Attributes:
      error: the first trouble; None if all is well.
    """

    def __init__(self, abort: Callable[[TrainerdError], None]) -> None:
        self.abort = abort
        self.error: TrainerdError | None = None
        self._is_there = threading.Event()
        self._is_closed = False
        self._lock = threading.Lock()

    def found(self, error: TrainerdError) -> None:
        """Record that another worker has failed or is gone. Later trouble is a consequence, and is not kept."""
        with self._lock:
            if self.error is not None or self._is_closed:
                return
            self.error = error
        self._is_there.set()
        self.abort(error)

    def lost(self, why: str) -> None:
        """Record that another worker is gone."""
        self.found(PeerLostError(why))

    def close(self) -> TrainerdError | None:
        """Ignore all trouble from now on, since this process ends. Returns the trouble so far, if any."""
        with self._lock:
            self._is_closed = True
            return self.error

    def check(self) -> None:
        """Raise it, if there is one.

        Raises:
          PeerLostError, PeerFailedError: another worker is gone, or has failed.
        """
        if self.error is not None:
            raise self.error

    def next_of(self, waiting: queue.SimpleQueue[T], leaves: Callable[[], bool]) -> T | None:
        """Return the next item of a queue; None as soon as `leaves` returns True.

        Raises:
          PeerLostError, PeerFailedError: see `check`.
        """
        while not leaves():
            try:
                return waiting.get(timeout=POLL_SECS)
            except queue.Empty:
                self.check()
        return None

    def explain(self) -> None:
        """Raise the cause elsewhere, if it is soon known, of a failure here of something that all do together.

        Raises:
          PeerLostError, PeerFailedError: see `check`.
        """
        self._is_there.wait(EXPLAIN_SECS)
        self.check()
