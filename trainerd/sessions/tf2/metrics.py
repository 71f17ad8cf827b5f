"""The metrics of a training step, as one row of numbers."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from trainerd.errors import EntryError

LOSS = "loss"  # what a step's one number is named, and what is checked for NaN and for minima


def layout(outputs: Any) -> tuple[tuple[str, ...], tf.DType]:
    """Return the names of a step's metrics, and a type that holds them all.

    Args:
      outputs: what the step returned when it was traced: a dict of scalars, one scalar, or None.

    Returns:
      The names in the order of a row, and float32, or float64 if a metric needs it.

    Raises:
      EntryError: the step returned something else.
    """
    metrics = as_dict(outputs)
    for name, value in metrics.items():
        if not isinstance(name, str) or not name:
            raise EntryError(f"the step returned a metric named {name!r}; names are strings.")
        shape = getattr(value, "shape", None)
        if shape is None or not (value.dtype.is_floating or value.dtype.is_integer or value.dtype.is_bool):
            raise EntryError(f"the step returned {value!r} for {name!r}; a metric is a number.")
        if shape.rank != 0:
            how = "Reduce it: tf.reduce_mean(...)."
            if shape.rank is None:
                how = "If it is a scalar when it runs, say so: tf.ensure_shape(..., [])."
            raise EntryError(f"the step returned a tensor of shape {shape} for {name!r}; a metric is a scalar. {how}")
    wide = any(v.dtype == tf.float64 or (v.dtype.is_integer and v.dtype.size > 2) for v in metrics.values())
    return tuple(metrics), tf.float64 if wide else tf.float32


def as_row(outputs: Any, names: tuple[str, ...], dtype: tf.DType) -> tf.Tensor:
    """Return a step's metrics as a tensor of `row_shape`."""
    metrics = as_dict(outputs)
    values = [tf.cast(metrics[name], dtype) for name in names]
    return values[0] if len(values) == 1 else tf.stack(values)


def row_shape(names: tuple[str, ...]) -> list[int]:
    """Return [metrics], or a scalar's shape if there is one metric: a vector of it would take an op of each step."""
    return [] if len(names) == 1 else [len(names)]


def as_dict(outputs: Any) -> dict[str, Any]:
    """Return a step's metrics by name.

    Raises:
      EntryError: the step returned something else.
    """
    if outputs is None:
        return {}
    if isinstance(outputs, dict):
        return outputs
    if isinstance(outputs, tf.Tensor | tf.TensorSpec):
        return {LOSS: outputs}
    raise EntryError(
        f"the step returned a value of type {type(outputs).__name__}; return a dict of name to scalar tensor, one "
        "scalar, or None."
    )
