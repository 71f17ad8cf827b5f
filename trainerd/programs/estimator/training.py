"""The training of an estimator: one session and one input, from the first step until it is closed."""

from __future__ import annotations

import contextlib
import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import tensorflow as tf

from trainerd.loop.outcome import Paused
from trainerd.programs.estimator.run_config import RunConfig
from trainerd.programs.monitored.lifecycle import Lifecycle

tf1 = tf.compat.v1

_NO_BATCH = (
    "Training with estimator made no steps. Perhaps input is empty or misspecified: the input function of the training "
    "gives no batch. Check its files and filters; `drop_remainder=True` drops a batch that is not full."
)
_NO_STEPS = "Training with estimator made no steps. Perhaps input is empty or misspecified."


@dataclass(frozen=True)
class Extras:
    """The hooks and listeners that a program adds to a training.

    Attributes:
      hooks: `SessionRunHook`s.
      listeners: `CheckpointSaverListener`s.
    """

    hooks: Sequence[Any]
    listeners: Sequence[Any]


class Training(ABC):
    """A session that trains, from the first step until it is closed.

    Args:
      config: the settings of the estimator.
      input_fn: the input, which is read from its beginning to its end, also over pauses.
      extras: hooks and listeners.
      restarts_input: whether the input begins at its beginning, and not where the last checkpoint was.

    Raises:
      ValueError: there are listeners, and no checkpoints on a schedule.
    """

    session: Lifecycle

    def __init__(self, config: RunConfig, input_fn: Any, extras: Extras, *, restarts_input: bool = False) -> None:
        if extras.listeners and not (config.save_checkpoints_secs or config.save_checkpoints_steps):
            raise ValueError(
                "There should be a CheckpointSaverHook to use saving_listeners. Please set one of the "
                "RunConfig.save_checkpoints_steps or RunConfig.save_checkpoints_secs."
            )
        self.made_for = (input_fn, extras)
        self.is_open = False
        self.loss: float | None = None
        self._done = 0
        self._config, self._input_fn, self._extras, self._restarts_input = config, input_fn, extras, restarts_input

    def open(self) -> None:
        """Build the model and its input, and make the session."""
        self._open()
        self.is_open = True

    @abstractmethod
    def _open(self) -> None:
        """See `open`."""

    @property
    @abstractmethod
    def step(self) -> int:
        """The global step."""

    @abstractmethod
    def _steps(self, begun: int, last: float) -> None:
        """Run steps from one global step until another is done, or the session is over; count them in `_done`."""

    def _as_default(self) -> contextlib.AbstractContextManager[Any]:
        """Return a context in which hooks find the default graph that they ask for."""
        return contextlib.nullcontext()

    def run(self, last: float) -> bool:
        """Train until a step, the end of the input, or a hook's wish to stop.

        Args:
          last: the global step; infinity for no end.

        Returns:
          Whether it can continue.

        Raises:
          Paused: a pause was requested; the last step is on disk.
          NanLossDuringTrainingError: the loss is not a number.
          ValueError: a new training has no batch at all.
        """
        begun, ran_out, self._done = self.step, False, 0
        try:
            with self._as_default():
                if begun < last:
                    self._steps(begun, last)
                elif last < math.inf:
                    return True
                is_open = not self.session.should_stop()
        except (tf.errors.OutOfRangeError, StopIteration):
            is_open, ran_out = False, True
        except BaseException as error:
            self.close(error)
            raise
        if self.session.is_paused:
            self.close()
            raise Paused
        if not self._done:
            if ran_out and not begun:
                empty = ValueError(_NO_BATCH)
                self.close(empty)
                raise empty
            tf1.logging.warning(_NO_STEPS)
        return is_open

    def serve(self) -> bool:
        """Check the flag, between two steps. Returns whether a pause was requested."""
        if not self.is_open:
            return False
        self.session.should_stop()
        return self.session.is_paused

    def close(self, error: BaseException | None = None) -> None:
        """Save the last step and close the session; it saves nothing that an error has torn."""
        self.is_open = False
        with self._as_default():
            if error is None:
                self.session.close()
            else:
                self.session.__exit__(type(error), error, error.__traceback__)
        if self.loss is not None:
            tf1.logging.info("Loss for final step: %s.", self.loss)
