"""Sparklines: the last minutes of each metric as a row of bars."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Mapping

WINDOW_SECS = 300.0
_BARS, _WIDTH = "▁▂▃▄▅▆▇█", 30
_MOST = 50  # metrics that are kept


class MetricHistory:
    """Keeps the values of the last minutes."""

    def __init__(self) -> None:
        self._values: dict[str, deque[tuple[float, float]]] = {}

    def add(self, now: float, metrics: Mapping[str, float]) -> None:
        """Add the values at a time, in seconds on a clock that is never set; one for each column is enough."""
        for name, value in [*metrics.items()][:_MOST]:
            kept = self._values.setdefault(name, deque(maxlen=4 * _WIDTH))
            if math.isfinite(value) and (not kept or now - kept[-1][0] >= WINDOW_SECS / _WIDTH / 4):
                kept.append((now, value))

    def sparkline(self, name: str, now: float) -> str:
        """Return the last minutes of a metric, the newest at the right; empty while there are too few values."""
        columns: list[list[float]] = [[] for _ in range(_WIDTH)]
        kept = [(now - at, value) for at, value in self._values.get(name, ()) if now - at < WINDOW_SECS]
        for age, value in kept:  # the first is the oldest
            columns[_WIDTH - 1 - int(age / (kept[0][0] + 1.0) * _WIDTH)].append(value)
        means = [sum(column) / len(column) for column in columns if column]
        if len(means) < 3:
            return ""
        low, high = min(means), max(means)
        return "".join(_BARS[int((mean - low) / ((high - low) or 1.0) * (len(_BARS) - 1))] for mean in means)
