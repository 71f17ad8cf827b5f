"""The results of evaluations of old checkpoints: a file beside each manifest. Needs no TensorFlow."""

from __future__ import annotations

import json
import logging
import math
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field, replace

from trainerd import text
from trainerd.checkpoints.manifest import Manifest
from trainerd.errors import StorageError
from trainerd.rundir import run_events
from trainerd.rundir.paths import RunDirectory
from trainerd.rundir.shared_files import writing
from trainerd.system import safe_paths
from trainerd.system.durable_files import read_json, storage, write_atomic

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Evaluation:
    """One evaluation.

    Attributes:
      metrics: by name. NaN and infinity are null in the file.
      at: when it was made, in seconds since 1970 (UTC).
      seconds: how long it took.
      exported: the names of what has exported the checkpoint after it, in an Experiment.
    """

    metrics: dict[str, float | None]
    at: float
    seconds: float
    exported: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class Evaluations:
    """All evaluations of one checkpoint.

    Attributes:
      index: the checksum of the checkpoint's index: another checkpoint of the same step has none of these results.
      by_entry: the last evaluation by each entry; "" for the job's own.
    """

    index: str
    by_entry: dict[str, Evaluation] = field(default_factory=dict)

    @property
    def figures(self) -> dict[str, float]:
        """The metrics of all, by the names under which listings show them."""
        found = {}
        for entry, evaluation in self.by_entry.items():
            for name, value in evaluation.metrics.items():
                found[f"{entry} {name}" if entry else name] = math.nan if value is None else value
        return found


def read(rundir: RunDirectory, checkpoint: Manifest) -> Evaluations:
    """Return the evaluations of a checkpoint. A file that is damaged, or of another checkpoint of this step, has none.

    Raises:
      StorageError: the file cannot be read.
    """
    none = Evaluations(_index(rundir, checkpoint))
    found = read_json(rundir.evaluations(checkpoint.step), Evaluations)
    return found if found is not None and found.index == none.index else none


def figures(rundir: RunDirectory, checkpoint: Manifest) -> dict[str, float]:
    """Return the metrics of a checkpoint, with those of its evaluations in place of older ones of the same name."""
    try:
        return checkpoint.metrics | read(rundir, checkpoint).figures
    except StorageError as error:  # what was saved is not to depend on it
        log.warning("%s", error, extra={"event": "evaluations"})
        return checkpoint.metrics


def record(
    rundir: RunDirectory, checkpoint: Manifest, entry: str, metrics: Mapping[str, float], at: float, seconds: float
) -> None:
    """Put the result of an evaluation on disk.

    Args:
      rundir: the run directory.
      checkpoint: what was evaluated.
      entry: what evaluated it; "" for the job's own entry.
      metrics: by name.
      at: when, in seconds since 1970 (UTC).
      seconds: how long it took.

    Raises:
      StorageError: it cannot be written.
    """
    plain = {name: value if math.isfinite(value) else None for name, value in metrics.items()}
    with writing(rundir):
        _put(rundir, checkpoint, entry, Evaluation(plain, at, seconds))
    run_events.add(rundir, run_events.EventKind.EVALUATION, text.figures(metrics), step=checkpoint.step)
    run_events.flush(rundir)


def mark_exported(rundir: RunDirectory, checkpoint: Manifest, entry: str, names: Iterable[str]) -> None:
    """Note what has exported a checkpoint after an evaluation.

    Raises:
      StorageError: it cannot be written.
    """
    with writing(rundir):
        if (done := read(rundir, checkpoint).by_entry.get(entry)) is not None:
            _put(rundir, checkpoint, entry, replace(done, exported=sorted({*done.exported, *names})))


def _put(rundir: RunDirectory, checkpoint: Manifest, entry: str, evaluation: Evaluation) -> None:
    """Put an evaluation into the file, whose lock the caller holds."""
    before = read(rundir, checkpoint)
    after = replace(before, by_entry=before.by_entry | {entry: evaluation})
    path = rundir.evaluations(checkpoint.step)
    with storage(f"write {path}"):
        write_atomic(path, json.dumps(asdict(after), indent=1, allow_nan=False).encode() + b"\n", for_all=True)
        if not safe_paths.exists(rundir.manifest(checkpoint.step)):  # it was deleted meanwhile, and this must not stay
            safe_paths.remove(path, missing_ok=True)


def _index(rundir: RunDirectory, checkpoint: Manifest) -> str:
    record = checkpoint.files.get(rundir.index(checkpoint.step).name)
    return record.xxh128 if record is not None else ""
