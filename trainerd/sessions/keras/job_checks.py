"""Checks a KerasJob before it trains, so that mistakes show at once, not epochs later."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Sequence
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from trainerd.errors import EntryError
from trainerd.job.definition import KerasJob
from trainerd.job.keras_backend import require_tensorflow
from trainerd.sessions.input.shuffled_indices import shuffled_indices
from trainerd.text import counted, type_of
from trainerd.workers.place import cluster
from trainerd.workers.training.worker_batches import worker_batches

WITHOUT_END = 2**31 - 1  # epochs: more than any run has, and still an int32


def checked(job: KerasJob) -> KerasJob:
    """Return the same job, with its callbacks in one list.

    Args:
      job: what is to be trained.

    Raises:
      EntryError: it cannot be trained.
    """
    require_trainable(job.model)
    if job.model.run_eagerly and cluster().size > 1:
        raise EntryError("KerasJob: several workers train in the graph. Compile the model without run_eagerly=True.")
    for name in ("steps_per_epoch", "epochs", "validation_steps", "validation_batch_size"):
        _require_count(name, getattr(job, name), or_none=True)
    if not isinstance(job.data, tf.data.Dataset):
        _require_count("batch_size", job.batch_size)
    every = job.validation_freq
    if isinstance(every, Collection) and not isinstance(every, str):
        for epoch in every:
            _require_count("validation_freq", epoch)
    else:
        _require_count("validation_freq", every)
    _require_validation(job)
    callbacks = job.callbacks
    if isinstance(callbacks, keras.callbacks.CallbackList):
        raise EntryError("KerasJob: callbacks is a CallbackList; give the callbacks themselves, in a list.")
    return dataclasses.replace(job, callbacks=flat_callbacks(callbacks))


def data_of(job: KerasJob, first_epoch: int = 0) -> tuple[tf.data.Dataset, int | None, int | None]:
    """Return the data as a dataset, with its number of batches, and that of an epoch.

    None stands for data without an end, and for a number that is unknown before the data was read once.

    Args:
      job: what is trained.
      first_epoch: arrays begin with the order of this epoch, from 0.

    Raises:
      EntryError: it is not data.
    """
    if isinstance(job.data, tf.data.Dataset):
        count = int(job.data.cardinality())
        if job.steps_per_epoch is None and count == tf.data.INFINITE_CARDINALITY:
            raise EntryError("KerasJob: the data has no end, so give steps_per_epoch.")
        size = count if count >= 0 else None
        return job.data, size, job.steps_per_epoch or size
    arrays, count = _arrays_of(job)
    size = -(-count // job.batch_size)
    if cluster().size > 1:
        return _parted(job, arrays, count, first_epoch), None, job.steps_per_epoch or size
    if not job.shuffle:
        return tf.data.Dataset.from_tensor_slices(arrays).batch(job.batch_size), size, job.steps_per_epoch or size
    indices = shuffled_indices(count, seed=0, batch_size=job.batch_size, runs_on=False, first_epoch=first_epoch)
    dataset = indices.map(lambda chosen: tf.nest.map_structure(lambda array: tf.gather(array, chosen), arrays))
    return dataset, None, job.steps_per_epoch or size


def require_splits(job: KerasJob, devices: int) -> None:
    """Refuse what several devices cannot train: a step of Python, and arrays with a batch of fewer examples.

    Raises:
      EntryError: they cannot train the job.
    """
    if job.model.run_eagerly:
        raise EntryError("KerasJob: several devices train in the graph. Compile the model without run_eagerly=True.")
    if isinstance(job.data, tf.data.Dataset):
        return
    count = _arrays_of(job)[1]
    least = min(count, job.batch_size, count % job.batch_size or count)
    if least < devices:
        raise EntryError(
            f"KerasJob: {devices} devices split each batch, and one of {count} examples in batches of "
            f"{job.batch_size} has {counted(least, 'example')}. Take another batch_size."
        )


def validation_inputs(validation_data: Any) -> Any:
    """Return the data that a validation reads: a dataset, or the arrays of the inputs; None without a validation."""
    return None if validation_data is None else keras.utils.unpack_x_y_sample_weight(validation_data)[0]


def epochs_of(job: KerasJob, epoch_steps: int | None, max_steps: int | None) -> int:
    """Return the number of epochs for callbacks, which `fit` always gives them.

    Args:
      job: what is trained.
      epoch_steps: the steps of an epoch; None if unknown.
      max_steps: the step at which training ends; None if it has no such end.
    """
    if job.epochs is not None:
        return job.epochs
    return -(-max_steps // epoch_steps) if max_steps and epoch_steps else WITHOUT_END


def _parted(job: KerasJob, arrays: Any, count: int, first_epoch: int) -> tf.data.Dataset:
    """Return a dataset of this worker's part of each batch of arrays, without an end."""
    if count % job.batch_size:
        raise EntryError(
            f"KerasJob: several workers split each batch among them, and the last of {count} examples in batches of "
            f"{job.batch_size} is smaller. Take a batch_size that divides {count}; or give a dataset made with "
            "trainerd.data.worker_batches."
        )
    if job.shuffle:
        indices = shuffled_indices(count, seed=0, batch_size=job.batch_size, first_epoch=first_epoch)
    else:
        indices = tf.data.Dataset.range(count).batch(job.batch_size, drop_remainder=True).repeat()
    chosen = worker_batches(indices)
    return chosen.map(lambda those: tf.nest.map_structure(lambda array: tf.gather(array, those), arrays))


