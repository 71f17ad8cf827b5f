"""The step of a Keras model, as it runs in the graph."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import tensorflow as tf

from trainerd.checkpoints.contents.keras_variables import identity
from trainerd.sessions.tf2.replicas import Replicas


def step_of(
    model: Any,
    arrays: LatestArrays | None = None,
    names: set[str] | None = None,
    replicas: Replicas | None = None,
) -> Any:
    """Return the model's own step as a function, made as `fit` makes it: for Python, if the model runs eagerly.

    Args:
      model: the model, compiled.
      arrays: keeps the arrays that it returns. None: nobody asks for them.
      names: gets the names of all that it returns.
      replicas: those that do it together; None: it runs on one device.
    """
    step = tf.function(model.train_step, autograph=False, jit_compile=True) if model.jit_compile else model.train_step
    if replicas is not None:
        step = replicas.replicated(step)

    def train_step(data: Any) -> dict[str, tf.Tensor]:
        given = step(data)
        if not isinstance(given, Mapping):
            raise TypeError(f"the model's train_step must return a dict of name to value, and returned {given!r}")
        returned = {name: tf.convert_to_tensor(value) for name, value in flat(given).items()}
        if names is not None:
            names.update(returned)
        numbers = {name: value for name, value in returned.items() if _is_numbers(value)}
        for name, value in numbers.items():
            if value.shape.rank != 0 and arrays is not None:
                arrays.keep(name, value)
        return {name: value for name, value in numbers.items() if value.shape.rank == 0}

    return train_step if model.run_eagerly else tf.function(train_step, autograph=False)


def trained_variables(model: Any) -> Any:
    """Return the variables that a model's step trains."""
    return id(model.optimizer), [identity(variable) for variable in model.trainable_variables]


def flat(logs: Mapping[str, Any]) -> dict[str, Any]:
    """Return logs flattened as `fit` does it: nested logs, such as those of all compiled metrics, become one dict."""
    found: dict[str, Any] = {}
    for name, value in logs.items():
        found |= flat(value) if isinstance(value, Mapping) else {name: value}
    return found


def _is_numbers(value: tf.Tensor) -> bool:
    return bool(value.dtype.is_floating or value.dtype.is_integer or value.dtype.is_bool)


class LatestArrays:
    """The arrays of the last step, by name. Keeping one costs a step one op, and no copy."""

    def __init__(self) -> None:
        self._kept: dict[str, tf.Variable] = {}

    @property
    def variables(self) -> list[Any]:
        """The variables that hold them. They are not part of the state, since the next step overwrites them unread."""
        return list(self._kept.values())

    def keep(self, name: str, value: tf.Tensor) -> None:
        """Keep this array of the step. Called while the step is traced.

        Args:
          value: numbers, of any shape, which may differ from step to step.
        """
        if name not in self._kept:  # a `tf.function` that makes variables is traced twice
            with tf.init_scope():
                self._kept[name] = tf.Variable(tf.zeros([], value.dtype), trainable=False, shape=tf.TensorShape(None))
        self._kept[name].assign(value, read_value=False)

    def read(self) -> dict[str, np.ndarray[Any, Any]]:
        """Return the arrays of the last step, by name."""
        return {name: variable.numpy() for name, variable in self._kept.items()}
