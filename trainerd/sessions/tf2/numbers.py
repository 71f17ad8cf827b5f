"""The numbers of a job that can be set while it trains: learning rates of Keras' optimizers, and its own variables."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import keras
import tensorflow as tf

from trainerd.errors import EntryError

LEARNING_RATE = "learning_rate"
_SCHEDULED = "it follows a schedule, which decides it at each step"


class Numbers:
    """The numbers of one job.

    Args:
      state: the job's state, in which the optimizers are found.
      own: name to variable.

    Raises:
      EntryError: one of its own is not a scalar variable.
    """

    def __init__(self, state: Mapping[str, Any], own: Mapping[str, Any]) -> None:
        self._own = dict(own)
        for name, variable in self._own.items():
            shape = getattr(variable, "shape", None)
            if not hasattr(variable, "assign") or shape is None or len(shape) != 0:
                raise EntryError(f"settable: {name!r} must be a variable with one number, and is {variable!r}.")
        self._optimizers = dict(_named(list(_optimizers(state))))

    def read(self) -> dict[str, float | str]:
        """Return the value of each number by its name, or the reason why it cannot be set."""
        found: dict[str, float | str] = {name: float(variable.numpy()) for name, variable in self._own.items()}
        for name, optimizer in self._optimizers.items():
            found[name] = _SCHEDULED if _has_schedule(optimizer) else float(optimizer.learning_rate.numpy())
        return found

    def assign(self, name: str, value: float) -> None:
        """Set a number."""
        if name in self._own:
            self._own[name].assign(tf.cast(value, self._own[name].dtype))
        else:
            self._optimizers[name].learning_rate = value


def _optimizers(state: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """Yield the optimizers of a state, with the name of the part that they are in."""
    for name, part in state.items():
        found = part if isinstance(part, keras.optimizers.Optimizer) else getattr(part, "optimizer", None)
        if isinstance(found, keras.optimizers.Optimizer):
            yield name, getattr(found, "inner_optimizer", found)


def _named(found: list[tuple[str, Any]]) -> Iterator[tuple[str, Any]]:
    """Yield the optimizers by `learning_rate`, or by `PART.learning_rate` if there are several."""
    distinct = {id(optimizer): (name, optimizer) for name, optimizer in found}.values()
    for name, optimizer in distinct:
        yield (LEARNING_RATE if len(distinct) == 1 else f"{name}.{LEARNING_RATE}"), optimizer


def _has_schedule(optimizer: Any) -> bool:
    return isinstance(optimizer.get_config().get(LEARNING_RATE), dict)
