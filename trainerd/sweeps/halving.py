"""Successive halving: it says which points of a sweep train on, and to which step. Pure and deterministic.

All points train to the first rung. When each of them is there, the best train to the next one, and the others are out.
A point that has failed is the worst. What a point does after a rung is decided changes nothing there.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

from trainerd.config.metric_goals import Best

Rungs = Mapping[int, Mapping[str, float]]  # each rung to the metric of each point that was compared there


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

    def next(self, results: Mapping[str, PointResult], decided: Rungs | None = None) -> HalvingStep:
        """Return what is to be done now.

        Args:
          results: the points of the sweep, by name.
          decided: the metrics by which earlier rungs were decided. They are decided by these again.
        """
        contenders, out, rungs = sorted(results), dict[str, int](), dict(decided or {})
        for rung in self.rungs:
            if rung not in rungs:
                missing = [name for name in contenders if not _is_over(results[name], rung)]
                if missing:
                    return HalvingStep(dict.fromkeys(missing, rung), out, decided=rungs)
                metrics = {name: results[name].at_rungs.get(rung, math.nan) for name in contenders}
                rungs |= {rung: metrics} if self._best(metrics, rung) else {}  # what failed may be trained again
            kept = [name for name in self._best(rungs.get(rung, {}), rung) if name in contenders]
            out |= {name: rung for name in contenders if name not in kept}
            contenders = kept
        return HalvingStep({}, out, winner=contenders[0] if contenders else None, decided=rungs)

    def _best(self, metrics: Mapping[str, float], rung: int) -> list[str]:
        """Return the points that are good enough at a rung, the best first."""
        badness = {name: self.goal.badness({self.goal.metric: value}) for name, value in metrics.items()}
        ranked = sorted((value, name) for name, value in badness.items() if value is not None and math.isfinite(value))
        return [name for _, name in ranked[: 1 if rung == self.rungs[-1] else max(1, len(metrics) // self.factor)]]


@dataclass(frozen=True)
class HalvingStep:
    """The points that train, wait and are out at one moment.

    Attributes:
      targets: the points that train now, each with the step to which it trains.
      out: the points that are out, each with the rung at which it was.
      winner: the best point at the last rung, once all contenders are there; None before, and if all have failed.
      decided: the metrics by which rungs are decided, those of earlier calls included.
    """

    targets: Mapping[str, int]
    out: Mapping[str, int]
    winner: str | None = None
    decided: Rungs = field(default_factory=dict)


def _is_over(result: PointResult, rung: int) -> bool:
    """Return whether there is nothing to wait for at a rung."""
    return rung in result.at_rungs or result.is_failed or result.is_finished
