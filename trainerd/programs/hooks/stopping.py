"""Hooks that end training, and the values at its end."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import tensorflow as tf

from trainerd.programs.hooks.base import Hook, values_at_the_end

tf1 = tf.compat.v1


class StopAtStepHook(Hook):
    """Asks to stop after so many steps, or at a step; see `tf.compat.v1.train.StopAtStepHook`.

    Raises:
      ValueError: neither is given, or both.
    """

    def __init__(self, num_steps: int | None = None, last_step: int | None = None) -> None:
        if num_steps is None and last_step is None:
            raise ValueError("One of num_steps or last_step must be specified.")
        if num_steps is not None and last_step is not None:
            raise ValueError("Only one of num_steps or last_step can be specified.")
        self._num_steps, self._last_step = num_steps, last_step

    def after_create_session(self, session: Any, coord: tf.train.Coordinator) -> None:
        """Count from here."""
        if self._last_step is None:
            self._last_step = session.step + self._num_steps

    def due_at(self, step: int) -> float | None:
        """Return the last step."""
        assert self._last_step is not None
        return max(step + 1, self._last_step)

    def after_run(
        self, run_context: tf.compat.v1.train.SessionRunContext, run_values: tf.compat.v1.train.SessionRunValues
    ) -> None:
        """Ask to stop."""
        if run_context.session.step >= self._last_step:
            run_context.request_stop()


class NanTensorHook(Hook):
    """Ends training if the loss is NaN; see `tf.compat.v1.train.NanTensorHook`.

    Args:
      loss_tensor: the name of the loss.
      fail_on_nan_loss: whether that is an error.
    """

    def __init__(self, loss_tensor: str | tf.Variable | Callable[[], Any], fail_on_nan_loss: bool = True) -> None:
        self._loss = loss_tensor
        self._fails = fail_on_nan_loss
        self.stops_at = loss_tensor if isinstance(loss_tensor, str) else None

    def due_at(self, step: int) -> float | None:
        """Return the next step, if the loop in the graph cannot check the loss itself."""
        return None if self.stops_at is not None else step + 1

    def before_run(self, run_context: tf.compat.v1.train.SessionRunContext) -> tf.compat.v1.train.SessionRunArgs:
        """Ask for the loss."""
        return tf1.train.SessionRunArgs(self._loss)

    def after_run(
        self, run_context: tf.compat.v1.train.SessionRunContext, run_values: tf.compat.v1.train.SessionRunValues
    ) -> None:
        """Check it.

        Raises:
          NanLossDuringTrainingError: it is NaN.
        """
        if not np.isnan(run_values.results):
            return
        if self._fails:
            tf1.logging.error("Model diverged with loss = NaN.")
            raise tf1.train.NanLossDuringTrainingError
        tf1.logging.warning("Model diverged with loss = NaN.")
        run_context.request_stop()


class FinalOpsHook(Hook):
    """Evaluates values at the end; see `tf.compat.v1.train.FinalOpsHook`.

    Args:
      final_ops: variables and functions, and names of what the last step returned, in any structure.
      final_ops_feed_dict: the functions' arguments by name.
    """

    def __init__(self, final_ops: Any, final_ops_feed_dict: Mapping[str, Any] | None = None) -> None:
        self._ops, self._feeds = final_ops, final_ops_feed_dict
        self._values: Any = None

    @property
    def final_ops_values(self) -> Any:
        """The values, as NumPy values; None before the end, or if a name is among them and no step was run."""
        return self._values

    def due_at(self, step: int) -> float | None:
        """Never: it is called at the end."""
        return math.inf

    def end(self, session: Any) -> None:
        """Evaluate them."""
        if self._ops is not None:
            self._values = values_at_the_end(session, self._ops, self._feeds)
