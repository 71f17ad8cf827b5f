"""The arguments of Keras's `fit`, as a KerasJob."""

from __future__ import annotations

import logging
import math
from collections.abc import Mapping
from typing import Any

import keras
import tensorflow as tf

from trainerd.errors import EntryError
from trainerd.job.definition import KerasJob
from trainerd.programs.keras.batches import hooks_of, kept_by, of_python
from trainerd.text import an

log = logging.getLogger(__name__)

_RESTARTS = "the position in a %s%s cannot be saved: a resume restarts the epoch that was interrupted"
_DIFFERS = (
    "no checkpoint holds what the batches of %s use: %s. A run that resumes trains on other batches than one without a "
    "pause. Augment with Keras's layers in the model: their random numbers are saved"
)
_NUMBERS = "biuf"  # what numpy calls booleans, integers and floats
_BATCH_SIZE = 32  # Keras's default, for arrays


def as_job(
    model: Any,
    x: Any,
    y: Any,
    *,
    batch_size: int | None,
    validation_split: float,
    validation_data: Any,
    class_weight: Mapping[int, float] | None,
    sample_weight: Any,
    epochs_before: int,
    **others: Any,
) -> tuple[KerasJob, bool]:
    """Return the job that trains as `model.fit` does with these arguments, and whether its position can be saved.

    Args:
      model: the model, compiled.
      x, y, sample_weight: arrays, or lists, tuples and dicts of arrays; or a `tf.data.Dataset`, a PyDataset or a
        generator as x alone.
      batch_size: examples of a batch of arrays. Default: 32. Of no effect on batches, as in `fit`.
      validation_split: the part of the arrays, from their end, to validate with.
      validation_data: data to validate with.
      class_weight: a weight for each class of y; those that are left out weigh 1.
      epochs_before: the number of epochs of the calls before.
      others: the arguments of KerasJob with the same names.

    Raises:
      EntryError: they are not what `fit` takes, or trainerd cannot train so.
    """
    given, made = x, of_python(x, shuffle=bool(others.get("shuffle")), first_epoch=epochs_before)
    if isinstance(x, tf.data.Dataset) or made is not None:
        kind = type(x).__name__ if made is not None else "tf.data.Dataset"
        _require_none(f"x is {an(kind)}", y=y, sample_weight=sample_weight)
        if validation_split:
            raise EntryError("fit: validation_split is for arrays. Split the dataset yourself: take() and skip().")
        if made is not None:
            x, others["steps_per_epoch"] = made.dataset, others["steps_per_epoch"] or made.steps_per_epoch
            if not made.is_exact:
                why = f" with an `{hooks_of(given)[0]}`" if isinstance(given, keras.utils.PyDataset) else ""
                log.warning(_RESTARTS, kind, why, extra={"event": "input"})
            elif kept := kept_by(given):
                log.warning(_DIFFERS, an(kind), "; ".join(kept), extra={"event": "input"})
        data = x if class_weight is None else x.map(_Weighted(class_weight))
        return KerasJob(model, data, validation_data, **others), made is None or made.is_exact
    if isinstance(x, tf.distribute.DistributedDataset):
        raise EntryError("fit: x is a DistributedDataset. Give the tf.data.Dataset itself: trainerd splits each batch.")
    if not _is_arrays(x):
        raise EntryError(
            f"fit: x is of type {type(x).__name__}. trainerd takes arrays, tensors, pandas objects, and lists, tuples "
            "and dicts of them; a tf.data.Dataset, a PyDataset, or a generator."
        )
    if class_weight is not None and sample_weight is not None:
        raise EntryError("fit: give class_weight or sample_weight, not both.")
    data = (_tensors(x), _tensors(y), _tensors(sample_weight))
    if validation_split and validation_data is None:
        data, validation_data = _split(data, validation_split)
    if class_weight is not None:
        data = (*data[:2], _weights(data[1], class_weight))
    batch_size = batch_size or _batch_size(data, others["steps_per_epoch"])
    return KerasJob(model, data, validation_data, batch_size=batch_size, **others), True


