"""What has become of other workers: the first thing that went wrong, for whoever waits for it."""

from __future__ import annotations

import threading
from collections.abc import Callable

from trainerd.errors import TrainerdError

EXPLAIN_SECS = 2.0  # in which a collective operation's failure is explained by whoever has caused it


class Trouble:
    """Holds the first trouble. Any thread may set it.

    Args:
      abort: called with it once; ends what this process and the others do together.
    """

    def __init__(self, abort: Callable[[TrainerdError], None]) -> None:
        self._abort = abort
        self._error: TrainerdError | None = None
        self._is_there = threading.Event()
        self._is_closed = False
        self._lock = threading.Lock()

    @property
    def error(self) -> TrainerdError | None:
        """What it is; None if all is well."""
        return self._error

    def found(self, error: TrainerdError) -> None:
        """Something has become of another worker. What comes later is its consequence, and is not kept."""
        with self._lock:
            if self._error is not None or self._is_closed:
                return
            self._error = error
        self._is_there.set()
        self._abort(error)

    def close(self) -> TrainerdError | None:
        """This process ends: what becomes of the others from now on is ignored. Returns the trouble so far, if any."""
        with self._lock:
            self._is_closed = True
            return self._error

    def check(self) -> None:
        """Raise it, if there is one.

        Raises:
          PeerLostError, PeerFailedError: another worker is gone, or has failed.
        """
        if self._error is not None:
            raise self._error

    def explain(self) -> None:
        """Something that all do together has failed here: raise what has caused it elsewhere, if that is known soon.

        Raises:
          PeerLostError, PeerFailedError: see `check`.
        """
        self._is_there.wait(EXPLAIN_SECS)
        self.check()
