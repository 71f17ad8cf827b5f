"""Evaluates each checkpoint once, and exports it once, over kills and restarts."""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from trainerd.errors import StorageError
from trainerd.programs.estimator.checkpoints import step_of
from trainerd.programs.experiment.records import Records, numbers_of
from trainerd.rundir.state import EvaluationSummary
from trainerd.text import figures

log = logging.getLogger(__name__)


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
        """Do what is left to do for this checkpoint.

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
