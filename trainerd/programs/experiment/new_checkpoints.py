"""Evaluates the new checkpoints of a training, between its steps."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any

import tensorflow as tf

from trainerd.checkpoints.format.reader import newest_checkpoint
from trainerd.checkpoints.manifest import FINISH
from trainerd.programs.estimator.hooks import CheckpointHook
from trainerd.programs.experiment.records import OncePerCheckpoint
from trainerd.system.elapsed import Elapsed

_ON_SCHEDULE = {"schedule", "retry", FINISH}


@dataclass(frozen=True)
class Throttle:
    """The least distances between two evaluations.

    Attributes:
      secs: between the beginnings of two evaluations.
      steps: between two evaluated checkpoints.
      with_first: whether the checkpoint before the first step is evaluated too.
    """

    secs: float = 0.0
    steps: int = 0
    with_first: bool = False


class NewCheckpointListener(tf.compat.v1.train.CheckpointSaverListener):  # type: ignore[misc]
    """Evaluates a checkpoint when it is on disk, before the next step.

    Those of a pause, and those that were asked for, are left out: a run without interruptions does not have them. At a
    start, the checkpoint that the run resumes from is evaluated if a kill has prevented that.

    Args:
      once: evaluates.
      throttle: how often it evaluates at most.
    """

    def __init__(self, once: OncePerCheckpoint, throttle: Throttle) -> None:
        self._once = once
        self._throttle = throttle
        self._elapsed = Elapsed()

    def after_save(self, session: Any, global_step_value: int) -> None:
        """Evaluate the checkpoint, which is on disk, if it is due or a kill has prevented that."""
        step, records = int(global_step_value), self._once.records
        records.go_back_to(step)
        wanted = _ON_SCHEDULE | ({"start"} if self._throttle.with_first else set())
        prefix = records.prefix(step)
        reason = records.reason(prefix)
        if reason in wanted and (reason == FINISH or self._is_due(step) or self._once.is_unfinished(prefix)):
            self._once(prefix)
            self._elapsed.secs_since(records.summary.last_at)  # the clock may be set before the next look

    resumed = after_save  # the checkpoint that the training resumes from

    def _is_due(self, step: int) -> bool:
        summary, throttle = self._once.records.summary, self._throttle
        if summary.last_step is None:
            return True
        if step <= summary.last_step or step - summary.last_step < throttle.steps:
            return False
        return not throttle.secs or self._elapsed.secs_since(summary.last_at) >= throttle.secs


class NewCheckpointHook(CheckpointHook):
    """A hook that does the same for any estimator. One that is not trainerd's calls it after each step.

    Args:
      once: evaluates.
      model_dir: the run directory.
      throttle: runs and seconds from one look to the next.
    """

    def __init__(self, once: OncePerCheckpoint, model_dir: str, throttle: Throttle) -> None:
        super().__init__(NewCheckpointListener(once, throttle))
        self._once = once
        self._model_dir = model_dir
        self._throttle = throttle
        self._runs, self._looked_at = 0, float("-inf")

    def after_run(self, run_context: Any, run_values: Any) -> None:
        """Look for a new checkpoint after a step, if it is time, and evaluate it."""
        self._runs += 1
        if self._runs % self._throttle.steps or time.monotonic() - self._looked_at < self._throttle.secs:
            return
        self._looked_at = time.monotonic()
        if (prefix := newest_checkpoint(self._model_dir)) is not None:
            self._once(prefix)
