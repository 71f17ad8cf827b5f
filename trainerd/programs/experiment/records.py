"""Evaluates each checkpoint once, and exports it once, over kills and restarts: a record on disk says what was done."""

from __future__ import annotations

import contextlib
import json
import logging
import math
import os
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

import numpy as np

from trainerd.checkpoints import evaluations, manifest
from trainerd.checkpoints.evaluations import Evaluation
from trainerd.checkpoints.manifest import DamagedError, Manifest
from trainerd.errors import StorageError
from trainerd.loop.recorder import as_validation
from trainerd.programs.estimator.checkpoints import rundir_of, step_of
from trainerd.programs.estimator.evaluation.graph import GLOBAL_STEP
from trainerd.rundir.paths import RunDirectory
from trainerd.rundir.state import EvaluationSummary
from trainerd.system.durable_files import read_json, storage, write_atomic
from trainerd.text import figures

log = logging.getLogger(__name__)

_VAL = "val_"


@dataclass(frozen=True)
class Summary:
    """All evaluations of one name, those of checkpoints that are deleted too.

    Attributes:
      count: how many checkpoints were evaluated.
      last_step: the step of the last one; None before the first.
      last_at: when that began, in seconds since 1970 (UTC).
      best_step: the step of the one with the lowest loss; None if none has a loss.
      best: its metrics.
    """

    count: int = 0
    last_step: int | None = None
    last_at: float = 0.0
    best_step: int | None = None
    best: dict[str, float] = field(default_factory=dict)

    def with_evaluation(self, step: int, metrics: Mapping[str, float], at: float) -> Summary:
        """Return the summary with one evaluation more; a step that was evaluated already is not counted again."""
        if self.last_step is not None and step <= self.last_step:
            return self
        now = replace(self, count=self.count + 1, last_step=step, last_at=at)
        loss = metrics.get("loss", math.nan)
        if loss < self.best.get("loss", math.inf):
            now = replace(now, best_step=step, best={k: v for k, v in metrics.items() if math.isfinite(v)})
        return now


class Records:
    """The evaluations of one name in one run directory. What has no manifest is remembered by this process alone.

    Args:
      model_dir: the run directory.
      name: of the evaluation; None for the one without a name.

    Attributes:
      summary: of all evaluations.
    """

    def __init__(self, model_dir: str, name: str | None) -> None:
        self._rundir = RunDirectory.of(model_dir)
        self._key = name or ""
        self._path = self._rundir.path / f"evaluations{f'-{name}' if name else ''}.json"
        self._seen: dict[str, dict[str, Any]] = {}
        self._exported: dict[str, set[str]] = {}
        self.summary = read_json(self._path, Summary) or Summary()  # damaged: it is made again

    def go_back_to(self, step: int) -> None:
        """Forget evaluations of later steps, if any: the training has gone back, and they are of another line."""
        if self.summary.last_step is None or self.summary.last_step <= step:
            return
        self.summary = Summary()
        for each in sorted(self._rundir.evaluated()):
            if each <= step:
                self.found(self.prefix(each))
        self._write()

    def found(self, prefix: str) -> dict[str, Any] | None:
        """Return the metrics of a checkpoint that was evaluated; None if it was not."""
        if prefix in self._seen:
            return self._seen[prefix]
        evaluation = self._evaluation(prefix)
        if evaluation is None:
            return None
        metrics = {name.removeprefix(_VAL): math.nan if v is None else v for name, v in evaluation.metrics.items()}
        self._sum_up(step_of(prefix), metrics, evaluation.at)  # which a kill may have prevented
        return {**metrics, GLOBAL_STEP: step_of(prefix)}

    def prefix(self, step: int) -> str:
        """Return the checkpoint of a step."""
        return str(self._rundir.prefix(step))

    def reason(self, prefix: str) -> str | None:
        """Return the reason for which a checkpoint was made; None if it has no manifest."""
        checkpoint = self._manifest(prefix)
        return checkpoint.reason if checkpoint is not None else None

    def is_exported(self, prefix: str, names: Sequence[str]) -> bool:
        """Return whether an evaluated checkpoint was exported by all of these."""
        evaluation = self._evaluation(prefix)
        made = set(self._exported.get(prefix, ())) | set(evaluation.exported if evaluation is not None else ())
        return set(names) <= made

    def evaluated(self, prefix: str, metrics: Any, at: float, seconds: float) -> None:
        """Put a result on disk.

        Args:
          prefix: the checkpoint.
          metrics: what the evaluation gave.
          at: when it began, in seconds since 1970 (UTC).
          seconds: how long it took.
        """
        self._seen[prefix] = metrics
        if not isinstance(metrics, Mapping):
            return
        numbers = numbers_of(metrics)
        if (checkpoint := self._manifest(prefix)) is not None:
            evaluations.record(rundir_of(prefix), checkpoint, self._key, as_validation(numbers), at, seconds)
        self._sum_up(int(metrics.get(GLOBAL_STEP, step_of(prefix))), numbers, at)

    def exported(self, prefix: str, names: Sequence[str]) -> None:
        """Record that a checkpoint was exported by these exporters."""
        self._exported[prefix] = {*self._exported.get(prefix, ()), *names}
        if names and (checkpoint := self._manifest(prefix)) is not None:
            evaluations.mark_exported(rundir_of(prefix), checkpoint, self._key, names)

    def _manifest(self, prefix: str) -> Manifest | None:
        with contextlib.suppress(DamagedError, StorageError):
            return manifest.read(rundir_of(prefix).manifest(step_of(prefix)))
        return None

    def _evaluation(self, prefix: str) -> Evaluation | None:
        checkpoint = self._manifest(prefix)
        if checkpoint is None:
            return None
        return evaluations.read(rundir_of(prefix), checkpoint).by_entry.get(self._key)

    def _sum_up(self, step: int, metrics: Mapping[str, float], at: float) -> None:
        before, self.summary = self.summary, self.summary.with_evaluation(step, metrics, at)
        if self.summary != before:
            self._write()

    def _write(self) -> None:
        with storage(f"write {self._path}"):
            text = json.dumps(asdict(self.summary), indent=1, allow_nan=False)
            write_atomic(self._path, text.encode() + b"\n", for_all=True)