def require_trainable(model: Any, name: str = "KerasJob") -> None:
    """Refuse a model that trainerd cannot train.

    Args:
      model: the model.
      name: what it is given to, for the message.

    Raises:
      EntryError: it cannot be trained.
    """
    require_tensorflow()
    if not isinstance(model, keras.Model):
        raise EntryError(f"{name}: the model must be a keras.Model, and is {model!r}.")
    if not model.compiled:
        raise EntryError(f"{name}: the model is not compiled. Call model.compile(optimizer, loss, metrics) first.")


def has_strategy(model: Any) -> bool:
    """Return whether a model was made under a strategy of its own, be it of one device: it distributes its data."""
    strategy, probe = model.distribute_strategy, tf.data.Dataset.range(1).batch(1)
    return strategy.num_replicas_in_sync > 1 or strategy.experimental_distribute_dataset(probe) is not probe


def _require_count(name: str, value: Any, *, or_none: bool = False) -> None:
    if value is None and or_none:
        return
    if not isinstance(value, int | np.integer) or isinstance(value, bool) or value < 1:
        left_out = ", or left out" if or_none else ""
        raise EntryError(f"KerasJob: {name} must be a whole number, 1 or more{left_out}, and is {value!r}.")


def _require_validation(job: KerasJob) -> None:
    data = job.validation_data
    if data is None:
        return
    try:
        keras.utils.unpack_x_y_sample_weight(data)
    except ValueError:
        raise EntryError(
            "KerasJob: validation_data must be a tf.data.Dataset, or (x, y) or (x, y, sample_weight), and is "
            f"{type_of(data)} of {len(data)}."
        ) from None
    is_endless = isinstance(data, tf.data.Dataset) and int(data.cardinality()) == tf.data.INFINITE_CARDINALITY
    if is_endless and job.validation_steps is None:
        raise EntryError("KerasJob: validation_data has no end, so give validation_steps.")


def flat_callbacks(callbacks: Any) -> Sequence[Any]:
    """Return all callbacks in one list. Keras takes none, one, or lists of them."""
    if callbacks is None:
        return []
    if isinstance(callbacks, list | tuple):
        return [each for part in callbacks for each in flat_callbacks(part)]
    return [callbacks]


def _arrays_of(job: KerasJob) -> tuple[Any, int]:
    """Return the data as tensors, and their number of examples."""
    if not isinstance(job.data, tuple) or not 1 <= len(job.data) <= 3:
        raise EntryError(
            "KerasJob: data must be a tf.data.Dataset, or a tuple of arrays such as (x, y), and is "
            f"{type_of(job.data)}. Make a dataset of it: tf.data.Dataset.from_tensor_slices(...).batch(...)."
        )
    given = job.data
    while len(given) > 1 and given[-1] is None:  # as a caller of `fit` leaves out y, or the weights
        given = given[:-1]
    try:
        arrays = tf.nest.map_structure(_tensor, _without_lists(given))
        sizes = {int(array.shape[0]) for array in tf.nest.flatten(arrays)}
    except (ValueError, TypeError, IndexError) as error:
        said = str(error).rstrip(".")
        why = said if len(said) < 500 else f"{said[:500]} …"
        raise EntryError(
            f"KerasJob: a part of the data is not an array of examples: {why}. Give arrays, or lists, "
            "tuples and dicts of arrays; of anything else make a tf.data.Dataset."
        ) from error
    if len(sizes) != 1 or not min(sizes):
        raise EntryError(f"KerasJob: the arrays in data must have the same number of examples, and have {sizes}.")
    if len(arrays) == 1:  # as `fit` does, whose train_step gets x itself
        arrays = keras.utils.pack_x_y_sample_weight(*arrays)
    return arrays, min(sizes)


def _without_lists(data: Any) -> Any:
    """Return the same structure with tuples in place of lists.

    tf.data makes one tensor of a list, and Keras does not.
    """
    if isinstance(data, list | tuple):
        return tuple(map(_without_lists, data))
    if isinstance(data, dict):
        return {name: _without_lists(part) for name, part in data.items()}
    return data


def _tensor(array: Any) -> tf.Tensor:
    """Return a tensor of an array, with floats in Keras's default dtype, as `fit` makes them."""
    tensor = tf.convert_to_tensor(array)
    if tensor.shape.rank == 0:
        raise ValueError(f"{array!r} is one value")
    return tf.cast(tensor, keras.backend.floatx()) if tensor.dtype.is_floating else tensor
