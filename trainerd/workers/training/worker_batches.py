"""Each worker's part of every batch. Imports TensorFlow."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from trainerd.errors import EntryError
from trainerd.sessions.input.pipeline import inputs, stage_name, stages
from trainerd.sessions.input.shuffle_order import has_seed
from trainerd.workers.place import cluster

_MARK = "_trainerd_worker_batches"
_HOLD_NOTHING = {"Map", "Options"}  # of the stages after it


def worker_batches(dataset: tf.data.Dataset) -> tf.data.Dataset:
    """Split every batch among the workers of a cluster; alone, a worker has all of it.

    All workers read the same batches in the same order, and each takes its part of each. So the position of one is
    that of all, a checkpoint holds it once, and a run may resume with another number of workers: it sees the same
    elements at the same steps. What costs time, such as decoding, comes after it: then each worker does its part.

    A `prefetch`, or a `map` with `num_parallel_calls`, after it holds elements of one worker. Then each has a position
    of its own: the run resumes exactly, with as many workers as before.

        indices = trainerd.data.shuffled_indices(size, seed=1, batch_size=256)
        dataset = trainerd.data.worker_batches(indices).map(load)

    Args:
      dataset: its elements are tensors, or a structure of them, whose first dimension is the batch; its size must be
        known, and divisible by the number of workers.

    Returns:
      A dataset of the same structure, with the first dimension divided by the number of workers.

    Raises:
      EntryError: a batch cannot be split; or the dataset draws seeds itself, others on each worker.
    """
    place = cluster()
    if place.size > 1 and any(stage_name(each) == "Shuffle" and not has_seed(each) for each in stages(dataset)):
        raise EntryError(
            "worker_batches: the dataset is shuffled without a seed, so each worker would have its own order, and "
            "take its part of other batches. Use trainerd.data.shuffled_indices; or give `shuffle` a seed; or set "
            "`seed` in the config."
        )
    for spec in tf.nest.flatten(dataset.element_spec):
        size = spec.shape[0] if isinstance(spec, tf.TensorSpec) and spec.shape.rank else None
        if size is None:
            raise EntryError(
                f"worker_batches: an element is {spec}, and the size of its batch is not known. Batch it with "
                "drop_remainder=True, or give shuffled_indices a batch_size."
            )
        if size % place.size:
            raise EntryError(
                f"worker_batches: a batch of {size} cannot be split among {place.size} workers. Take a multiple of "
                f"{place.size}."
            )

    def own_part(*element: Any) -> Any:
        whole = element if isinstance(dataset.element_spec, tuple) else element[0]
        return tf.nest.map_structure(_part, whole)

    def _part(batch: tf.Tensor) -> tf.Tensor:
        length = batch.shape[0] // place.size
        return batch[place.rank * length : (place.rank + 1) * length]

    options = tf.data.Options()
    options.autotune.enabled = False  # it fetches ahead
    found = dataset.map(own_part).with_options(options)
    setattr(found, _MARK, True)
    return found


def is_shared(dataset: tf.data.Dataset) -> bool:
    """Return whether the position of one worker in a dataset is that of all.

    The dataset must be made of `worker_batches`, and no stage after that may hold elements, which are each worker's
    own.
    """
    stage = dataset
    while not hasattr(stage, _MARK):
        below = inputs(stage)
        if stage_name(stage) not in _HOLD_NOTHING or len(below) != 1:
            return False
        [stage] = below
    return True
