"""Successive halving: it says which points of a sweep train on, and to which step. Pure and deterministic.

All points train to the first rung. When each of them is there, the best train to the next one, and the others are out.
A point that has failed is the worst. What a point does after it is out changes nothing.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from trainerd.config.metric_goals import Best


@dataclass(frozen=True)
class PointResult:
    """The result of one point so far.

    Attributes:
      step: the newest step that it has saved.
      at_rungs: the metric at each rung that it has reached; NaN if it has no such metric there.
      best: the metric of its best checkpoint, once it is finished; NaN before, and without the metric.
      is_failed: whether it has failed and is not tried again.
      is_finished: whether it has come to its own end, so that it cannot reach a later rung.
    """

    step: int = 0
    at_rungs: Mapping[int, float] = field(default_factory=dict)
    is_failed: bool = False
    is_finished: bool = False
    best: float = math.nan


@dataclass(frozen=True)
class Halving:
    """The rungs of a sweep.

    Attributes:
      rungs: the steps at which points are compared, each above the one before.
      goal: the metric by which they are compared.
      factor: of so many points, one trains on.
    """

    rungs: tuple[int, ...]
    goal: Best
    factor: int = 3

    def next(self, results: Mapping[str, PointResult]) -> HalvingStep:
        """Return what is to be done now.

        Args:
          results: the points of the sweep, by name.
        """
        contenders, out = sorted(results), dict[str, int]()
        for rung in self.rungs:
            missing = [name for name in contenders if not _is_over(results[name], rung)]
            if missing:
                return HalvingStep(dict.fromkeys(missing, rung), out, contenders)
            ranked = sorted(contenders, key=lambda name: (self._badness(results[name], rung), name))
            sound = [name for name in ranked if math.isfinite(self._badness(results[name], rung))]
            is_last = rung == self.rungs[-1]
            kept = sound[: 1 if is_last else max(1, len(contenders) // self.factor)]
            out |= {name: rung for name in ranked if name not in kept}
            contenders = kept
        return HalvingStep({}, out, contenders, winner=contenders[0] if contenders else None)

    def _badness(self, result: PointResult, rung: int) -> float:
        """Return a number that is smaller for a better point; infinity for one that cannot be compared."""
        badness = self.goal.badness({self.goal.metric: result.at_rungs.get(rung, math.nan)})
        return math.inf if badness is None else badness


@dataclass(frozen=True)
class HalvingStep:
    """The points that train, wait and are out at one moment.

    Attributes:
      targets: the points that train now, each with the step to which it trains.
      out: the points that are out, each with the rung at which it was.
      contenders: the points that are not out.
      winner: the best point at the last rung, once all contenders are there; None before, and if all have failed.
    """

    targets: Mapping[str, int]
    out: Mapping[str, int]
    contenders: Sequence[str]
    winner: str | None = None


def _is_over(result: PointResult, rung: int) -> bool:
    """Return whether there is nothing to wait for at a rung."""
    return rung in result.at_rungs or result.is_failed or result.is_finished
