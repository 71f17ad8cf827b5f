"""A lock that its owner can lend."""

from __future__ import annotations

import threading
from types import TracebackType


class Lendable:
    """As `threading.RLock`, but its owner can have another thread pass while it holds it."""

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._borrower: int | None = None
        self._taken = threading.local()

    def acquire(self, blocking: bool = True) -> bool:
        """See `threading.RLock.acquire`."""
        is_real = threading.get_ident() != self._borrower
        if is_real and not self._lock.acquire(blocking):
            return False
        self._stack.append(is_real)
        return True

    def release(self) -> None:
        """See `threading.RLock.release`."""
        if self._stack.pop():
            self._lock.release()

    def lend(self, thread: int | None) -> None:
        """Let this thread pass from now on, or none any more. For who holds the lock."""
        self._borrower = thread

    @property
    def _stack(self) -> list[bool]:
        """Of this thread: whether each `acquire` took the lock, and did not pass for having it lent."""
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
