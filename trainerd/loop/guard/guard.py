"""Serves a pause or a save while the loop's thread does something that takes long, or hangs.

Before an evaluation, before summaries and before a session's own work between two steps, the state is whole, and a
snapshot of it costs a millisecond. A pause that comes meanwhile is served from that snapshot at once. So is a pause
that comes while a step calls Python and does not return.
"""

from __future__ import annotations

import contextlib
import logging
import threading
import time
from collections.abc import Callable, Iterator
from typing import Protocol

from trainerd.errors import TrainerdError
from trainerd.loop.boundary_state import BoundaryState
from trainerd.loop.flag import Flag, Request
from trainerd.loop.outcome import Outcome

log = logging.getLogger(__name__)

POLL_SECS = 0.05  # while a request waits that cannot be served yet
IDLE_SECS = 1.0  # while there is none
_SERVED = (Request.PAUSE, Request.SAVE)


class Server(Protocol):
    """Serves requests from a held state."""

    @property
    def is_saving(self) -> bool:
        """True if a checkpoint is being written. Another one can begin after it."""

    def save_held(self, held: BoundaryState) -> None:
        """Begin to make a checkpoint, for the commands that asked for one."""

    def pause_held(self, held: BoundaryState) -> Outcome:
        """Make a checkpoint, and wait until it is durable.

        Raises:
          TrainerdError: it could not be made.
        """


class LoopGuard:
    """Serves the requests that come while the loop's thread holds a state.

    Args:
      flag: what the requests raise.
      server: makes the checkpoints.
      end: ends the process after a pause; does not return.
      fail: ends the process if a step never ends and the pause could not be saved; does not return.
      timer: seconds on a clock that is never set.
    """

    def __init__(
        self,
        flag: Flag,
        server: Server,
        end: Callable[[Outcome], None],
        fail: Callable[[BaseException], None],
        *,
        timer: Callable[[], float] = time.monotonic,
    ) -> None:
        self._flag = flag
        self._server = server
        self._end = end
        self._fail = fail
        self._timer = timer
        self._held: BoundaryState | None = None
        self._asked_at: float | None = None  # for a pause that was not served yet
        self._lock = threading.Lock()
        self._closed = threading.Event()
        self._thread = threading.Thread(target=self._run, name="trainerd-guard", daemon=True)

    def __enter__(self) -> LoopGuard:
        self._thread.start()
        return self

    def __exit__(self, *exc: object) -> None:
        with self._lock:
            self._closed.set()

    @contextlib.contextmanager
    def holding(self, held: BoundaryState) -> Iterator[None]:
        """Serve requests from this state while the block runs.

        If a pause is served, the process ends within the block.
        """
        with self._lock:
            self._held = held
        try:
            yield
        finally:
            with self._lock:
                self._held = None

    def serve(self) -> bool:
        """Serve the requests that can be served. Returns whether another one waits."""
        with self._lock:
            held = self._held
            if not self._flag.wants(Request.PAUSE):
                self._asked_at = None
            elif self._asked_at is None:
                self._asked_at = self._timer()
            if held is not None and not self._closed.is_set():
                asked_at = self._asked_at if held.paused_at is None else held.paused_at
                is_long = asked_at is not None and self._timer() - asked_at >= held.patience
                if is_long and (held.paused_at is not None or self._flag.withdraw(Request.PAUSE)):
                    self._pause(held)
                elif self._can_save(held) and self._flag.withdraw(Request.SAVE):
                    self._server.save_held(held)
        return any(map(self._flag.wants, _SERVED))

    def _can_save(self, held: BoundaryState) -> bool:
        return not (held.patience or self._server.is_saving)

    def _pause(self, held: BoundaryState) -> None:
        """Pause and end the process. If that fails, the loop pauses at its next boundary."""
        try:
            outcome = self._server.pause_held(held)
        except Exception as error:
            is_ours = isinstance(error, TrainerdError)
            text = "%s The pause waits until %s ends."
            log.error(text, error, held.what, extra={"event": "save-failed"}, exc_info=not is_ours)
            if held.patience:  # of a step that does not end
                self._fail(error)
            self._held = None
            self._flag.raise_for(Request.PAUSE)
            return
        self._end(outcome)

    def _run(self) -> None:
        while not self._closed.is_set():
            try:
                self._flag.wait_for(_SERVED, IDLE_SECS)
                waits = self.serve()
            except Exception:
                log.exception("an error of trainerd's own, in what serves a pause")  # the loop serves it, then
                waits = True
            if waits:
                self._closed.wait(POLL_SECS)
