"""What the best checkpoint is: the one with the least or the greatest value of a metric."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class Best:
    """A metric, and whether less of it is better."""

    metric: str
    is_least: bool

    @classmethod
    def parse(cls, text: str) -> Best:
        """Read "min NAME" or "max NAME".

        Raises:
          ValueError: it is neither.
        """
        match = re.fullmatch(r"\s*(min|max)\s+([\w/.-]+)\s*", text)
        if not match:
            raise ValueError('expected "min NAME" or "max NAME"')
        return cls(match[2], match[1] == "min")

    def __str__(self) -> str:
        return f"{'min' if self.is_least else 'max'} {self.metric}"

    def badness(self, metrics: Mapping[str, float]) -> float | None:
        """A number that is less for better metrics; None where the metric is missing or NaN."""
        value = metrics.get(self.metric, math.nan)
        return None if math.isnan(value) else value if self.is_least else -value
