"""A `trainerd.KerasJob` that several workers train: they agree on the metrics of each epoch."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import keras
import tensorflow as tf

from trainerd.errors import EntryError
from trainerd.job.definition import KerasJob
from trainerd.sessions.keras.job_session import KerasJobSession, numbers
from trainerd.workers.engine.engine import Engine
from trainerd.workers.training.replicated_session import ReplicatedSession


class ReplicatedKerasSession(ReplicatedSession, KerasJobSession):
    """A Keras model as one of several workers trains it. The chief validates alone.

    Args:
      job: what to train. Its model was made under the strategy of the workers, which is there for steps only.
      options: see `ReplicatedSession` and `KerasJobSession`.
    """

    def __init__(self, job: KerasJob, *, engine: Engine, **options: Any) -> None:
        if isinstance(model := job.model, keras.Model):
            model._distribute_strategy = None
        self._agreed: Mapping[str, Any] | None = None
        super().__init__(job, engine=engine, **options)

    @property
    def stopped(self) -> str:
        """Why a callback has stopped the training; empty if none has."""
        return self._progress.stopped

    def stop(self, why: str) -> None:
        """Stop the training for this reason; with an empty one, do not stop it."""
        self._progress = replace(self._progress, stopped=why)

    def epoch_logs(self) -> Mapping[str, float]:
        """Return the metrics of this worker for the epoch that ends at this boundary."""
        return numbers(self._progress.logs or self._logs())

    def validation_logs(self) -> Mapping[str, float]:
        """Return the metrics of the validation of that epoch, if it has one."""
        return numbers(super()._validated())

    def agree_on(self, logs: Mapping[str, Any]) -> None:
        """Use these metrics for that epoch."""
        self._agreed = dict(logs)

    def _validated(self) -> dict[str, Any]:
        return {}

    def _logs(self) -> dict[str, Any]:
        if self._agreed is not None:
            return dict(self._agreed)
        with self._engine.added_up():
            return super()._logs()

    def _end_epoch(self, data_ended: bool) -> dict[str, float]:
        found = super()._end_epoch(data_ended)
        self._agreed = None
        return found

    def _step_of(self, model: Any) -> Any:
        """Return the model's own step, not converted: a step of several workers must not hold functions."""
        return tf.autograph.experimental.do_not_convert(super()._step_of(model).python_function)

    def _require_endless(self) -> None:
        if int(self._data.cardinality()) == tf.data.UNKNOWN_CARDINALITY:
            raise EntryError(
                "KerasJob: the number of batches is unknown, and several workers must reach the end of the data "
                "together. End it with .repeat() and give steps_per_epoch."
            )
