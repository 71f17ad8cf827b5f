"""Batches that Python makes, as a dataset: of a generator, and of a `keras.utils.PyDataset`."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from trainerd.errors import EntryError

_LOOKS_AT = 2  # batches, to find out which dimensions differ, as Keras does


def of_python(x: Any, *, shuffle: bool) -> tf.data.Dataset | None:
    """Return the batches of a generator or a PyDataset as a dataset, whose position cannot be saved; else None.

    Args:
      x: the data, as it is given to `fit`.
      shuffle: whether a PyDataset's batches come in another order in each epoch.

    Raises:
      EntryError: it has no batch.
    """
    if isinstance(x, keras.utils.PyDataset):
        return _of_batches(_Batches(x, shuffle=shuffle))
    if isinstance(x, Iterator):
        first = list(itertools.islice(x, _LOOKS_AT))
        rest = itertools.chain(first, x)
        return _dataset(lambda: rest, first)
    return None


class _Batches:
    """Yields each batch of a PyDataset once, and then ends its epoch."""

    def __init__(self, batches: Any, *, shuffle: bool) -> None:
        self.batches = batches
        self._random = np.random.default_rng(0) if shuffle else None

    def __call__(self) -> Iterator[Any]:
        order = range(self.batches.num_batches)
        for number in order if self._random is None else self._random.permutation(order):
            yield self.batches[int(number)]
        self.batches.on_epoch_end()


def _of_batches(batches: _Batches) -> tf.data.Dataset:
    count = batches.batches.num_batches
    if count is None:
        raise EntryError("fit: x is a PyDataset without an end. Give its length: `__len__` or `num_batches`.")
    first = [batches.batches[number] for number in range(min(count, _LOOKS_AT))]
    return _dataset(batches, first).apply(tf.data.experimental.assert_cardinality(count))


def _dataset(batches: Any, first: list[Any]) -> tf.data.Dataset:
    if not first:
        raise EntryError("fit: x has no batch.")
    arrays = list(map(_arrays, first))
    signature = tf.nest.map_structure(_spec_of, *arrays)
    return tf.data.Dataset.from_generator(lambda: map(_arrays, batches()), output_signature=signature)


def _spec_of(*arrays: Any) -> tf.TensorSpec:
    """Return the type of an array in each batch. The first dimension is open, and each in which two batches differ."""
    sizes = [set(size) for size in zip(*(array.shape for array in arrays), strict=True)]
    shape = [None if at == 0 or len(size) > 1 else size.pop() for at, size in enumerate(sizes)]
    return tf.TensorSpec(shape, arrays[0].dtype)


def _arrays(batch: Any) -> Any:
    """Return a batch of arrays, with floats in Keras's default dtype, and tuples in place of lists."""
    if isinstance(batch, dict):
        return {name: _arrays(part) for name, part in batch.items()}
    if isinstance(batch, list | tuple):
        return tuple(map(_arrays, batch))
    array = np.asarray(batch)
    return array.astype(keras.backend.floatx()) if np.issubdtype(array.dtype, np.floating) else array
