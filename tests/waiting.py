"""What tests wait for: a condition, a condition that stays, and a signal that is served. No test sleeps."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from typing import TypeVar

import pytest

from trainerd.loop.signals.handlers import SignalThread

DEADLINE_SECS = 90.0
POLL_SECS = 0.01

T = TypeVar("T")


def wait_for(get: Callable[[], T | None], what: str | Callable[[], str], seconds: float = DEADLINE_SECS) -> T:
    """Return the first result of `get` that is neither None nor False.

    Args:
      get: is called until it has a result.
      what: describes what the test waits for, for the message.
      seconds: the deadline.

    Raises:
      AssertionError: there is no result before the deadline.
    """
    deadline = time.monotonic() + seconds
    while True:
        found = get()
        if found is not None and found is not False:
            return found
        if time.monotonic() > deadline:
            raise AssertionError(f"waited {seconds} s for {what if isinstance(what, str) else what()}")
        time.sleep(POLL_SECS)


def wait_until_still(get: Callable[[], T], seconds: float, what: str) -> T:
    """Wait until `get` has returned the same value for so many seconds, and return it."""
    before, since = get(), time.monotonic()

    def is_still() -> bool:
        nonlocal before, since
        if (now := get()) != before:
            before, since = now, time.monotonic()
        return time.monotonic() - since >= seconds

    wait_for(is_still, what)
    return before


def require_for(seconds: float, is_so: Callable[[], bool], what: str) -> None:
    """Require that a condition is true at every look for so many seconds.

    Raises:
      AssertionError: it is not.
    """
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        assert is_so(), what
        time.sleep(POLL_SECS)


def send_signal(number: int) -> None:
    """Send this process a signal, and return when the thread that serves signals has served it."""
    served, handle = threading.Event(), SignalThread.handle

    def noted(thread: SignalThread, heard: int) -> None:
        handle(thread, heard)
        served.set()

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(SignalThread, "handle", noted)
        os.kill(os.getpid(), number)
        assert served.wait(DEADLINE_SECS), f"nothing served signal {number}"
