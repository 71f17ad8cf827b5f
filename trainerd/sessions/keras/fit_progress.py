"""The progress of a `fit`, for its checkpoint."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from trainerd.checkpoints.contents.python_state import is_plain, packed
from trainerd.checkpoints.contents.tensor_values import Values
from trainerd.sessions.keras.callback_memory import CallbackMoment
from trainerd.sessions.keras.callbacks import Callbacks
from trainerd.sessions.keras.fit_data import FitData


@dataclass(frozen=True)
class KeptBoundary:
    """A boundary between two epochs.

    Others do much to rates and weights there. If that fails, it is undone.

    Attributes:
      moment: what callbacks were.
      values: the values of the model's variables.
    """

    moment: CallbackMoment
    values: Values

    def put_back(self, memory: Callbacks) -> None:
        """Undo what was done since."""
        self.values.put_back()
        memory.go_back(self.moment)


@dataclass(frozen=True)
class LeftBehind:
    """The state that an earlier process has saved.

    Attributes:
      callbacks: the memory of the callbacks.
      was_read: whether the data had given a batch since it was begun.
      is_stopping: whether a callback has stopped `fit`.
      logs: the logs of the last batch.
    """

    callbacks: Any
    was_read: bool
    is_stopping: bool
    logs: dict[str, Any]


class FitProgress:
    """The epoch and the batch of a `fit`, and what the next process must know to resume from there.

    Args:
      data: the data of the `fit`; None if its position is not saved.
      memory: the memory of the callbacks; None before there is a `fit`.

    Attributes:
      step: how many batches have been trained with over the run's whole life.
      epoch: the number of the epoch, from 0.
      batch: how many batches of it have been trained with.
      first_batch: `batch` where this process has begun the epoch.
      logs: those of the last batch or epoch.
      is_stopping: whether a callback has stopped `fit` in the last batch.
      stopped_by: the settings of the callbacks when one of them has ended the training; None if none has.
      left: what an earlier process has saved; None if the run is new.
      is_as_left: whether no batch was trained since that was restored.
      kept: the boundary between two epochs that the `fit` is at; None if it is at none.
    """

    def __init__(self, data: FitData | None = None, memory: Callbacks | None = None) -> None:
        self.step = self.epoch = self.batch = self.first_batch = 0
        self.logs: Any = None
        self.is_stopping = self.is_as_left = False
        self.stopped_by: Any = None
        self.left: LeftBehind | None = None
        self.kept: KeptBoundary | None = None
        self._data = data
        self._memory = memory

    @property
    def was_stopping(self) -> bool:
        """True if an earlier process has saved that a callback had stopped `fit`."""
        return self.left is not None and self.left.is_stopping

    def count(self, batch: int, steps: int | None, logs: Any) -> None:
        """Count what was trained.

        Args:
          batch: the number of the last batch, from 0, as `fit` gives it.
          steps: the batches of an epoch; None if that is not known.
          logs: the logs of the batch.
        """
        # More than one with steps_per_execution, of which an epoch's last execution may have fewer than fit says.
        done = batch + 1 + self.first_batch - self.batch
        if steps:
            done = min(done, steps - self.batch)
        self.batch += done
        self.step += done
        self.is_as_left = False
        if self._data is not None:
            self._data.was_read = True
        self.logs = logs

    def replayed(self) -> None:
        """Put back the state of an earlier process, whose last batch callbacks got again."""
        assert self.left is not None and self._data is not None and self._memory is not None
        self._memory.put_back(self.left.callbacks)
        self._data.was_read = self.left.was_read
        self.logs = self.left.logs
        self.is_as_left = False

    def read(self) -> Any:
        """Return the plain values that a checkpoint holds."""
        assert self._memory is not None
        left = self.left if self.is_as_left else None
        where = {"epoch": self.epoch, "batch": self.batch, "stopped_by": self.stopped_by}
        where["is_stopping"] = left.is_stopping if left else self.is_stopping
        if self._data is not None:  # which `fit` begins again before validation and the epoch's end
            was_read = left.was_read if left else self._data.was_read
            where |= {"passes": self._data.passes, "was_read": was_read}
        logs = (left.logs if left else self.logs) or {}
        where["logs"] = {name: value for name, value in logs.items() if is_plain(value)}
        return {**where, "callbacks": self.kept.moment.memory if self.kept else self._memory.memory()}

    def write(self, values: Any) -> None:
        """Take over what a checkpoint holds."""
        assert self._memory is not None
        self.epoch, self.batch = values["epoch"], values["batch"]
        if self._data is not None:
            self._data.passes = values.get("passes", 0)
        self.left = LeftBehind(
            values["callbacks"],
            was_read=values.get("was_read", True),
            is_stopping=values.get("is_stopping", False),
            logs=values.get("logs", {}),
        )
        self.is_as_left = True
        same = packed(values["stopped_by"]) == packed(self._memory.settings)
        self.stopped_by = values["stopped_by"] if same else None


@dataclass(frozen=True)
class EpochReset:
    """The values that `fit` and its callbacks reset when an epoch begins, such as an RNN's state, as restored.

    Attributes:
      values: variables and their values.
      rate: the learning rate; None if it is none that can be set.
    """

    values: list[tuple[Any, Any]]
    rate: Any

    def put_back(self, optimizer: Any) -> None:
        """Undo that."""
        for variable, value in self.values:
            variable.assign(value)
        if self.rate is not None:
            optimizer.learning_rate.assign(self.rate)  # a scheduler may have moved it on


def learning_rate_of(optimizer: Any) -> Any:
    """Return the value of an optimizer's learning rate; None if it cannot be set."""
    found = getattr(optimizer, "learning_rate", None)
    return found.numpy() if found is not None and hasattr(found, "assign") else None
