"""The copies of one variable on several devices, as a `tf.distribute` strategy makes them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import keras
import tensorflow as tf


def is_distributed(variable: Any) -> bool:
    """Return whether a variable has a copy on each device of a strategy."""
    return isinstance(_value(variable), tf.distribute.DistributedValues)


def strategy_of(variable: Any) -> Any:
    """Return the strategy for which a distributed variable was made."""
    return _value(variable).distribute_strategy


def is_brought_together(variable: Any) -> bool:
    """Return whether TensorFlow makes one value of what each device writes into a variable: all copies are the same."""
    value = _value(variable)
    is_on_write = value.synchronization is not tf.VariableSynchronization.ON_READ
    return is_on_write and value.aggregation is not tf.VariableAggregation.NONE


def copies_of(variable: Any) -> Sequence[Any]:
    """Return the variable of each device; the variable itself if it is on one."""
    if not is_distributed(variable):
        return [variable]
    copies: Sequence[Any] = strategy_of(variable).experimental_local_results(_value(variable))
    return copies


def restore_copies(prefix: Path, copies: Mapping[str, Any]) -> bool:
    """Read copies that may differ, if a checkpoint has as many. If not, each keeps what all of them have together.

    Returns:
      Whether they were read.
    """
    if not copies:
        return True
    reader = tf.train.load_checkpoint(str(prefix))
    has_all = all(map(reader.has_tensor, copies))
    if has_all:
        for key, copy in copies.items():
            copy.assign(reader.get_tensor(key))
    return has_all


def _value(variable: Any) -> Any:
    return variable.value if isinstance(variable, keras.Variable) else variable
