"""What the best checkpoint is: the one with the least or the greatest value of a metric."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from trainerd import text


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
        match = re.fullmatch(r"\s*(min|max)\s+([\w/.-]+)\s*", said)
        if not match:
            raise ValueError('expected "min NAME" or "max NAME"')
        return cls(match[2], match[1] == "min")

    def __str__(self) -> str:
        return f"{'min' if self.is_least else 'max'} {self.metric}"

    def mistake(self, metrics: Iterable[str]) -> str | None:
        """Why there will be no best, when all that the job has are these metrics. None where there may be."""
        missing = text.no_metric(self.metric, metrics)
        return missing and f"{missing} No checkpoint is kept for {str(self)!r}."

    def badness(self, metrics: Mapping[str, float]) -> float | None:
        """A number that is less for better metrics; None where the metric is missing or not finite."""
        value = metrics.get(self.metric, math.nan)
        return None if not math.isfinite(value) else value if self.is_least else -value
