"""The trend of a quantity: a straight line through its last values, if they lie along one. Pure."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

WINDOW_SECS = 6 * 3600.0
LEAST_SAMPLES = 10
_ALONG_A_LINE = 0.9  # the least share of the variance that the line explains
_STILL = 0.5  # the least rate of the later half, as a share of the whole's: else it has ended


class Trend:
    """Values over time, by least squares.

    Args:
      window_secs: how far back values count.
    """

    def __init__(self, window_secs: float = WINDOW_SECS) -> None:
        self._window_secs = window_secs
        self._values: deque[tuple[float, float]] = deque()

    def add(self, now: float, value: float) -> None:
        """Take a value.

        Args:
          now: seconds on a clock that is never set.
          value: the value now.
        """
        self._values.append((now, value))
        while now - self._values[0][0] > self._window_secs:
            self._values.popleft()

    @property
    def secs(self) -> float:
        """The time between the first value and the last, in seconds."""
        return self._values[-1][0] - self._values[0][0] if self._values else 0.0

    def per_sec(self) -> float | None:
        """Return the rate of change; None if there is no trend, or not enough is known."""
        values = list(self._values)
        if len(values) < LEAST_SAMPLES:
            return None
        rate, explained = _line(values)
        later, _ = _line(values[len(values) // 2 :])
        return rate if explained >= _ALONG_A_LINE and later * rate >= _STILL * rate**2 else None

    def growth(self) -> float:
        """Return the last value less the first, as a share of the first."""
        first, last = self._values[0][1], self._values[-1][1]
        return (last - first) / first if first else 0.0


def _line(values: Sequence[tuple[float, float]]) -> tuple[float, float]:
    """Return the slope of the line through values, and the share of their variance that it explains."""
    mean_at = sum(at for at, _ in values) / len(values)
    mean = sum(value for _, value in values) / len(values)
    of_time = sum((at - mean_at) ** 2 for at, _ in values)
    of_values = sum((value - mean) ** 2 for _, value in values)
    of_both = sum((at - mean_at) * (value - mean) for at, value in values)
    if not of_time or not of_values:
        return 0.0, 0.0
    return of_both / of_time, of_both**2 / (of_time * of_values)
