"""The input functions of `tf.compat.v1.estimator.inputs`, on datasets: their position is saved."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf

__all__ = ["numpy_input_fn", "pandas_input_fn"]


def numpy_input_fn(
    x: Any,
    y: Any = None,
    batch_size: int = 128,
    num_epochs: int | None = 1,
    shuffle: bool | None = None,
    queue_capacity: int = 1000,
    num_threads: int = 1,
) -> Callable[[], Any]:
    """Return an input function of arrays.

    Args:
      x: an array, or a dict of name to array: the features.
      y: the same for the labels; None for none.
      batch_size: examples of a batch.
      num_epochs: how often they are read. None: for ever.
      shuffle: whether they are shuffled again in each epoch.
      queue_capacity: how many of them are shuffled at a time.
      num_threads: not used: it is the dataset that reads.

    Raises:
      ValueError: `shuffle` is not given, or the arrays are of different lengths.
    """
    if not isinstance(shuffle, bool):
        raise ValueError(
            f"shuffle must be provided and explicitly set as boolean (it is recommended to set it as True "
            f"for training); got {shuffle}"
        )
    whole = x if y is None else (x, y)
    lengths = {len(array) for array in tf.nest.flatten(whole)}
    if len(lengths) != 1:
        raise ValueError(f"Length of tensors in x and y is mismatched: {sorted(lengths)}")

    def input_fn() -> Any:
        dataset = tf.data.Dataset.from_tensor_slices(tf.nest.map_structure(np.asarray, whole))
        if shuffle:
            dataset = dataset.shuffle(min(queue_capacity, *lengths))
        return dataset.repeat(num_epochs).batch(batch_size)

    return input_fn


def pandas_input_fn(
    x: Any,
    y: Any = None,
    batch_size: int = 128,
    num_epochs: int | None = 1,
    shuffle: bool | None = None,
    queue_capacity: int = 1000,
    num_threads: int = 1,
    target_column: str = "target",
) -> Callable[[], Any]:
    """Return an input function of a `pandas.DataFrame`; a column is a feature. The arguments are those of
    `numpy_input_fn`.

    Args:
      x: the features.
      y: a Series or a DataFrame of labels; None for none.
      target_column: not used: labels are kept apart.
      batch_size, num_epochs, shuffle, queue_capacity, num_threads: see there.
    """
    features = {name: x[name].to_numpy() for name in x.columns}
    labels = y if y is None else y.to_numpy() if y.ndim == 1 else {name: y[name].to_numpy() for name in y.columns}
    return numpy_input_fn(features, labels, batch_size, num_epochs, shuffle, queue_capacity, num_threads)
