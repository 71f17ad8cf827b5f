"""The next batch of a dataset, inside a graph."""

from __future__ import annotations

import os
import threading
from typing import Any

import psutil
import tensorflow as tf

from trainerd.sessions.input import pipeline

READ_AHEAD = 2**29  # bytes


def limited(dataset: tf.data.Dataset, read_ahead: int = READ_AHEAD) -> tf.data.Dataset:
    """Limit the memory of what a dataset reads ahead with `tf.data.AUTOTUNE`, unless its options set it.

    What is read ahead is a part of the position, so a checkpoint has it. TensorFlow's own limit is half of the memory
    that is available.

    Args:
      dataset: whose options may set `autotune.ram_budget`.
      read_ahead: bytes.
    """
    if dataset.options().autotune.ram_budget is not None:
        return dataset
    options = tf.data.Options()
    options.autotune.ram_budget = min(read_ahead, psutil.virtual_memory().available // 2)
    return dataset.with_options(options)


def next_batch(iterator: Any) -> Any:
    """Return the next element of an iterator, as an op of the graph that is being traced; or eagerly.

    `get_next` in a graph passes each request to a thread of its own and waits for it: 8 to 20 microseconds. The
    synchronous op, which TensorFlow itself uses outside of graphs, works on the calling thread. It occupies one of the
    threads on which ops run. If there is only one, a dataset that needs it too would hang: then the op is not used.

    The iterator's resource is not public: tests/tensorflow/test_internals.py names the versions for which it holds.
    """
    specs = tf.nest.flatten(iterator.element_spec)
    if _inter_op_threads() < 2 or any(type(spec) is not tf.TensorSpec for spec in specs):
        return iterator.get_next()
    tensors = tf.raw_ops.IteratorGetNextSync(
        iterator=iterator._iterator_resource,
        output_types=[spec.dtype for spec in specs],
        output_shapes=[spec.shape for spec in specs],
    )
    return tf.nest.pack_sequence_as(iterator.element_spec, tensors)


def begin_again(iterator: Any) -> None:
    """Make an iterator begin its dataset again: a new epoch, with a new shuffle."""
    begin(pipeline.dataset_of(iterator), iterator)


def retire(iterator: Any) -> None:
    """End an iterator that nobody reads from any more, in the background.

    TensorFlow waits for the thread that tunes its pipeline, which sleeps for up to a minute if the iterator is old.
    """
    nothing = pipeline.dataset_of(iterator).take(0)
    threading.Thread(target=lambda: begin(nothing, iterator), name="trainerd-old-input", daemon=True).start()


def begin(dataset: tf.data.Dataset, iterator: Any) -> None:
    """Make an iterator begin a dataset."""
    tf.raw_ops.MakeIterator(dataset=tf.data.experimental.to_variant(dataset), iterator=iterator._iterator_resource)


def indices_in(batch: Any) -> list[int]:
    """Return the indices of the elements of a batch, if it has them.

    It has them if it is a dict, or a tuple with one, with integers named `index`.
    """
    for part in batch if isinstance(batch, tuple) else (batch,):
        index = part.get("index") if isinstance(part, dict) else None
        if isinstance(index, tf.Tensor) and index.dtype.is_integer:
            return [int(each) for each in index.numpy().reshape(-1)]
    return []


def _inter_op_threads() -> int:
    """Return the number of threads that run ops: that of the processors, unless it was set."""
    return int(tf.config.threading.get_inter_op_parallelism_threads()) or len(os.sched_getaffinity(0))
