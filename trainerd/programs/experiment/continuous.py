"""Evaluates the checkpoints of a training that another process does, as they appear."""

from __future__ import annotations

import contextlib
import logging
import math
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import tensorflow as tf

from trainerd.checkpoints.format.reader import newest_checkpoint
from trainerd.errors import DataError
from trainerd.programs.estimator.arguments import names_of_arguments
from trainerd.programs.estimator.checkpoints import is_whole
from trainerd.programs.estimator.evaluation.graph import GLOBAL_STEP
from trainerd.programs.estimator.waiting import Waiting
from trainerd.programs.experiment.records import OncePerCheckpoint

log = logging.getLogger(__name__)
tf1 = tf.compat.v1

_WARN_SECS = 600
_NOT_TRAINED = "Estimator is not fitted yet. Will start an evaluation when a checkpoint is ready."
_NOTHING_NEW = "No new checkpoint ready for evaluation."


@dataclass
class ContinuousEvaluation:
    """Evaluates the newest checkpoint, again and again, until the training is over.

    Args:
      once: evaluates a checkpoint once.
      model_dir: the run directory of the training.
      delay_secs: how long it waits before it begins.
      throttle_secs: between the beginnings of two evaluations, at least.
      train_steps: the global step at which the training ends; None if it does not.
      predicate: called with the metrics and, if it takes two arguments, the checkpoint; says whether to continue.
      again: evaluates a checkpoint whether it was evaluated or not; None: each is evaluated once.
    """

    once: OncePerCheckpoint
    model_dir: str
    delay_secs: float
    throttle_secs: float
    train_steps: int | None
    predicate: Callable[..., bool] | None = None
    again: Callable[[str], Any] | None = None
    _warned_at: float = field(default=-math.inf, init=False)
    _newest: str | None = field(default=None, init=False)  # what was evaluated last

    def run(self, waiting: Waiting) -> None:
        """Evaluate until the training is over, or the predicate says no.

        Raises:
          Paused: a pause was requested.
        """
        continues = as_predicate(self.predicate)
        if self.delay_secs:
            log.info("the first evaluation begins in %.0f s (delay_secs)", self.delay_secs)
            waiting.sleep(self.delay_secs)
        metrics: Any = None
        while continues(metrics, self._newest):
            if has_ended(metrics, self.train_steps):
                ended = metrics[GLOBAL_STEP]
                tf1.logging.info("Exiting continuous eval, global_step=%s >= train_step=%s", ended, self.train_steps)
                return
            began = time.monotonic()
            metrics = self._evaluated()
            left = self.throttle_secs - (time.monotonic() - began)
            if left > 0:
                tf1.logging.info("Waiting %f secs before starting next eval run.", left)
                waiting.sleep(left)

    def _evaluated(self) -> Any:
        """Return the metrics of the newest checkpoint; an empty dict if there is nothing new to evaluate."""
        with contextlib.suppress(DataError):  # none can be read: the trainer says so
            newest = newest_checkpoint(self.model_dir)
            if newest is None:
                return self._warn(_NOT_TRAINED)
            if self.again is None and newest == self._newest:
                return self._warn(_NOTHING_NEW)
            try:
                metrics = self.once(newest).metrics if self.again is None else self.again(newest)
            except (tf.errors.NotFoundError, ValueError) as error:  # Saver.restore raises ValueError for a missing file
                if is_whole(newest):
                    raise
                tf1.logging.warning("%s was deleted during its evaluation (%s); the newest one is next.", newest, error)
                return {}  # the training saves faster than this evaluates
            self._warned_at, self._newest = -math.inf, newest
            return metrics or {}
        return self._warn(_NOTHING_NEW)

    def _warn(self, message: str) -> Any:
        """Warn, at most once in ten minutes, why nothing is evaluated."""
        if time.monotonic() - self._warned_at > _WARN_SECS:
            tf1.logging.warning(message)
            self._warned_at = time.monotonic()
        return {}


def has_ended(metrics: Any, train_steps: int | None) -> bool:
    """Return whether these are the metrics of the last step of a training."""
    if not metrics or not train_steps:
        return False
    step = metrics.get(GLOBAL_STEP)
    return bool(step) and step >= train_steps


def as_predicate(given: Callable[..., bool] | None) -> Callable[[Any, str | None], bool]:
    """Return a predicate of the metrics and the checkpoint, of one that may take the metrics alone.

    Raises:
      ValueError: it is not a function.
    """
    if given is None:
        return lambda metrics, path: True
    if not callable(given):
        raise ValueError("`continuous_eval_predicate_fn` must be a callable, or None.")
    takes_path = "checkpoint_path" in names_of_arguments(given) or len(names_of_arguments(given)) > 1
    return (lambda metrics, path: given(metrics, path)) if takes_path else (lambda metrics, path: given(metrics))
