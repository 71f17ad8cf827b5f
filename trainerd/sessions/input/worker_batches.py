"""Each worker's part of every batch. Imports TensorFlow."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from trainerd.workers.place import cluster
from trainerd.errors import EntryError
from trainerd.sessions.input.pipeline import stages

_MARK = "_trainerd_worker_batches"


def worker_batches(dataset: tf.data.Dataset) -> tf.data.Dataset:
    """Part every batch among the workers of a cluster; alone, a worker has all of it.

    All workers read the same batches in the same order, and each takes its part of each. So the position of one is that of
    all, a checkpoint holds it once, and a run may go on with another number of workers: it sees the same elements at the
    same steps. What costs time, such as decoding, comes after it: then each worker does its part.

        indices = trainerd.data.shuffled_indices(size, seed=1, batch_size=256)
        dataset = trainerd.data.worker_batches(indices).map(load)

    Args:
      dataset: its elements are tensors, or a structure of them, whose first dimension is the batch; its size must be
        known, and divisible by the number of workers.

    Returns:
      A dataset of the same structure, with the first dimension divided by the number of workers.

    Raises:
      EntryError: a batch cannot be parted.
    """
    place = cluster()
    for spec in tf.nest.flatten(dataset.element_spec):
        size = spec.shape[0] if isinstance(spec, tf.TensorSpec) and spec.shape.rank else None
        if size is None:
            raise EntryError(
                f"worker_batches: an element is {spec}, and the size of its batch is not known. Batch it with "
                "drop_remainder=True, or give shuffled_indices a batch_size."
            )
        if size % place.size:
            raise EntryError(
                f"worker_batches: a batch of {size} cannot be parted among {place.size} workers. Take a multiple of "
                f"{place.size}."
            )

    def own_part(*element: Any) -> Any:
        whole = element if isinstance(dataset.element_spec, tuple) else element[0]
        return tf.nest.map_structure(_part, whole)

    def _part(batch: tf.Tensor) -> tf.Tensor:
        length = batch.shape[0] // place.size
        return batch[place.rank * length : (place.rank + 1) * length]

    found = dataset.map(own_part)
    setattr(found, _MARK, True)
    return found


def is_shared(dataset: tf.data.Dataset) -> bool:
    """Whether a dataset is made of `worker_batches`."""
    return any(hasattr(stage, _MARK) for stage in stages(dataset))
