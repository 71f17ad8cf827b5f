"""The steps of a `fit`: Keras does not call a callback after a step if a callback before it fails."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import tensorflow as tf

from trainerd.sessions.keras.fit_frame import FitCall
from trainerd.sessions.keras.fit_stage import FitStage
from trainerd.system.stages import Stages


@dataclass(frozen=True)
class NotedStep:
    """A step whose end is noted.

    Attributes:
      model: the model whose step it is.
      train: the function that does it, as `model.train_function` was before.
      noted: called with that function and an iterator instead of it.
      is_over: whether nobody takes note any more. It ends a `fit` that it finds left by an error.
    """

    model: Any
    train: Any
    noted: Callable[[Any, Any], Any]
    is_over: Callable[[], bool]

    def __call__(self, iterator: Any) -> Any:
        """Do a step."""
        return self.noted(self.train, iterator)


class FitSteps:
    """Notes when each step of a `fit` is done, and can have something else come in place of the next step.

    Args:
      model: the Keras model, whose `train_function` is made.
      stages: the stage of the `fit`.
      call: the call of `fit`.
      is_over: see `NotedStep`.

    Attributes:
      done: the last batch of a step that is done, and its logs, until the callback is called for it.
    """

    def __init__(self, model: Any, stages: Stages[FitStage], call: FitCall, is_over: Callable[[], bool]) -> None:
        self.done: tuple[int, Any] | None = None
        self._stages = stages
        self._call = call
        self._begun = 0  # the batch
        self._instead: Any = None
        train = model.train_function
        while isinstance(train, NotedStep) and train.is_over():
            train = train.train
        self._noted = model.train_function = NotedStep(model, train, self._take_note, is_over)

    def begin(self, batch: int) -> None:
        """Record that a step begins with this batch."""
        self._begun = batch
        self._stages.enter(FitStage.STEP)

    def replay(self, logs: Any, *, may_have_more: bool) -> None:
        """Have an epoch that was saved after its last batch end with the logs of that batch: callbacks get them again.

        `fit` has no other way to pass them on. Without a batch it would call callbacks for an epoch without batches.

        Args:
          logs: the logs of the last batch.
          may_have_more: whether there may be another batch: then that is trained.
        """

        def train_or_replay(iterator: Any) -> Any:
            try:
                if may_have_more:
                    return self._step(iterator)
            except (tf.errors.OutOfRangeError, StopIteration) as error:  # this with steps_per_execution
                self._instead = _raising(error)
            self._stages.enter(FitStage.REPLAYED)
            return logs

        self._instead = train_or_replay

    def forget(self) -> None:
        """Give the model its own step back, unless it has another one by now."""
        if self._noted.model.train_function is self._noted:
            self._noted.model.train_function = self._noted.train
        self.done = self._instead = None

    def _take_note(self, train: Any, iterator: Any) -> Any:
        """Do the step that has begun, or what comes in its place. Others, such as a callback's own, are not noted."""
        is_ours = not self._noted.is_over() and self._call.is_on_this_thread
        if not is_ours or self._stages.now is not FitStage.STEP:
            return train(iterator)
        instead, self._instead = self._instead or self._step, None
        return instead(iterator)

    def _step(self, iterator: Any) -> Any:
        logs = self._noted.train(iterator)
        self.done = self._begun + self._noted.model.steps_per_execution - 1, logs
        self._stages.enter(FitStage.DONE)
        return logs


def _raising(error: Exception) -> Callable[[Any], Any]:
    """Return a step that has ended by an error, and is not tried again: what it did before, such as drawing seeds, is
    done."""

    def end(iterator: Any) -> Any:
        raise error

    return end
