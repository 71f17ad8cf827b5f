"""The flag: signals, request files, timers and services raise it, and the loop comes to a boundary."""

from __future__ import annotations

import enum
import threading
from collections.abc import Callable, Sequence


class Request(enum.Enum):
    """The reasons for raising the flag."""

    PAUSE = "pause"  # save and exit
    SAVE = "save"  # save and continue
    SET = "set"  # set a number
    ROLLBACK = "rollback"  # go back to an earlier checkpoint
    RELOAD = "reload"  # read the config again
    TICK = "tick"  # a service is due


class Flag:
    """A flag that any thread raises. It is checked after every step, and taken at a boundary. Nothing raised is lost.

    Attributes:
      paused_by: what asked for the last pause, for a person; empty if that is not known.
    """

    def __init__(self) -> None:
        self.paused_by = ""
        self._lock = threading.Lock()
        self._is_raised_anew = threading.Condition(self._lock)
        self._requests: set[Request] = set()
        self._mirror: Callable[[bool], None] = lambda raised: None

    @property
    def is_raised(self) -> bool:
        """True if the loop's attention is wanted."""
        return bool(self._requests)

    def wants(self, request: Request) -> bool:
        """Return whether it was raised for this request and not taken since."""
        return request in self._requests

    def bind(self, mirror: Callable[[bool], None]) -> None:
        """Have `mirror` called with the flag's value, now and whenever it changes.

        It is called under the flag's lock, so that the mirror never shows an older value than the flag.
        """
        with self._lock:
            self._mirror = mirror
            mirror(bool(self._requests))

    def raise_for(self, request: Request, by: str = "") -> None:
        """Raise the flag for a request. Raising it again before it is taken changes nothing.

        Args:
          request: the request.
          by: what asks for it, for a person.
        """
        with self._lock:
            if request in self._requests:
                return
            if request is Request.PAUSE:
                self.paused_by = by
            self._requests.add(request)
            if len(self._requests) == 1:
                self._mirror(True)
            self._is_raised_anew.notify_all()

    def wait_for(self, requests: Sequence[Request], seconds: float) -> bool:
        """Wait until the flag is raised for one of these requests. Returns whether it is."""
        with self._lock:
            return self._is_raised_anew.wait_for(lambda: bool(self._requests.intersection(requests)), seconds)

    def withdraw(self, request: Request) -> bool:
        """Take one request only. Returns whether it was there."""
        with self._lock:
            if request not in self._requests:
                return False
            self._requests.remove(request)
            if not self._requests:
                self._mirror(False)
            return True

    def take(self) -> set[Request]:
        """Lower the flag and return its requests. A later request raises it again."""
        with self._lock:
            taken, self._requests = self._requests, set()
            if taken:
                self._mirror(False)
            return taken
