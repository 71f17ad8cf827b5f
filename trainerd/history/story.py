"""The story of a run: its loss over the steps, with what happened at which of them."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

from trainerd.checkpoints import catalogue
from trainerd.checkpoints.lineage import BACK, Change
from trainerd.history.curves import Curve, read_curve
from trainerd.history.lines import Line, lines
from trainerd.history.timeline import CheckpointMark, TimelineEntry, timeline
from trainerd.rundir import run_events
from trainerd.rundir.paths import RunDirectory
from trainerd.rundir.run_events import Event
from trainerd.text import counted

POINTS = 20.0  # with which a curve is smoothed, by default


class MomentKind(StrEnum):
    """The kinds of moments in the life of a run."""

    CHECKPOINT = "checkpoint"
    MINIMUM = "minimum"
    BEST = "best"
    EVALUATION = "evaluation"
    PAUSE = "pause"
    CRASH = "crash"
    ROLLBACK = "rollback"
    CHANGE = "change"


_CRASHES = (run_events.EventKind.KILL, run_events.EventKind.FAIL)


@dataclass(frozen=True)
class StoryMoment:
    """Something that happened at a step.

    Attributes:
      kind: what.
      step: where.
      said: more of it, for a person.
    """

    kind: MomentKind
    step: int
    said: str = ""


@dataclass(frozen=True)
class Story:
    """All that a plot of a run shows.

    Attributes:
      tag: the metric.
      curve: its points.
      smoothed: its smoothed values, one for each point.
      moments: what happened, by step.
      left: steps and smoothed values of each part that the run has gone back from.
    """

    tag: str
    curve: Curve
    smoothed: list[float]
    moments: list[StoryMoment]
    left: list[list[tuple[int, float]]] = field(default_factory=list)

    def steps_of(self, kind: MomentKind) -> list[int]:
        """Return the steps at which something of this kind happened."""
        return [moment.step for moment in self.moments if moment.kind is kind]


def story_of(rundir: RunDirectory, tag: str = "loss", points: float = POINTS) -> Story:
    """Read the story of a run.

    Args:
      rundir: the run directory.
      tag: the metric whose curve is shown.
      points: the time constant of the smoothing, in points of the curve.

    Raises:
      StorageError: it cannot be read.
    """
    curve = read_curve(rundir, tag)
    moments = moments_of(rundir, timeline(rundir), curve)
    left = [
        [
            (step, value)
            for step, value in zip(part.curve.steps, part.curve.smoothed(points), strict=True)
            if step > part.step
        ]
        for part in curve.left
    ]
    return Story(tag, curve, curve.smoothed(points), moments, left)


def moments_of(rundir: RunDirectory, entries: Iterable[TimelineEntry], curve: Curve) -> list[StoryMoment]:
    """Return everything that happened to a run, by step.

    Args:
      rundir: the run directory.
      entries: its timeline.
      curve: a curve of it.

    Raises:
      StorageError: it cannot be read.
    """
    moments = [moment for entry in entries if entry.line is None for moment in _of_checkpoint(entry)]
    moments += [StoryMoment(MomentKind.EVALUATION, step) for step in sorted(curve.evaluated | rundir.evaluated())]
    lineage = _lineage(rundir)
    moments += [StoryMoment(MomentKind.CHANGE, change.step, str(change).partition(": ")[2]) for change in lineage]
    turned_back = {change.step for change in lineage if change.kind == BACK}
    moments += [_rollback(line) for line in lines(rundir)]
    events = run_events.read(rundir)
    moments += _of_events(events)
    noted_since = events[0].at if events else math.inf
    moments += [
        _crashed(begin.step, begin.passed)
        for begin in curve.begins
        if begin.at < noted_since
        and begin.passed > begin.step
        and not begin.went_back
        and begin.step not in turned_back
    ]
    return sorted(dict.fromkeys(moments), key=lambda moment: moment.step)


def _of_checkpoint(entry: TimelineEntry) -> list[StoryMoment]:
    if CheckpointMark.QUARANTINED in entry.marks or CheckpointMark.DAMAGED in entry.marks:
        return []
    found = [StoryMoment(MomentKind.CHECKPOINT, entry.step, entry.reason)]
    if entry.minimum is not None:
        found.append(StoryMoment(MomentKind.MINIMUM, entry.step, f"loss {entry.minimum:.4g}"))
    if CheckpointMark.BEST in entry.marks:
        found.append(StoryMoment(MomentKind.BEST, entry.step))
    if entry.reason == "pause":
        found.append(StoryMoment(MomentKind.PAUSE, entry.step))  # of a run that noted no events
    return found


def _lineage(rundir: RunDirectory) -> Sequence[Change]:
    """Return the changes made to the run, by its newest checkpoint."""
    newest = catalogue.newest(rundir)
    return newest.lineage if newest is not None else ()


def _rollback(line: Line) -> StoryMoment:
    step = line.began_at if line.target is None else line.target
    onto = f" of line {line.target_line}" if line.target_line is not None else ""
    return StoryMoment(MomentKind.ROLLBACK, step, f"from step {line.ended_at} to step {step}{onto}")


def _of_events(events: Sequence[Event]) -> list[StoryMoment]:
    """Return the pauses, and where the run resumed after each crash, of steps that it has not gone back from since."""
    found: list[StoryMoment] = []
    crash: Event | None = None
    for event in events:
        step = event.step or 0
        if event.kind is run_events.EventKind.PAUSE:
            found.append(StoryMoment(MomentKind.PAUSE, step))
        elif event.kind in _CRASHES:
            crash = event
        elif event.kind is run_events.EventKind.RESUME and crash is not None:
            found.append(_crashed(step, crash.step or 0))
            crash = None
        elif event.kind is run_events.EventKind.ROLLBACK:
            found = [moment for moment in found if moment.step <= step]
    return found if crash is None else [*found, StoryMoment(MomentKind.CRASH, crash.step or 0, crash.said)]


def _crashed(resumed: int, passed: int) -> StoryMoment:
    return StoryMoment(MomentKind.CRASH, resumed, f"lost: {counted(max(0, passed - resumed), 'step')}")
