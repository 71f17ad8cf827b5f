"""Waits, until the time is over or a pause is requested."""

from __future__ import annotations

import contextlib
import time

from trainerd.loop.flag import Flag, Request
from trainerd.loop.outcome import Paused
from trainerd.loop.signals.dispatch import session_listens

_LOOK_SECS = 0.25


class Waiting:
    """Waits in a schedule that has no session of its own. A signal ends it with code 0: everything is on disk."""

    def __init__(self) -> None:
        self._flag = Flag()

    def listening(self) -> contextlib.AbstractContextManager[None]:
        """Receive signals while the block runs."""
        return session_listens(self._flag)

    def is_paused(self) -> bool:
        """Return whether a pause was requested."""
        return self._flag.wants(Request.PAUSE)

    def check(self) -> None:
        """Raise Paused if a pause was requested."""
        if self.is_paused():
            raise Paused

    def sleep(self, secs: float) -> None:
        """Wait.

        Raises:
          Paused: a pause was requested.
        """
        end = time.monotonic() + secs
        while (left := end - time.monotonic()) > 0:
            self.check()
            time.sleep(min(left, _LOOK_SECS))
        self.check()