def numbers_of(metrics: Any) -> dict[str, float]:
    """Return those of the metrics that are single numbers."""
    if not isinstance(metrics, Mapping):
        return {}
    return {
        name: float(value)
        for name, value in metrics.items()
        if name != GLOBAL_STEP and isinstance(value, int | float | np.number)
    }


@dataclass(frozen=True)
class Evaluated:
    """One checkpoint.

    Attributes:
      prefix: which.
      metrics: what its evaluation gave.
      exports: what its exports gave; empty if they were made before.
    """

    prefix: str
    metrics: Any
    exports: Any = ()


@dataclass
class OncePerCheckpoint:
    """Evaluates and exports a checkpoint, unless that was done.

    The result is put on disk first, and that the exports are made last. So after a kill the rest is done.

    Args:
      records: what was done.
      evaluate: called with the prefix; returns the metrics.
      export: called with the metrics and the prefix; returns what each exporter gave.
      exporters: returns the names of the exporters.
      show: called with the summary of all evaluations after each.
      exports: whether a checkpoint is exported when it is evaluated.
    """

    records: Records
    evaluate: Callable[[str], Any]
    export: Callable[[Any, str], Any]
    exporters: Callable[[], Sequence[str]]
    show: Callable[[EvaluationSummary], None]
    exports: bool = True
    _last: Evaluated | None = field(default=None, init=False)  # in this process

    def __call__(self, prefix: str, *, exports: bool | None = None) -> Evaluated:
        """Evaluate and export this checkpoint, unless that was done before.

        Args:
          prefix: which.
          exports: whether it is exported. Default: as the class says.
        """
        prefix = os.path.abspath(prefix)  # noqa: PTH100  a program may spell its folder in several ways
        last = self._last if self._last is not None and self._last.prefix == prefix else None
        metrics = last.metrics if last is not None else self._metrics(prefix)
        made: Any = last.exports if last is not None else []
        if (self.exports if exports is None else exports) and not self._is_exported(prefix):
            made = self.export(metrics, prefix)
            self.records.exported(prefix, self.exporters())
            for path in made if isinstance(made, list) else ():
                if path:
                    log.info("exported step %d: %s", step_of(prefix), os.fsdecode(path), extra={"event": "exported"})
        self._last = Evaluated(prefix, metrics, made)
        return self._last

    def is_unfinished(self, prefix: str) -> bool:
        """Return whether a checkpoint was evaluated, and is to be exported yet."""
        return self.exports and self.records.found(prefix) is not None and not self._is_exported(prefix)

    def _is_exported(self, prefix: str) -> bool:
        return self.records.is_exported(prefix, self.exporters())

    def _metrics(self, prefix: str) -> Any:
        metrics = self.records.found(prefix)
        if metrics is None:
            at, begun = time.time(), time.monotonic()
            metrics = self.evaluate(prefix)
            took = time.monotonic() - begun
            try:
                self.records.evaluated(prefix, metrics, at, took)
            except StorageError as error:  # what trains continues, and another start evaluates the checkpoint again
                log.warning("%s", error, extra={"event": "evaluations"})
            shown = figures(numbers_of(metrics))
            step = step_of(prefix)
            log.info("evaluated step %d in %.2f s: %s", step, took, shown, extra={"event": "evaluated", "step": step})
        summary = self.records.summary
        self.show(EvaluationSummary(summary.count, summary.best_step, summary.best))
        return metrics
