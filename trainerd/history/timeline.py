"""The checkpoints of a run, each with the facts about it. Needs no TensorFlow, and reads manifests alone."""

from __future__ import annotations

import functools
import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from pathlib import Path
from typing import Any

from trainerd.checkpoints import evaluations
from trainerd.checkpoints import manifest as manifests
from trainerd.checkpoints.catalogue import Catalogue
from trainerd.checkpoints.manifest import MINIMUM, Manifest
from trainerd.config.metric_goals import Best
from trainerd.history.lines import checkpoints_of, lines
from trainerd.rundir.paths import RunDirectory
from trainerd.system import safe_paths
from trainerd.system.durable_files import storage

_read = functools.partial(manifests.sound, checked=False)


class CheckpointMark(StrEnum):
    """The marks that a checkpoint may have."""

    LATEST = "latest"
    BEST = "best"
    PINNED = "pinned"
    RESUMES_HERE = "resumes here"
    LEFT_BEHIND = "left behind"
    MINIMUM = "minimum"
    LOWEST = "lowest so far"
    EARLIER_LINE = "earlier line"
    QUARANTINED = "quarantined"
    DAMAGED = "damaged"
    COPIED = "copied"


# What a checkpoint of an earlier line still is.
_OF_LINES = {CheckpointMark.MINIMUM, CheckpointMark.PINNED, CheckpointMark.DAMAGED}


@dataclass(frozen=True)
class TimelineEntry:
    """One checkpoint.

    Attributes:
      step: its global step.
      path: its prefix, as TensorFlow's readers take it.
      at: when its snapshot was taken, in seconds since 1970 (UTC); None if its manifest is damaged.
      reason: why it was written; empty if its manifest is damaged.
      bytes: the size of its files.
      metrics: the last value of each metric at its boundary, and the metrics of its evaluations.
      measured: the step at which each metric was measured, of those that a step does not return.
      input_bytes: how much of its files is the position of the input; 0 if that is little, or not known.
      marks: what else it is.
      line: the number of the earlier line that it is of; None for the present one.
      minimum: the smoothed loss, if it was kept as a minimum of that; else None.
    """

    step: int
    path: Path
    at: float | None
    reason: str
    bytes: int
    metrics: Mapping[str, float]
    marks: tuple[CheckpointMark, ...]
    line: int | None = None
    minimum: float | None = None
    measured: Mapping[str, int] = field(default_factory=dict)
    input_bytes: int = 0

    def to_json(self) -> dict[str, Any]:
        """Return the entry as JSON's types. JSON has no NaN and no infinity: they become null."""
        metrics = {name: value if math.isfinite(value) else None for name, value in self.metrics.items()}
        return {**vars(self), "path": str(self.path), "metrics": metrics, "marks": list(map(str, self.marks))}


def timeline(rundir: RunDirectory) -> list[TimelineEntry]:
    """Return all checkpoints of a run by their steps, those of earlier lines and those in quarantine too.

    The files of the checkpoints are not verified, nor the checksums of the manifests: 10,000 take a second.

    Raises:
      DataError: a manifest is of another version of trainerd.
      StorageError: the run directory cannot be read.
    """
    return sorted([*_present(rundir), *_of_lines(rundir), *_quarantined(rundir)], key=lambda entry: entry.step)


def present_line(rundir: RunDirectory) -> list[TimelineEntry]:
    """Return the checkpoints from which the run can resume; see `timeline`."""
    return sorted(_present(rundir), key=lambda entry: entry.step)


def best_of(entries: Iterable[TimelineEntry], goal: Best) -> TimelineEntry | None:
    """Return the checkpoint that is best by a goal; of equals the oldest. None if none has a number for its metric."""
    ranked = [(badness, each.step, each) for each in entries if (badness := goal.badness(each.metrics)) is not None]
    return min(ranked, key=lambda one: one[:2])[2] if ranked else None


def configured_best(rundir: RunDirectory) -> Best | None:
    """Return the goal of the best checkpoint, by the config that the newest one was trained with; None if it has
    none."""
    newest = next((found for step in rundir.steps() if (found := _read(rundir.manifest(step))) is not None), None)
    try:
        return Best.parse(newest.fingerprint["config.checkpoint.best"]) if newest is not None else None
    except (KeyError, ValueError):
        return None


def _present(rundir: RunDirectory) -> list[TimelineEntry]:
    catalogue, pinned, evaluated = Catalogue.read(rundir), rundir.pinned(), rundir.evaluated()
    read = {step: _read(rundir.manifest(step)) for step in catalogue.steps}
    sound = {step: manifest for step, manifest in read.items() if manifest is not None}
    resumes_at = next((step for step in catalogue.resume_order if step in sound), None)
    metrics = {
        step: evaluations.figures(rundir, manifest) if step in evaluated else manifest.metrics
        for step, manifest in sound.items()
    }
    best, minima, latest = set(_best(sound, metrics)), _minima(sound.values(), rundir), max(sound, default=None)
    lowest = _lowest_so_far(sound.values(), minima)
    found = []
    for step, manifest in read.items():
        is_mark = {
            CheckpointMark.LATEST: step == latest,
            CheckpointMark.BEST: step in best,
            CheckpointMark.MINIMUM: step in minima,
            CheckpointMark.LOWEST: step == lowest,
            CheckpointMark.PINNED: step in pinned,
            CheckpointMark.RESUMES_HERE: step == resumes_at,
            CheckpointMark.LEFT_BEHIND: resumes_at is not None and step > resumes_at and manifest is not None,
            CheckpointMark.DAMAGED: manifest is None,
        }
        marks = tuple(mark for mark, holds in is_mark.items() if holds)
        found.append(_entry(step, rundir.prefix(step), manifest, marks, metrics.get(step), minima.get(step)))
    return found


