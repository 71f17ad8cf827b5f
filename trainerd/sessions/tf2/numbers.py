"""The numbers of a job that can be set while it trains: learning rates of Keras' optimizers, and its own variables."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any

import keras
import tensorflow as tf

from trainerd.job.settable import LEARNING_RATE, Number, number, with_limits

_SCHEDULED = "it follows a schedule, which decides it at each step"


class Numbers:
    """The numbers of one job.

    Args:
      state: the job's state, in which the optimizers are found.
      own: name to variable, or to `Settable`.

    Raises:
      EntryError: one of its own is not a scalar variable.
    """

    def __init__(self, state: Mapping[str, Any], own: Mapping[str, Any]) -> None:
        self._own = with_limits(own)
        self._optimizers = dict(_named(list(_optimizers(state))))

    def read(self) -> dict[str, Number]:
        """Return each number by its name."""
        found = {
            name: number(name, float(own.variable.numpy()), minimum=own.minimum, maximum=own.maximum)
            for name, own in self._own.items()
        }
        for name, optimizer in self._optimizers.items():
            rate = optimizer.learning_rate
            if isinstance(rate, keras.Variable):
                found[name] = number(name, float(rate.numpy()))
            else:  # the value of a schedule at this step
                found[name] = Number(math.nan, fixed=_SCHEDULED)
        return found

    def assign(self, name: str, value: float) -> None:
        """Set a number."""
        if name in self._own:
            variable = self._own[name].variable
            variable.assign(tf.cast(value, variable.dtype))
        else:
            self._optimizers[name].learning_rate = value


def _optimizers(state: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """Yield the optimizers of a state that have a learning rate, with the name of the part that they are in."""
    for name, part in state.items():
        found = part if isinstance(part, keras.optimizers.Optimizer) else getattr(part, "optimizer", None)
        found = getattr(found, "inner_optimizer", found)
        if isinstance(found, keras.optimizers.Optimizer) and hasattr(found, LEARNING_RATE):  # a MultiOptimizer has none
            yield name, found


def _named(found: list[tuple[str, Any]]) -> Iterator[tuple[str, Any]]:
    """Yield the optimizers by `learning_rate`, or by `PART.learning_rate` if there are several."""
    distinct = {id(optimizer): (name, optimizer) for name, optimizer in found}.values()
    for name, optimizer in distinct:
        yield (LEARNING_RATE if len(distinct) == 1 else f"{name}.{LEARNING_RATE}"), optimizer
