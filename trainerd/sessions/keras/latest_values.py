"""What a step gives beside single numbers: arrays, of which the last are kept until somebody asks."""

from __future__ import annotations

from typing import Any

import numpy as np
import tensorflow as tf


class LatestArrays:
    """The arrays of the last step, by name. To keep one costs a step an op, and no copy."""

    def __init__(self) -> None:
        self._kept: dict[str, tf.Variable] = {}

    @property
    def variables(self) -> list[Any]:
        """What they are kept in: no variables of the state, since the next step replaces them unread."""
        return list(self._kept.values())

    def keep(self, name: str, value: tf.Tensor) -> None:
        """Called where a step is traced: keep this array of it.

        Args:
          value: numbers, of any shape, which may be another in each step.
        """
        if name not in self._kept:  # a `tf.function` that makes variables is traced twice
            with tf.init_scope():
                self._kept[name] = tf.Variable(tf.zeros([], value.dtype), trainable=False, shape=tf.TensorShape(None))
        self._kept[name].assign(value, read_value=False)

    def read(self) -> dict[str, np.ndarray[Any, Any]]:
        """Those of the last step."""
        return {name: variable.numpy() for name, variable in self._kept.items()}
