"""Boundaries of a loop that the user writes: services run right after a step, on the loop's thread."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from trainerd.loop.flag import Flag, Request
from trainerd.run.handoff_lock import HandoffLock
from trainerd.system.still import Still

IDLE_SECS = 1.0
STUCK_SECS = 10.0
_PATIENCE_SECS = 0.1


@dataclass
class _Visit:
    """A function that another thread wants to call between two steps.

    Attributes:
      function: the function.
      thread: the thread.
      granted, done: set when the call may begin, and when it has ended.
      is_decided: whether it was granted or withdrawn.
      is_alone: whether the loop continued before its end.
    """

    function: Callable[[], Any]
    thread: int = field(default_factory=threading.get_ident)
    granted: threading.Event = field(default_factory=threading.Event)
    done: threading.Event = field(default_factory=threading.Event)
    is_decided: bool = False
    is_alone: bool = False

    def pay(self) -> None:
        """Call the function, on this thread."""
        try:
            self.function()
        finally:
            self.done.set()


def _serve_nothing() -> None:
    """Do nothing: the run has another boundary by now, or has ended."""


class InStep:
    """A context that knows whether the loop's thread is in the middle of a step.

    It is entered for each step, and is cheaper than a generator's context.
    """

    def __init__(self) -> None:
        self.is_entered = False

    def __enter__(self) -> None:
        self.is_entered = True

    def __exit__(self, *exc: object) -> None:
        self.is_entered = False


class Boundary:
    """Serves the flag between two steps.

    The thread that makes it is the loop's. If that thread does something else for a second while the flag is raised,
    another thread serves the flag: no step runs then.

    Args:
      flag: the flag.
      serve: called at a boundary; takes what the flag was raised for.
      timer: seconds on a clock that is never set.

    Attributes:
      lock: held while a step runs and while the flag is served.
      thread: the loop's, by its identity.
      in_step: a context for a step, whatever sessions it runs.
    """

    def __init__(self, flag: Flag, serve: Callable[[], None], *, timer: Callable[[], float] = time.monotonic) -> None:
        self.flag = flag
        self.lock = HandoffLock()
        self.thread = threading.get_ident()
        self._serve = serve
        self._timer = timer
        self.in_step = InStep()
        self._server: int | None = None  # the thread that serves the flag just now
        self._raised = Still()  # whether the flag is raised; it stands still if no boundary comes
        self._visits: deque[_Visit] = deque()
        self._deciding = threading.Lock()

    @property
    def is_mine(self) -> bool:
        """True if this is the loop's thread, in the loop: not in a service that it runs at a boundary, or in a step."""
        return not self.in_step.is_entered and threading.get_ident() == self.thread != self._server

    def reached(self) -> None:
        """Serve the flag, which is raised, while the loop is between two steps."""
        with self.lock:
            if self._server is not None:
                return
            self._server = threading.get_ident()
            self._raised = Still()
            try:
                self._serve()
                self._receive()
            finally:
                self._server = None

    def adopt(self) -> None:
        """Take this thread for the loop's from now on."""
        self.thread = threading.get_ident()

    def inherit(self) -> None:
        """Take this thread for the loop's from now on if the loop's thread has ended."""
        if self.thread not in {thread.ident for thread in threading.enumerate()}:
            self.adopt()

    def retire(self) -> None:
        """Serve nothing any more. Requests are left for the next run."""
        self.flag = Flag()
        self._serve = _serve_nothing

    def call(self, function: Callable[[], Any], is_over: Callable[[], bool]) -> bool:
        """Call a function between two steps, on this thread, which is not the loop's: the loop waits meanwhile.

        The loop does not wait forever: a function that fills a queue may wait for a step to empty it. If no boundary
        comes for long, the step under way may wait for this very function: then it is called during the step.

        Args:
          function: what to call; what it raises, this raises.
          is_over: whether there will be no boundary any more; then it is not called.

        Returns:
          Whether it was called between two steps, from its beginning to its end, or not at all.
        """
        visit, begun = _Visit(function), self._timer()
        self._visits.append(visit)
        self.flag.raise_for(Request.TICK)
        while not visit.granted.wait(_PATIENCE_SECS):
            is_stuck = self._timer() - begun > STUCK_SECS
            if (is_stuck or is_over()) and self._decide(visit):
                if is_stuck:
                    visit.pay()
                return not is_stuck
            self.flag.raise_for(Request.TICK)
            self.serve_if_idle()
        if not visit.done.is_set():  # it may have been this thread that served
            visit.pay()
        return not visit.is_alone

    def serve_if_idle(self) -> None:
        """Serve the flag on this thread if the loop has not come to a boundary for a second and no step runs."""
        is_raised = self.flag.is_raised
        is_idle = self._raised.secs(is_raised, self._timer()) >= IDLE_SECS
        if is_raised and is_idle and self.lock.acquire(blocking=False):
            try:
                self.reached()
            finally:
                self.lock.release()

    def _decide(self, visit: _Visit) -> bool:
        """Grant a visit, or withdraw it. Returns whether neither was done before."""
        with self._deciding:
            was_decided, visit.is_decided = visit.is_decided, True
        return not was_decided

    def _receive(self) -> None:
        """Let each of the threads that wait for a boundary use this one, in turn."""
        for visit in [self._visits.popleft() for _ in range(len(self._visits))]:
            if not self._decide(visit):
                continue
            if visit.thread == threading.get_ident():
                visit.granted.set()
                visit.pay()
                continue
            self.lock.lend(visit.thread)
            visit.granted.set()
            visit.is_alone = not visit.done.wait(STUCK_SECS)
            self.lock.take_back()
