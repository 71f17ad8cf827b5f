"""The values of trainable variables, by their names."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import tensorflow as tf


def weights_of(parts: Mapping[str, Any]) -> dict[str, Any]:
    """Return the values of the trainable variables. On a CPU they share the variables' memory until a step writes.

    Args:
      parts: variables, and objects with `trainable_variables`, by name.

    Returns:
      Tensors by the names of their variables; "part/name" for a variable whose name another one has taken.
    """
    found: dict[str, Any] = {}
    for part, value in parts.items():
        for variable in _trainable(value):
            name = getattr(variable, "path", None) or variable.name.removesuffix(":0")
            found[name if name not in found else f"{part}/{name}"] = tf.convert_to_tensor(variable)
    return found


def _trainable(value: Any) -> list[Any]:
    variables = [value] if isinstance(value, tf.Variable) else getattr(value, "trainable_variables", ())
    return [each for each in variables if each.trainable]
