"""The copies of one variable on several devices, as a `tf.distribute` strategy makes them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import keras
import tensorflow as tf

_COPIES = "replicas/"  # the copies in a checkpoint that may differ


def is_distributed(variable: Any) -> bool:
    """Return whether a variable has a copy on each device of a strategy."""
    return isinstance(_value(variable), tf.distribute.DistributedValues)


def strategy_of(variable: Any) -> Any:
    """Return the strategy for which a distributed variable was made."""
    return _value(variable).distribute_strategy


def is_aggregated(variable: Any) -> bool:
    """Return whether TensorFlow aggregates what the devices write into a variable: all copies are the same."""
    value = _value(variable)
    is_on_write = value.synchronization is not tf.VariableSynchronization.ON_READ
    return is_on_write and value.aggregation != tf.VariableAggregation.NONE  # == knows TensorFlow 1's enum, too


def copies_of(variable: Any) -> Sequence[Any]:
    """Return the variable of each device; the variable itself if it is on one."""
    if not is_distributed(variable):
        return [variable]
    copies: Sequence[Any] = strategy_of(variable).experimental_local_results(_value(variable))
    return copies


def key_of_copy(device: int, key: str) -> str:
    """Return the key in a checkpoint of a variable's copy on a device, by the variable's own key."""
    return f"{_COPIES}{device}/{key}"


def is_copy(key: str) -> bool:
    """Return whether a key in a checkpoint is that of a variable's copy on a device."""
    return key.startswith(_COPIES)


def restore_copies(prefix: Path, copies: Mapping[str, Any]) -> bool:
    """Restore copies that may differ, if a checkpoint was saved by as many devices. If not, leave them as they are.

    Args:
      copies: copies of all devices, by their keys.

    Returns:
      Whether they were restored.
    """
    if not copies:
        return True
    reader = tf.train.load_checkpoint(str(prefix))
    saved = set(filter(is_copy, reader.get_variable_to_shape_map()))
    if {_device(key) for key in saved} != {_device(key) for key in copies}:
        return False
    for key in saved & copies.keys():
        copies[key].assign(reader.get_tensor(key))
    return True


def _device(key: str) -> str:
    """Return the number of the device in the key of a copy."""
    return key.split("/")[1]


def _value(variable: Any) -> Any:
    return variable.value if isinstance(variable, keras.Variable) else variable
