"""Steps per second, over the last seconds. Pure: time is passed in."""

from __future__ import annotations

from collections import deque


class StepRate:
    """The rate over a sliding window.

    Args:
      window: how far back it looks, in seconds.
    """

    def __init__(self, window: float = 10.0) -> None:
        self._window = window
        self._marks: deque[tuple[int, float]] = deque()

    def add(self, step: int, now: float) -> None:
        """Record that `step` was reached at `now`, in seconds."""
        self._marks.append((step, now))
        while len(self._marks) > 2 and self._marks[1][1] <= now - self._window:
            self._marks.popleft()

    def per_sec(self) -> float | None:
        """Steps per second; None before there are two moments."""
        if len(self._marks) < 2 or self._marks[-1][1] <= self._marks[0][1]:
            return None
        (first, then), (last, now) = self._marks[0], self._marks[-1]
        return (last - first) / (now - then)
