"""Evaluates old checkpoints with the job's own evaluation. Imports TensorFlow."""

from __future__ import annotations

import time
from dataclasses import dataclass

from trainerd import open_job
from trainerd.checkpoints import evaluations
from trainerd.checkpoints import manifest as manifests
from trainerd.checkpoints.manifest import DamagedError, Manifest
from trainerd.config.schema import Config
from trainerd.errors import DataError, EntryError, JobError, full_message
from trainerd.loop.recorder import as_validation
from trainerd.rundir.paths import RunDirectory

_HOW = """\
  the job has no evaluation. Give it one:

      def evaluate():
          return {"accuracy": ...}          # of data that it was not trained with

      return trainerd.Job(..., evaluate=evaluate)       # of a KerasJob: validation_data=..."""


@dataclass(frozen=True)
class Result:
    """The result of evaluating one checkpoint.

    Attributes:
      step: its step.
      figures: the metrics of the evaluation; empty if it was not evaluated.
      skipped: why it was not, if that is not an error: it was evaluated before, or deleted meanwhile.
      error: why it could not be evaluated.
    """

    step: int
    figures: dict[str, float]
    skipped: str = ""
    error: str = ""


class Evaluator:
    """Evaluates checkpoints of one run directory.

    Args:
      config: the job. Its entry may be another than the one that was trained, with the same state and other data.
      rundir: the run directory.
      entry: under which name the results are kept; "" for the job's own.
      again: whether checkpoints with a result are evaluated once more.

    Raises:
      EntryError: the job cannot be had, or has no evaluation.
    """

    def __init__(self, config: Config, rundir: RunDirectory, *, entry: str, again: bool) -> None:
        self._session = open_job.open_to_read(config)
        if not self._session.can_score:
            raise EntryError(f"entry = {config.entry!r}:\n{_HOW}")
        self._rundir = rundir
        self._entry = entry
        self._again = again

    def evaluate(self, step: int) -> Result:
        """Evaluate a checkpoint, and put the result on disk.

        Raises:
          StorageError: it cannot be written.
        """
        path = self._rundir.manifest(step)
        try:
            found = manifests.read(path)
            before = evaluations.read(self._rundir, found).by_entry.get(self._entry)
            if before is not None and not self._again:
                return Result(step, evaluations.read(self._rundir, found).figures, skipped="evaluated before")
            manifests.verify(found, self._rundir.path)
            return Result(step, self._scored(found))
        except (DamagedError, DataError, JobError) as error:
            if not path.exists():
                return Result(step, {}, skipped="deleted by retention meanwhile")
            said = full_message(error) if isinstance(error, DataError | JobError) else str(error)
            return Result(step, {}, error=said)

    def _scored(self, found: Manifest) -> dict[str, float]:
        begun, at = time.monotonic(), time.time()
        self._session.load(self._rundir.prefix(found.step))
        metrics = as_validation(self._session.score())
        evaluations.record(self._rundir, found, self._entry, metrics, at, time.monotonic() - begun)
        return metrics
