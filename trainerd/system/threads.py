"""Threads: one that does submitted work in order, and one that calls a function periodically."""

from __future__ import annotations

import contextlib
import logging
import queue
import threading
from collections.abc import Callable, Iterator

log = logging.getLogger(__name__)

Work = Callable[[], None]


class Background:
    """Does slow work on a thread of its own. The queue is bounded.

    If work comes faster than it is done, `submit` waits for a while: a slow disk slows the caller down, and nothing is
    lost. If the queue stays full, the disk hangs, and work is refused until some gets done: a curve may have a gap, but
    training must continue. The thread is a daemon thread, so that it never keeps the process from ending.

    Args:
      name: the thread's.
      bound: the length of the queue.
      patience: seconds for which `submit` waits for room.
    """

    def __init__(self, name: str, *, bound: int = 1000, patience: float = 2.0) -> None:
        self._name = name
        self._patience = patience
        self._queue: queue.Queue[Work | None] = queue.Queue(bound)
        self._errors: queue.SimpleQueue[Exception] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None
        self._is_full = False

    def submit(self, work: Work) -> bool:
        """Do this after all that was submitted before. Returns False if there is no room for it."""
        if self._thread is None:
            self._thread = threading.Thread(target=self._work, name=self._name, daemon=True)
            self._thread.start()
        return self._put(work)

    def wait(self, seconds: float) -> bool:
        """Wait until all submitted work is done. Returns whether it is."""
        done = threading.Event()
        return self.submit(done.set) and done.wait(seconds)

    def close(self, seconds: float) -> bool:
        """Wait until all work is done, and end the thread. Returns False if that took too long."""
        if self._thread is None:
            return True
        if not self._put(None):
            return False
        self._thread.join(seconds)
        return not self._thread.is_alive()

    def raise_first_error(self) -> None:
        """Raise the first error since the last call; later errors are most often its consequences."""
        errors = []
        while not self._errors.empty():
            errors.append(self._errors.get())
        if errors:
            raise errors[0]

    def _put(self, work: Work | None) -> bool:
        """Wait for room, but only once until there was some again: each point of a curve must not wait."""
        try:
            self._queue.put(work, block=not self._is_full, timeout=self._patience)
        except queue.Full:
            self._is_full = True
            return False
        self._is_full = False
        return True

    def _work(self) -> None:
        while (work := self._queue.get()) is not None:
            try:
                work()
            except Exception as error:
                if self._errors.empty():
                    self._errors.put(error)
            del work  # it may hold weights, and the next may be long in coming


@contextlib.contextmanager
def called_every(
    seconds: float,
    function: Callable[[], float | None],
    *,
    name: str,
    wake: threading.Event | None = None,
    patience: float | None = None,
) -> Iterator[None]:
    """Call a function again and again, on a thread of its own, while the block runs.

    Args:
      seconds: between two calls.
      function: may return a shorter time until the next call. Its errors are logged.
      name: of the thread.
      wake: when it is set, the next call comes at once.
      patience: how many seconds the end of the block waits for a call that is under way; None: until it has returned.
    """
    wake = wake or threading.Event()
    is_over = False

    def run() -> None:
        wait = seconds
        while True:
            wake.wait(wait)
            wake.clear()
            if is_over:
                return
            wait = seconds
            try:
                wait = function() or seconds
            except Exception:
                log.exception("%s failed", name)

    thread = threading.Thread(target=run, name=f"trainerd-{name}", daemon=True)
    thread.start()
    try:
        yield
    finally:
        is_over = True
        wake.set()
        thread.join(patience)
