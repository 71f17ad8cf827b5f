"""Batches that Python makes, as a dataset: of a generator, and of a `keras.utils.PyDataset`."""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from trainerd.errors import EntryError
from trainerd.job.outside_state import functions_of, kept_outside
from trainerd.sessions.input.shuffled_indices import shuffled_indices

_LOOKS_AT = 2  # batches, to find out which dimensions differ, as Keras does


@dataclass(frozen=True)
class PythonBatches:
    """Batches that Python makes.

    Attributes:
      dataset: yields them.
      steps_per_epoch: how many an epoch has; None if the dataset says so itself, or that is unknown.
      is_exact: whether a checkpoint can hold the position.
    """

    dataset: tf.data.Dataset
    steps_per_epoch: int | None = None
    is_exact: bool = False


def of_python(x: Any, *, shuffle: bool, first_epoch: int) -> PythonBatches | None:
    """Return the batches of a generator or a PyDataset as a dataset; None for other data.

    Args:
      x: the data, as it is given to `fit`.
      shuffle: whether a PyDataset's batches come in another order in each epoch.
      first_epoch: the number of epochs before, whose orders do not come again.

    Raises:
      EntryError: it has no batch.
    """
    if isinstance(x, keras.utils.PyDataset):
        if not hooks_of(x):
            return _by_number(x, shuffle=shuffle, first_epoch=first_epoch)
        return PythonBatches(_of_batches(_Batches(x, shuffle=shuffle, seed=first_epoch)))
    if isinstance(x, Iterator):
        first = list(itertools.islice(x, _LOOKS_AT))
        rest = itertools.chain(first, x)
        return PythonBatches(_dataset(lambda: rest, first))
    return None


def hooks_of(batches: Any) -> list[str]:
    """Return the methods of a PyDataset that change it between epochs."""
    names = ("on_epoch_begin", "on_epoch_end")
    return [name for name in names if getattr(type(batches), name) is not getattr(keras.utils.PyDataset, name)]


def kept_by(batches: Any) -> list[str]:
    """Return what a PyDataset keeps and no checkpoint holds, such as a generator of random numbers, in words."""
    own = [
        f"{name} (of the type {type(value).__name__})"
        for name, value in vars(batches).items()
        if isinstance(value, np.random.Generator | np.random.RandomState | random.Random)
    ]
    kinds = [each for each in type(batches).__mro__ if each is not object and not each.__module__.startswith("keras.")]
    functions = [found for kind in kinds for name, found in functions_of(kind) if name != "__init__"]
    return [*own, *kept_outside(functions, batches, lambda value: False)]


def _by_number(batches: Any, *, shuffle: bool, first_epoch: int) -> PythonBatches:
    """Return a dataset that asks for each batch by its number, so that its position is a number.

    A PyDataset that changes something between epochs has a state, which this would not save.
    """
    count = _count_of(batches)
    first = [_arrays(batches[number]) for number in range(min(count, _LOOKS_AT))]
    signature = _signature_of(first)
    specs = tf.nest.flatten(signature)

    def batch_of(number: Any) -> list[Any]:
        arrays: list[Any] = tf.nest.flatten(_arrays(batches[int(number)]))
        return arrays

    def load(number: tf.Tensor) -> Any:
        found = tf.numpy_function(batch_of, [number], [spec.dtype for spec in specs], stateful=False)
        shaped = [tf.ensure_shape(each, spec.shape) for each, spec in zip(found, specs, strict=True)]
        return tf.nest.pack_sequence_as(signature, shaped)

    numbers = tf.data.Dataset.range(count)
    if shuffle:
        numbers = shuffled_indices(count, seed=0, runs_on=False, first_epoch=first_epoch)
    at_once = batches.workers if batches.workers > 1 else None
    return PythonBatches(numbers.map(load, num_parallel_calls=at_once), count if shuffle else None, is_exact=True)


class _Batches:
    """Yields each batch of a PyDataset once in an epoch, and calls its hooks as Keras does."""

    def __init__(self, batches: Any, *, shuffle: bool, seed: int) -> None:
        self.batches = batches
        self._random = np.random.default_rng(seed) if shuffle else None
        self._has_begun = False

    def __call__(self) -> Iterator[Any]:
        if not self._has_begun:
            self._has_begun = True
            self.batches.on_epoch_end()  # `fit` calls it before the first epoch too
        self.batches.on_epoch_begin()
        order = range(self.batches.num_batches)
        for number in order if self._random is None else self._random.permutation(order):
            yield self.batches[int(number)]
        self.batches.on_epoch_end()


def _of_batches(batches: _Batches) -> tf.data.Dataset:
    count = _count_of(batches.batches)
    first = [batches.batches[number] for number in range(min(count, _LOOKS_AT))]
    return _dataset(batches, first).apply(tf.data.experimental.assert_cardinality(count))


def _count_of(batches: Any) -> int:
    count = batches.num_batches
    if count is None:
        raise EntryError("fit: x is a PyDataset without an end. Give its length: `__len__` or `num_batches`.")
    return int(count)


def _dataset(batches: Any, first: list[Any]) -> tf.data.Dataset:
    signature = _signature_of(list(map(_arrays, first)))
    return tf.data.Dataset.from_generator(lambda: map(_arrays, batches()), output_signature=signature)


def _signature_of(first: list[Any]) -> Any:
    """Return the types of the arrays of a batch, from the first batches."""
    if not first:
        raise EntryError("fit: x has no batches.")
    return tf.nest.map_structure(_spec_of, *first)


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
