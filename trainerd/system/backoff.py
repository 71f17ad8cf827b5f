"""Waits between the tries of something that fails."""

from __future__ import annotations

_MOST_DOUBLINGS = 10


class Backoff:
    """Waits that double from one failure to the next, up to a limit.

    Args:
      first_secs: the wait after the first failure, in seconds.
      most_secs: the longest wait, in seconds.

    Attributes:
      failures: how often it has failed since it last succeeded.
    """

    def __init__(self, first_secs: float = 15.0, most_secs: float = 600.0) -> None:
        self.failures = 0
        self._first_secs = first_secs
        self._most_secs = most_secs

    def failed(self) -> float:
        """Count a failure. Returns the seconds until the next try."""
        wait = self._first_secs * float(2 ** min(self.failures, _MOST_DOUBLINGS))
        self.failures += 1
        return min(self._most_secs, wait)

    def succeeded(self) -> None:
        """Start over."""
        self.failures = 0
