"""A lock that its owner can lend."""

from __future__ import annotations

import threading
from types import TracebackType


class HandoffLock:
    """A `threading.RLock` whose owner can let another thread pass while it holds the lock."""

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._borrower: int | None = None
        self._passed = 0  # how often the borrower has, and has not released it since
        self._change = threading.Condition()
        self._taken = threading.local()

    def acquire(self, blocking: bool = True, timeout: float = -1) -> bool:
        """See `threading.RLock.acquire`."""
        with self._change:
            passes = threading.get_ident() == self._borrower or self._stack[-1:] == [False]
            self._passed += passes
        if not passes and not self._lock.acquire(blocking, timeout):
            return False
        self._stack.append(not passes)
        return True

    def release(self) -> None:
        """See `threading.RLock.release`."""
        if self._stack.pop():
            self._lock.release()
            return
        with self._change:
            self._passed -= 1
            self._change.notify_all()

    def lend(self, thread: int) -> None:
        """Let this thread pass from now on. Called by the owner."""
        self._borrower = thread

    def take_back(self) -> None:
        """Let no thread pass any more, and wait until the one that has passed releases the lock."""
        with self._change:
            self._borrower = None
            self._change.wait_for(lambda: not self._passed)

    @property
    def _stack(self) -> list[bool]:
        """For each `acquire` of this thread: whether it took the lock, or passed because the lock was lent."""
        if not hasattr(self._taken, "stack"):
            self._taken.stack = []
        found: list[bool] = self._taken.stack
        return found

    def __enter__(self) -> None:
        self.acquire()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.release()