def _entry(
    step: int,
    path: Path,
    manifest: Manifest | None,
    marks: tuple[CheckpointMark, ...],
    metrics: Mapping[str, float] | None = None,
    minimum: float | None = None,
) -> TimelineEntry:
    if manifest is None:
        return TimelineEntry(step, path, None, "", 0, {}, marks)
    shown = manifest.metrics if metrics is None else metrics
    measured = {name: at for name, at in manifest.measured.items() if shown.get(name) == manifest.metrics.get(name)}
    found = TimelineEntry(step, path, manifest.at, manifest.reason, manifest.size, shown, marks, minimum=minimum)
    return replace(found, measured=measured)


def _best(found: Mapping[int, Manifest], metrics: Mapping[int, Mapping[str, float]]) -> list[int]:
    """Return the steps of the best checkpoints, by the config that the newest was trained with."""
    config = found[max(found)].fingerprint if found else {}
    try:
        best = Best.parse(config["config.checkpoint.best"])
        count = int(config["config.checkpoint.keep_best"])
    except (KeyError, ValueError):
        return []
    ranked = [(badness, step) for step in sorted(found) if (badness := best.badness(metrics[step])) is not None]
    firsts = dict(sorted(ranked, reverse=True))  # of equals the oldest, as retention
    return [firsts[badness] for badness in sorted(firsts)[:count]]


def _minima(found: Iterable[Manifest], rundir: RunDirectory) -> dict[int, float]:
    """Return the steps of the minima of the loss, with the smoothed loss there.

    Each line of the run has its minima. What an earlier line shares with the present one is a minimum of both.
    """
    manifests = list(found)
    minima = _minima_of(manifests)
    for line in lines(rundir):
        place, shared = checkpoints_of(rundir, line.number), {m.step for m in manifests if m.step <= line.began_at}
        own = [each for step in place.steps() if (each := _read(place.manifest(step))) is not None]
        of_line = _minima_of([*(each for each in manifests if each.step in shared), *own])
        minima |= {step: loss for step, loss in of_line.items() if step in shared}
    return minima


def _minima_of(line: Sequence[Manifest]) -> dict[int, float]:
    """Return the minima of one line. The lowest boundary of a valley was its minimum if the loss has turned up since:
    then it was saved for that reason, or a later checkpoint is of the next valley."""
    present = max(map(_valley, line), default=0)
    over = [each for each in _lowest(line) if each.reason == MINIMUM or _valley(each) < present]
    return {each.step: each.minimum.loss for each in over if each.minimum is not None}


def _lowest(manifests: Iterable[Manifest]) -> Iterable[Manifest]:
    """Return the lowest checkpoint of each valley."""
    lowest: dict[int, Manifest] = {}
    for each in sorted(manifests, key=lambda each: (each.minimum.loss if each.minimum else 0.0, each.step)):
        if each.minimum is not None:
            lowest.setdefault(each.minimum.valley, each)
    return lowest.values()


def _valley(manifest: Manifest) -> int:
    """Return the number of the valley that the run was in."""
    return int(manifest.valleys.get("valley", 0))


def _lowest_so_far(found: Iterable[Manifest], minima: Collection[int]) -> int | None:
    """Return the step of the lowest boundary of the valley from which the loss has not turned up; None if there is
    none."""
    manifests = list(found)
    present = max(map(_valley, manifests), default=0)
    lowest = [each.step for each in _lowest(manifests) if each.minimum and each.minimum.valley == present]
    return next((step for step in lowest if step not in minima), None)


def _of_lines(rundir: RunDirectory) -> list[TimelineEntry]:
    """Return the checkpoints of the earlier lines."""
    return [
        replace(entry, line=line.number, marks=(*(set(entry.marks) & _OF_LINES), CheckpointMark.EARLIER_LINE))
        for line in lines(rundir)
        for entry in _present(checkpoints_of(rundir, line.number))
    ]


def _quarantined(rundir: RunDirectory) -> list[TimelineEntry]:
    """Return the checkpoints in quarantine; in `quarantine/2` and so on are those whose names were taken."""
    with storage(f"read {rundir.quarantine}", missing_ok=True):
        within = [rundir.quarantine / name for name in safe_paths.names(rundir.quarantine) if name.isdecimal()]
        folders = [folder for folder in (rundir.quarantine, *within) if safe_paths.is_folder(folder)]
        inside = [RunDirectory(folder, rundir.basename) for folder in folders]
        return [
            _entry(step, each.prefix(step), _read(each.manifest(step)), (CheckpointMark.QUARANTINED,))
            for each in inside
            for step in each.steps()
        ]
    return []
