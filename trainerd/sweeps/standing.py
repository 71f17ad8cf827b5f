"""The standing of a sweep: step, metric and state of each, and which one is the best."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from trainerd.config import parse as configs
from trainerd.config.metric_goals import Best
from trainerd.errors import UsageError
from trainerd.history.choice import goal as goal_of
from trainerd.history.timeline import TimelineEntry, best_of, present_line
from trainerd.rundir.paths import RunDirectory
from trainerd.rundir.runs import ListedRun, RunReader
from trainerd.sweeps.halving import HalvingStep, PointResult
from trainerd.sweeps.spec import NAME as SPEC
from trainerd.sweeps.sweep import Sweep, SweepPoint, result_of
from trainerd.system import safe_paths
from trainerd.text import counted


@dataclass(frozen=True)
class PointStanding:
    """The standing of one point.

    Attributes:
      name: the number of the point.
      config: its config.
      values: each key that the sweep sets, with its value.
      step: the step that its run has reached.
      metric: the value by which it is compared; None if it has none yet.
      metric_step: the step of that value.
      state: what it does, for a person.
      is_best: whether it is the best of those that are compared.
    """

    name: str
    config: Path
    values: Mapping[str, Any]
    step: int
    metric: float | None
    metric_step: int | None
    state: str
    is_best: bool = False


@dataclass(frozen=True)
class SweepStanding:
    """The standing of all points.

    Attributes:
      sweep: the sweep.
      goal: the metric by which points are compared.
      points: all points, in their order.
      halved: the present step of the successive halving; None if points are compared by their best checkpoints.
    """

    sweep: Sweep
    goal: Best
    points: Sequence[PointStanding]
    halved: HalvingStep | None = None

    @property
    def best(self) -> PointStanding | None:
        """The best point; None if none has the metric, or if the successive halving is not over."""
        return next((each for each in self.points if each.is_best), None)

    def to_json(self) -> dict[str, Any]:
        """Return it as JSON's types."""
        points = [{**vars(each), "config": str(each.config), "values": dict(each.values)} for each in self.points]
        return {"name": self.sweep.name, "folder": str(self.sweep.folder), "goal": str(self.goal), "points": points}


def read_standing(sweep: Sweep, metric: str | None = None) -> SweepStanding:
    """Read the standing of a sweep.

    Args:
      sweep: the sweep.
      metric: by which its points are compared. None: the one by which they are halved, the `best` of their config, or
        the loss.

    Raises:
      ConfigError: the config of a point is wrong.
      StorageError: the files of a run cannot be read.
    """
    points = sweep.points()
    runs = {point.name: RunReader(point.rundir.path).read() for point in points}
    results = {name: result_of(run, sweep.spec) for name, run in runs.items()}
    halved = sweep.halved(results) if metric is None else None
    goal = goal_of(metric) if metric is not None else _goal(sweep, points)
    found = []
    for point in points:
        result = _as_decided(point.name, results[point.name], halved)
        step, value = _compared(runs[point.name], result, goal, is_halved=halved is not None)
        state = _state(point.name, runs[point.name], halved)
        found.append(PointStanding(point.name, point.config, point.values, _step(runs[point.name]), value, step, state))
    best = halved.winner if halved is not None else _best(found, goal)
    marked = [PointStanding(**{**vars(each), "is_best": each.name == best}) for each in found]
    return SweepStanding(sweep, goal, marked, halved)


def is_sweep(folder: Path) -> bool:
    """Return whether a folder is that of a sweep. It may be another user's run directory, with that file planted."""
    return safe_paths.is_file(folder / SPEC)


def best_of_sweep(folder: Path, metric: str | None = None) -> tuple[Path, str]:
    """Return the config of the best point of a sweep, and the metric by which it is the best; see `read_standing`.

    Raises:
      ConfigError: the sweep, or the config of a point, is wrong.
      UsageError: no point is the best yet, or the best one has no checkpoint with the metric left.
      StorageError: the files of a run cannot be read.
    """
    standing = read_standing(Sweep.read(folder), metric)
    checkpoints = {each.name: _checkpoints(each) for each in standing.points}
    name = standing.goal.metric
    if (best := standing.best) is not None:
        if best_of(checkpoints[best.name], standing.goal) is None:
            raise UsageError(f"{best.name} is the best of {folder}, and none of its checkpoints with {name!r} is left.")
        return best.config, str(standing.goal)
    if standing.halved is not None and (targets := standing.halved.targets):
        raise UsageError(
            f"the successive halving of {folder} is not over: {counted(len(targets), 'run')} must reach step "
            f"{max(targets.values()):,}. `--best {name}` compares the checkpoints that are there."
        )
    names = sorted({each for entries in checkpoints.values() for entry in entries for each in entry.metrics})
    if not any(checkpoints.values()):
        raise UsageError(f"no run of {folder} has a checkpoint yet. `trainerd sweep show` has their states.")
    raise UsageError(f"no run of {folder} has a number for {name!r}. Metrics: {', '.join(names) or 'none'}.")


def _checkpoints(point: PointStanding) -> list[TimelineEntry]:
    return present_line(RunDirectory(configs.load(point.config).rundir))


def _goal(sweep: Sweep, points: Sequence[SweepPoint]) -> Best:
    if (asked := sweep.spec.goal()) is not None:
        return asked
    named = configs.load(points[0].config).parsed_best() if points else None
    return named or Best("loss", is_least=True)


def _as_decided(name: str, result: PointResult, halved: HalvingStep | None) -> PointResult:
    """Return a result with the metrics by which its rungs were decided."""
    decided = halved.decided if halved is not None else {}
    there = {rung: metrics[name] for rung, metrics in decided.items() if name in metrics}
    return replace(result, at_rungs={**result.at_rungs, **there})


def _compared(run: ListedRun, result: PointResult, goal: Best, *, is_halved: bool) -> tuple[int | None, float | None]:
    """Return the step and the value by which a point is compared: at its last rung, or of its best checkpoint."""
    if is_halved:
        step = max(result.at_rungs, default=None)
        value = result.at_rungs.get(step, math.nan) if step is not None else math.nan
    else:
        found = best_of(present_line(run.rundir), goal)
        step, value = (found.step, found.metrics[goal.metric]) if found is not None else (None, math.nan)
    return (step, value) if math.isfinite(value) else (None, None)


def _best(points: Sequence[PointStanding], goal: Best) -> str | None:
    sound = [(badness, each.name) for each in points if (badness := _badness(each, goal)) is not None]
    return min(sound)[1] if sound else None


def _badness(point: PointStanding, goal: Best) -> float | None:
    return None if point.metric is None else goal.badness({goal.metric: point.metric})


def _step(run: ListedRun) -> int:
    return run.state.step if run.state is not None else 0


def _state(name: str, run: ListedRun, halved: HalvingStep | None) -> str:
    """Return what a point does, for a person."""
    phase = run.state.phase_now(run.is_running) if run.state is not None else "not started"
    if halved is None or (run.is_running and phase not in ("finished", "failed")):
        return phase
    if name in halved.out:
        failed = ", failed" if phase == "failed" else ""
        return f"out at {halved.out[name]:,}{failed}"
    if name == halved.winner:
        return "the best"
    target = halved.targets.get(name)
    return f"{phase}, to train to {target:,}" if target is not None else "waits for the others"
