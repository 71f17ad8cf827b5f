"""The checkpoints of a run, each with what there is to say of it. Needs no TensorFlow, and reads manifests alone."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from pathlib import Path
from typing import Any

from trainerd.checkpoints import manifest as manifests
from trainerd.checkpoints.catalogue import Catalogue
from trainerd.checkpoints.manifest import DamagedError, Manifest
from trainerd.config.metric_goals import Best
from trainerd.history.lines import checkpoints_of, lines
from trainerd.rundir.paths import RunDirectory
from trainerd.system.durable_files import storage


class Mark(StrEnum):
    """What a checkpoint is, beside being one."""

    LATEST = "latest"
    BEST = "best"
    PINNED = "pinned"
    RESUMES_HERE = "resumes here"
    LEFT_BEHIND = "left behind"
    MINIMUM = "minimum"
    EARLIER_LINE = "earlier line"
    QUARANTINED = "quarantined"
    DAMAGED = "damaged"


@dataclass(frozen=True)
class Entry:
    """One checkpoint.

    Attributes:
      step: its global step.
      path: its prefix, as TensorFlow's readers take it.
      at: when its snapshot was taken, in seconds since 1970 (UTC); None if its manifest is damaged.
      reason: why it was written; empty if its manifest is damaged.
      bytes: the size of its files.
      metrics: the last value of each metric at its boundary.
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
    marks: tuple[Mark, ...]
    line: int | None = None
    minimum: float | None = None

    def to_json(self) -> dict[str, Any]:
        """The entry as JSON's types. JSON has no NaN and no infinity: they become null."""
        metrics = {name: value if math.isfinite(value) else None for name, value in self.metrics.items()}
        return {**vars(self), "path": str(self.path), "metrics": metrics, "marks": list(map(str, self.marks))}


def timeline(rundir: RunDirectory) -> list[Entry]:
    """All checkpoints of a run by their steps, those of earlier lines and those in quarantine too.

    The files of the checkpoints are not verified, nor the checksums of the manifests: 10,000 take a second.

    Raises:
      DataError: a manifest is of another version of trainerd.
      StorageError: the run directory cannot be read.
    """
    catalogue, pinned = Catalogue.read(rundir), rundir.pinned()
    read = {step: _read(rundir.manifest(step)) for step in catalogue.steps}
    resumes_at = next((step for step in catalogue.resume_order if read[step] is not None), None)
    latest = next((step for step in catalogue.steps if read[step] is not None), None)
    best = set(_best(each for each in read.values() if each is not None))
    found = []
    for step, manifest in read.items():
        is_mark = {
            Mark.LATEST: step == latest,
            Mark.BEST: step in best,
            Mark.MINIMUM: manifest is not None and manifest.minimum is not None,
            Mark.PINNED: step in pinned,
            Mark.RESUMES_HERE: step == resumes_at,
            Mark.LEFT_BEHIND: resumes_at is not None and step > resumes_at and manifest is not None,
            Mark.DAMAGED: manifest is None,
        }
        found.append(_entry(step, rundir.prefix(step), manifest, *(mark for mark, holds in is_mark.items() if holds)))
    return sorted([*found, *_of_lines(rundir), *_quarantined(rundir)], key=lambda entry: entry.step)


def best_of(entries: Iterable[Entry], goal: Best) -> Entry | None:
    """The checkpoint that is best by a goal; of equals the oldest. None if none has a number for its metric."""
    ranked = [(badness, each.step, each) for each in entries if (badness := goal.badness(each.metrics)) is not None]
    return min(ranked, key=lambda one: one[:2])[2] if ranked else None


def _read(path: Path) -> Manifest | None:
    """A manifest; None if it is damaged, or was deleted meanwhile."""
    try:
        return manifests.read(path, checked=False)
    except DamagedError:
        return None


def _entry(step: int, path: Path, manifest: Manifest | None, *marks: Mark) -> Entry:
    if manifest is None:
        return Entry(step, path, None, "", 0, {}, marks)
    lowest = manifest.minimum.loss if manifest.minimum is not None else None
    return Entry(
        step, path, manifest.at, manifest.reason, manifest.size, manifest.metrics, marks, minimum=lowest
    )


def _best(found: Iterable[Manifest]) -> list[int]:
    """The steps of the best checkpoints, by the config that the newest was trained with."""
    points = sorted(found, key=lambda manifest: manifest.step)
    config = points[-1].fingerprint if points else {}
    try:
        best = Best.parse(config["config.checkpoint.best"])
        count = int(config["config.checkpoint.keep_best"])
    except (KeyError, ValueError):
        return []
    ranked = [(badness, each.step) for each in points if (badness := best.badness(each.metrics)) is not None]
    firsts = dict(sorted(ranked, reverse=True))  # of equals the oldest, as retention
    return [firsts[badness] for badness in sorted(firsts)[:count]]


def _of_lines(rundir: RunDirectory) -> list[Entry]:
    """The checkpoints of the earlier lines."""
    return [
        replace(_entry(step, each.prefix(step), _read(each.manifest(step)), Mark.EARLIER_LINE), line=line.number)
        for line in lines(rundir)
        for each in [checkpoints_of(rundir, line.number)]
        for step in each.steps()
    ]


def _quarantined(rundir: RunDirectory) -> list[Entry]:
    """The checkpoints in quarantine; in `quarantine/2` and so on are those whose names were taken."""
    with storage(f"look into {rundir.quarantine}", missing_ok=True):
        folders = [rundir.quarantine, *(each for each in rundir.quarantine.iterdir() if each.name.isdecimal())]
        inside = [RunDirectory(folder, rundir.basename) for folder in folders if not folder.is_symlink()]
        return [
            _entry(step, each.prefix(step), _read(each.manifest(step)), Mark.QUARANTINED)
            for each in inside
            for step in each.steps()
        ]
    return []
