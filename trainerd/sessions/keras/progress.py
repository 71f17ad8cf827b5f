"""The progress of a KerasJob through its epochs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import keras

from trainerd.checkpoints.contents.python_state import is_plain
from trainerd.errors import DataError

# A call of `fit` that is complete: "epoch" and "history", as the attributes of Keras's History; "model", its number;
# "name", None for none; "step", the global step at which it ended; and "data", as in Progress. Older checkpoints lack
# the last three.
CallHistory = dict[str, Any]


@dataclass
class Progress:
    """The progress of a training through its epochs.

    Attributes:
      epoch: the epoch that is under way or next, from 0.
      epoch_began: the global step at which it began; None if it has not begun.
      input_began: the global step at which the data was begun.
      passes: how often the data was begun before.
      batch_began: whether `on_train_batch_begin` was called for the next batch.
      stops: whether a callback wants the training to stop after the epoch that is under way.
      logs: the metrics of an epoch whose end is under way; None if none is.
      stopped: why training is over, if a callback stopped it; empty otherwise.
      settings: the arguments of the callbacks that stopped it, or want to.
      epoch_logs: the metrics of the last epoch that has ended.
      given: the logs of the last step.
      told: the global step at which `on_train_end` was last called; None if it never was. Checkpoints hold this name.
      rows: the number of rows in each file that a callback appends to, before training began.
      call: the number of the call of `fit` in its program, from 0.
      name: the name that the program gives it; None for none.
      call_began: the global step at which that call began.
      epochs_before: the epochs of the calls before: the order of the examples continues after theirs.
      model: the number of the model that it trains, in the order of their first calls, from 0.
      data: describes what the call trains, and with what; see `CallData`. Empty if it is not compared.
      histories: what `fit` returned in each call before: the epochs, and the values of each metric.
    """

    epoch: int = 0
    epoch_began: int | None = None
    input_began: int = 0
    passes: int = 0
    batch_began: bool = False
    stops: bool = False
    logs: dict[str, Any] | None = None
    stopped: str = ""
    settings: Any = None
    epoch_logs: dict[str, Any] = field(default_factory=dict)
    given: dict[str, Any] = field(default_factory=dict)
    told: int | None = None
    rows: dict[str, int] = field(default_factory=dict)
    call: int = 0
    name: str | None = None
    call_began: int = 0
    epochs_before: int = 0
    model: int = 0
    data: dict[str, str] = field(default_factory=dict)
    histories: list[CallHistory] = field(default_factory=list)


def saveable(logs: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in logs.items() if is_plain(value)}


def history_of(callbacks: Sequence[Any]) -> CallHistory:
    """Return the memory of Keras's History among that of the callbacks of a training."""
    found: CallHistory = {"epoch": [], "history": {}}
    for name, memory in callbacks:
        if name == keras.callbacks.History.__name__:
            found |= memory
    return found


def number_of(place: int, name: str | None, names: Sequence[str | None]) -> int:
    """Return the number of a call of `fit` among those of its run: that of its name, or else its place.

    Args:
      place: the number of calls that the program has made before it.
      name: its name; None for none.
      names: those of the calls of the run.

    Raises:
      DataError: the call at its place has another name.
    """
    if name is not None and name in names:
        return names.index(name)
    if place < len(names) and (before := names[place]) is not None:
        raise DataError(
            f"call {place + 1} of fit in this run has name={before!r}, and now name={name!r}. Put the calls back into "
            "their order, or use another `logdir`."
        )
    return place


def names_in(histories: Sequence[CallHistory]) -> list[str | None]:
    """Return the names of complete calls."""
    return [each.get("name") for each in histories]
