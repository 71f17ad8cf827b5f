"""The rules by which checkpoints are kept or deleted. Pure: it returns verdicts, and the store deletes."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType

from trainerd.checkpoints.manifest import MEMORY, Manifest, Minimum
from trainerd.config.fingerprint import call_of
from trainerd.config.metric_goals import Best

_HOUR = 3600.0
_DAY = 24 * _HOUR
_CALLS = 3  # of `fit`, whose last checkpoints stay: a new start passes over these calls, and restores how they ended


@dataclass(frozen=True)
class Point:
    """The facts that retention knows about one checkpoint.

    They are its step, the seconds trained up to it, its metrics, and the step of the one before it, if that is known.
    If it is the lowest of a valley of the loss so far, they include that minimum. `call` numbers the call of `fit` that
    saved it, from 0. `size` is in bytes. `is_from_memory` says that it was in memory when its process was killed.
    """

    step: int
    trained_secs: float = 0.0
    metrics: Mapping[str, float] = field(default_factory=dict)
    before: int | None = None
    minimum: Minimum | None = None
    call: int = 0
    size: int = 0
    is_from_memory: bool = False


def points_of(
    found: Collection[Manifest], metrics: Mapping[int, Mapping[str, float]] = MappingProxyType({})
) -> list[Point]:
    """Return the facts about checkpoints. The bytes of a file that several of them share are split among them.

    Args:
      found: the checkpoints.
      metrics: those that count for a step, if they are not those of its manifest.
    """
    names = Counter(record.xxh128 for each in found for record in each.files.values())
    return [
        Point(
            each.step,
            each.trained_secs,
            metrics.get(each.step, each.metrics),
            each.before,
            each.minimum,
            call_of(each.fingerprint),
            sum(record.bytes // names[record.xxh128] for record in each.files.values()),
            is_from_memory=each.reason == MEMORY,
        )
        for each in found
    ]


@dataclass(frozen=True)
class Policy:
    """The rules that decide which checkpoints are kept. A checkpoint stays as long as any of them keeps it.

    Attributes:
      keep_last: how many of the newest.
      keep_every_hours: one of every so many hours of training, permanently; 0: none.
      best: the goal by which the best checkpoint is chosen; None: there is none.
      keep_best: how many of the best.
      keep_minima: how many of the minima of the loss.
      keep_hourly: how many of the last hours of training keep their newest checkpoint.
      keep_daily: how many of the last days of training keep their newest checkpoint.
      max_bytes: what all checkpoints may take: `keep_hourly` and `keep_daily` keep fewer if it is more; None: no limit.
    """

    keep_last: int = 5
    keep_every_hours: float = 0.0
    best: Best | None = None
    keep_best: int = 1
    keep_minima: int = 0
    keep_hourly: int = 0
    keep_daily: int = 0
    max_bytes: int | None = None


def deletable(points: Sequence[Point], *, current: int, policy: Policy, pinned: Collection[int] = ()) -> list[int]:
    """Return the steps whose checkpoints may be deleted, oldest first.

    Args:
      points: what has a checkpoint, in any order.
      current: the one that was just published, or resumed from; it always stays. Those after it are from before the
        run went back to an earlier point: they are kept until training passes them, and go then.
      policy: what is kept.
      pinned: the steps that a person pinned.
    """
    left = left_behind(points, current)
    passed = sorted((point for point in points if point.step <= current), key=lambda point: point.step)
    line = [point for point in passed if point.step not in left]
    kept = {current} | set(pinned) | _newest(line, policy) | _spaced(line, policy) | _best(line, policy)
    kept |= lowest_of_valleys(line, policy.keep_minima) | _ends_of_calls(line)
    kept |= _that_fit(points, passed, line, kept, policy)
    return [point.step for point in passed if point.step not in kept]


def left_behind(points: Sequence[Point], current: int) -> set[int]:
    """Return the steps before `current` that are not of its past: the run went back before them, and has passed their
    steps since.

    A checkpoint whose predecessor is unknown counts as of that past: a program's Saver may have written it.
    """
    befores = {point.step: point.before for point in points}
    past, step = {current}, current
    while (before := befores.get(step)) is not None and before not in past:
        past.add(before)
        step = before
    return {other for other, its in befores.items() if step < other < current and other not in past and its is not None}


def lowest_of_valleys(line: Sequence[Point], count: int) -> set[int]:
    """Return the steps of the lowest minima of the loss, one of each valley."""
    lowest: dict[int, tuple[float, int]] = {}
    for point in line:
        if (found := point.minimum) is not None:
            lowest[found.valley] = min(lowest.get(found.valley, (math.inf, 0)), (found.loss, point.step))
    return {step for _, step in sorted(lowest.values())[:count]}


def _newest(line: Sequence[Point], policy: Policy) -> set[int]:
    """Return the newest steps. Those from memory do not count: a process that dies soon after each start would fill the
    places of the checkpoints before."""
    return set([point.step for point in line if not point.is_from_memory][-policy.keep_last :])


def _ends_of_calls(line: Sequence[Point]) -> set[int]:
    """Return the last steps of the newest calls of `fit`. A run of another kind has one call, which is under way."""
    last = {point.call: point.step for point in line}
    return set(sorted(last.values())[-_CALLS - 1 : -1])


def _spaced(line: Sequence[Point], policy: Policy) -> set[int]:
    """Return the steps that are far enough after the last one kept, from the oldest on.

    Training time counts, not the wall clock: it stops while the run is paused, and nobody sets it. A checkpoint that
    this rule keeps once is kept permanently, since no older one comes.
    """
    kept: set[int] = set()
    last = 0.0
    for point in line if policy.keep_every_hours else ():
        if point.trained_secs - last >= policy.keep_every_hours * _HOUR:
            kept.add(point.step)
            last = point.trained_secs
    return kept


def _that_fit(
    points: Sequence[Point], passed: Sequence[Point], line: Sequence[Point], kept: set[int], policy: Policy
) -> set[int]:
    """Return the newest steps of the last hours and days of training that fit beside those that are kept anyway."""
    wanted = _newest_of_each(line, _HOUR, policy.keep_hourly) | _newest_of_each(line, _DAY, policy.keep_daily)
    if policy.max_bytes is None:
        return wanted
    others = {point.step for point in passed} - kept
    left = policy.max_bytes - sum(point.size for point in points if point.step not in others)
    fitting = set()
    for point in reversed(line):
        if point.step in wanted - kept and (left := left - point.size) >= 0:
            fitting.add(point.step)
    return fitting


def _newest_of_each(line: Sequence[Point], secs: float, count: int) -> set[int]:
    """Return the newest step of each of the last spans of training that have one.

    Args:
      line: the points, oldest first.
      secs: how long a span is. The first one begins where the training did.
      count: how many spans.
    """
    newest = {point.trained_secs // secs: point.step for point in line}
    return {newest[span] for span in sorted(newest)[-count:]} if count else set()


def _best(line: Sequence[Point], policy: Policy) -> set[int]:
    """Return the steps of the best checkpoints; of equals, only the oldest.

    The metrics of an evaluation stay in the manifests until the next evaluation.
    """
    firsts: dict[float, int] = {}
    for point in line if policy.best else ():
        if policy.best and (value := policy.best.badness(point.metrics)) is not None:
            firsts.setdefault(value, point.step)
    return {firsts[value] for value in sorted(firsts)[: policy.keep_best]}