def _batch_size(data: tuple[Any, ...], steps_per_epoch: int | None) -> int:
    """Return Keras's batch size for arrays: all examples in the steps of an epoch, if these are given."""
    if not steps_per_epoch:
        return _BATCH_SIZE
    count = next(int(each.shape[0]) for each in tf.nest.flatten(data) if each is not None)
    return math.ceil(count / steps_per_epoch)


def _require_none(why: str, **given: Any) -> None:
    for name, value in given.items():
        if value is not None:
            raise EntryError(f"fit: {why}, which contains the batches, so {name} must be left out.")


def _is_arrays(x: Any) -> bool:
    if isinstance(x, dict):
        return all(map(_is_arrays, x.values()))
    if isinstance(x, list | tuple):
        return all(map(_is_arrays, x))
    return (hasattr(x, "shape") and hasattr(x, "dtype")) or hasattr(x, "to_numpy")


def _tensors(given: Any) -> Any:
    """Return the same structure, with each pandas object as the array that it holds."""
    if isinstance(given, dict):
        return {name: _tensors(part) for name, part in given.items()}
    if isinstance(given, list | tuple):
        return type(given)(map(_tensors, given))
    if not hasattr(given, "to_numpy"):
        return given
    array = given.to_numpy()
    if array.ndim == 1:
        return array[:, None]  # as `fit` does it with a column
    if array.dtype != object or not all(getattr(each, "kind", "O") in _NUMBERS for each in given.dtypes):
        return array
    try:
        return array.astype(keras.backend.floatx())  # columns of numbers and of booleans, say
    except TypeError as error:
        raise EntryError(f"fit: a table has a value that is not a number: {error}. Fill it in first.") from error


def _split(data: tuple[Any, ...], share: float) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
    """Return the first part of arrays to train with, and the rest to validate with."""
    if not 0 < share < 1:
        raise EntryError(f"fit: validation_split must be between 0 and 1, and is {share!r}.")
    arrays = [each for each in tf.nest.flatten(data) if each is not None]
    count = int(arrays[0].shape[0])
    at = math.floor(count * (1 - share))
    if at in (0, count):
        raise EntryError(f"fit: validation_split = {share} of {count} examples leaves none to train or validate with.")
    first = tf.nest.map_structure(lambda array: None if array is None else array[:at], data)
    rest = tf.nest.map_structure(lambda array: None if array is None else array[at:], data)
    while rest[-1] is None:
        rest = rest[:-1]
    return first, rest


class _Weighted:
    """Gives each example of a batch the weight of its class."""

    def __init__(self, class_weight: Mapping[int, float]) -> None:
        self._class_weight = class_weight

    def __call__(self, *batch: Any) -> tuple[Any, ...]:
        x, y, weights = keras.utils.unpack_x_y_sample_weight(batch)
        if weights is not None:
            raise EntryError("fit: the dataset has sample weights, so class_weight must be left out.")
        return x, y, _weights(y, self._class_weight)


def _weights(y: Any, class_weight: Mapping[int, float]) -> tf.Tensor:
    """Return a weight for each example, from its class: a number, or the highest of several outputs."""
    labels = tf.convert_to_tensor(y)
    if labels.shape.rank is not None and labels.shape.rank > 1:
        classes = tf.argmax(labels, -1) if labels.shape[-1] != 1 else tf.squeeze(labels, -1)
    else:
        classes = labels
    classes = tf.cast(tf.round(classes) if classes.dtype.is_floating else classes, tf.int64)
    weights = tf.ones(tf.shape(classes), keras.backend.floatx())
    for number, weight in class_weight.items():
        weights = tf.where(classes == int(number), tf.cast(weight, weights.dtype), weights)
    return weights
