"""Goals for a metric: the target, which ends a run, and the best, whose checkpoint is kept."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from trainerd import text

_NAME = r"([^\s<>=](?:[^\n<>=]*[^\s<>=])?)"  # may contain spaces: Keras accepts any name for a metric


@dataclass(frozen=True)
class MetricTarget:
    """A metric's value at which training ends."""

    metric: str
    at_least: bool
    value: float

    @classmethod
    def parse(cls, said: str) -> MetricTarget:
        """Read "NAME >= NUMBER" or "NAME <= NUMBER".

        Raises:
          ValueError: it is neither.
        """
        match = re.fullmatch(rf"\s*{_NAME}\s*(>=|<=)\s*(\S+)\s*", said)
        if not match:
            raise ValueError('expected "NAME >= NUMBER" or "NAME <= NUMBER"')
        value = float(match[3])
        if math.isnan(value):
            raise ValueError(f"{value} is not a number to compare with")
        return cls(match[1], match[2] == ">=", value)

    def __str__(self) -> str:
        return f"{self.metric} {'>=' if self.at_least else '<='} {self.value:g}"

    def mistake(self, metrics: Iterable[str]) -> str | None:
        """Return why it can never be met, if these are all metrics of the job. None if it can."""
        missing = text.no_metric(self.metric, metrics)
        return missing and f"{missing} {str(self)!r} is never reached."

    def is_met_by(self, metrics: dict[str, float]) -> bool:
        """Return whether these metrics reach it."""
        if self.metric not in metrics:
            return False
        value = metrics[self.metric]
        return value >= self.value if self.at_least else value <= self.value


@dataclass(frozen=True)
class Best:
    """A metric, and whether less of it is better."""

    metric: str
    is_least: bool

    @classmethod
    def parse(cls, said: str) -> Best:
        """Read "min NAME" or "max NAME".

        Raises:
          ValueError: it is neither.
        """
        match = re.fullmatch(rf"\s*(min|max)\s+{_NAME}\s*", said)
        if not match:
            raise ValueError('expected "min NAME" or "max NAME"')
        return cls(match[2], match[1] == "min")

    def __str__(self) -> str:
        return f"{'min' if self.is_least else 'max'} {self.metric}"

    def mistake(self, metrics: Iterable[str]) -> str | None:
        """Return why there can be no best, if these are all metrics of the job. None if there can."""
        missing = text.no_metric(self.metric, metrics)
        return missing and f"{missing} No checkpoint is kept for {str(self)!r}."

    def badness(self, metrics: Mapping[str, float]) -> float | None:
        """Return a number that is smaller for better metrics; None if the metric is missing or not finite."""
        value = metrics.get(self.metric, math.nan)
        return None if not math.isfinite(value) else value if self.is_least else -value
