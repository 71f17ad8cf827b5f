"""Finds the checkpoint that a person means by a step, `best` or `minimum`."""

from __future__ import annotations

from collections.abc import Sequence

from trainerd.config.metric_goals import Best
from trainerd.errors import UsageError
from trainerd.history.lines import checkpoints_of
from trainerd.history.timeline import CheckpointMark, TimelineEntry, best_of, configured_best, timeline
from trainerd.rundir.paths import RunDirectory

BEST, MINIMUM = "best", "minimum"
_DIGITS = 19  # no step has so many


def choose(
    rundir: RunDirectory, where: str, metric: str | None = None, line: int | None = None, best: Best | None = None
) -> int:
    """Return the step of a checkpoint.

    Args:
      rundir: the run directory.
      where: a step, `best` or `minimum`.
      metric: for `best`: a metric's name; less is better unless the name says otherwise; or "min NAME" or
        "max NAME". None for the config's `best`.
      line: an earlier line of the run. None: the present one.
      best: that of the config as it is now. None: that of the newest checkpoint.

    Raises:
      UsageError: it is none of these, or there is no such checkpoint.
    """
    if metric is not None and where != BEST:
        raise UsageError(f"--metric goes with `best`, and {where!r} is given.")
    if where.isascii() and where.isdigit() and len(where) < _DIGITS:
        return int(where)
    if where not in (BEST, MINIMUM):
        raise UsageError(f"expected a step, `best` or `minimum`, got {where!r}.")
    place = rundir if line is None else checkpoints_of(rundir, line)
    entries = [entry for entry in timeline(place) if entry.line is None and not _is_unusable(entry)]
    if not entries:
        raise UsageError(f"{place.path} has no checkpoints yet.")
    if where == MINIMUM:
        found = _minimum(entries)
        if found is None:
            raise UsageError(
                "no checkpoint of this run is a minimum of the loss. Name a step: `trainerd checkpoints` shows them."
            )
        return found.step
    wanted = goal(metric) if metric is not None else best or configured_best(place)
    if wanted is None:
        raise UsageError("the config names no `best`. Name a metric with --metric.")
    found = best_of(entries, wanted)
    if found is None:
        names = sorted({name for entry in entries for name in entry.metrics})
        raise UsageError(f"no checkpoint has a number for {wanted.metric!r}. Metrics: {', '.join(names) or 'none'}.")
    return found.step


def goal(said: str) -> Best:
    """Return the goal that a person names for `--metric`: "min NAME", "max NAME", or a name alone.

    More is better if the name ends in one of the field's words for that; else less is better.
    """
    try:
        return Best.parse(said)
    except ValueError:
        return Best(said, is_least=not said.lower().endswith(_MORE_IS_BETTER))


_MORE_IS_BETTER = ("accuracy", "acc", "auc", "precision", "recall", "f1", "f1_score", "iou", "bleu", "reward", "map")


def _is_unusable(entry: TimelineEntry) -> bool:
    return CheckpointMark.DAMAGED in entry.marks or CheckpointMark.QUARANTINED in entry.marks


def _minimum(entries: Sequence[TimelineEntry]) -> TimelineEntry | None:
    """Return the lowest of the minima; without any the lowest so far, where the loss has not turned up yet."""
    found = [(entry.minimum, entry.step, entry) for entry in entries if entry.minimum is not None]
    so_far = next((entry for entry in entries if CheckpointMark.LOWEST in entry.marks), None)
    return min(found, key=lambda one: one[:2])[2] if found else so_far
