"""Boundaries of a loop that is the user's own: what is due is done right after a step, on the loop's thread."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from typing import Any

from trainerd.supervisor.flag import Flag, Request

IDLE_SECS = 1.0
STUCK_SECS = 10.0


class Boundary:
    """Serves the flag between two steps.

    The thread that it is made on is the loop's. Where that thread does something else for a second while the flag is
    raised, whoever asks serves it there and then: between two steps it is as good a time as any.

    Args:
      flag: what is served.
      serve: called with the requests, at a boundary.
      timer: seconds on a clock that is never set.

    Attributes:
      lock: held while a step runs and while the flag is served.
      thread: the loop's, by its identity.
      is_held: whether the loop's thread is in the middle of a step, whatever sessions it runs.
    """

    def __init__(
        self, flag: Flag, serve: Callable[[set[Request]], None], *, timer: Callable[[], float] = time.monotonic
    ) -> None:
        self.flag = flag
        self.lock = threading.RLock()
        self.thread = threading.get_ident()
        self._serve = serve
        self._timer = timer
        self.is_held = False
        self._server: int | None = None  # the thread that serves the flag just now
        self._raised_at: float | None = None
        self._calls: deque[tuple[Callable[[], Any], Future[Any]]] = deque()

    @property
    def is_mine(self) -> bool:
        """Whether this is the loop's thread, in the loop: not in a service that it runs at a boundary, or in a step."""
        return not self.is_held and threading.get_ident() == self.thread != self._server

    def reached(self) -> None:
        """The loop is between two steps, and the flag is raised."""
        with self.lock:
            if self._server is not None:
                return
            self._server = threading.get_ident()
            self._raised_at = None
            try:
                self._serve(self.flag.take())
                self._call_all()
            finally:
                self._server = None

    def call(self, function: Callable[[], Any], is_over: Callable[[], bool]) -> None:
        """Have a function called at the next boundary, and wait until it was. For other threads than the loop's.

        Where there is none for long, the step that is under way may wait for this very function, to fill a queue: then
        it is called at once, on this thread.

        Args:
          function: what to call; what it raises, this raises.
          is_over: whether there will be no boundary any more; then it is not called.
        """
        future: Future[Any] = Future()
        self._calls.append((function, future))
        begun = self._timer()
        while not future.done():
            if self._timer() - begun > STUCK_SECS and future.cancel():
                function()
                return
            self.flag.raise_for(Request.TICK)
            try:
                future.result(timeout=0.1)
            except TimeoutError:
                if future.done():
                    raise
                if is_over() and future.cancel():
                    return
                self.serve_if_idle()
        future.result()

    def serve_if_idle(self) -> None:
        """Serve the flag on this thread, where the loop has not come by for a second and no step runs."""
        if not self.flag.is_raised:
            self._raised_at = None
            return
        if self._raised_at is None:
            self._raised_at = self._timer()
        if self._timer() - self._raised_at >= IDLE_SECS and self.lock.acquire(blocking=False):
            try:
                self.reached()
            finally:
                self.lock.release()

    def _call_all(self) -> None:
        waiting: Sequence[Any] = [self._calls.popleft() for _ in range(len(self._calls))]
        for function, future in waiting:
            if not future.set_running_or_notify_cancel():
                continue
            try:
                future.set_result(function())
            except BaseException as error:  # the thread that waits for it raises it
                future.set_exception(error)
