"""What a dataset is made of: its stages, as far as a saved position depends on them.

A dataset does not tell its inputs in public: tests/tensorflow/test_internals.py names the versions for which it holds.
"""

from __future__ import annotations

import itertools
import logging
from collections.abc import Iterable
from typing import Any

import tensorflow as tf

log = logging.getLogger(__name__)

# What changes which elements come next; not how fast they come, and not seeds, which are a part of the position.
_SETTINGS = (
    "start",
    "stop",
    "step",
    "num_shards",
    "index",
    "count",
    "cycle_length",
    "block_length",
    "size",
    "shift",
    "stride",
    "batch_size",
    "batch_sizes",
    "drop_remainder",
)

# What runs ahead of what it gives: these, and `map`, which TensorFlow parallelizes by itself.
_RUN_AHEAD = {"Prefetch", "ParallelMap", "ParallelBatch", "ParallelInterleave"}
# What keeps the iterator below it at its end. Found by trying: every other stage lets go of it.
_HOLD_ON = _RUN_AHEAD | {
    "Map",
    "Interleave",
    "Cache",
    "Scan",
    "Unique",
    "GroupByWindow",
    "AssertCardinality",
    "Options",
}
_BATCHES = {"Batch", "PaddedBatch", "Window", "Rebatch"}


def describe(dataset: tf.data.Dataset) -> str:
    """The stages from the source on, such as "TensorSlice > Shuffle(buffer_size=100) > Batch(batch_size=32)"."""
    inputs = [describe(each) for each in dataset._inputs()]
    name = _name(dataset)
    keys = ("buffer_size",) if name == "Shuffle" else _SETTINGS
    settings = {key: value for key in keys if (value := _setting(dataset, key)) is not None}
    stage = name + (f"({', '.join(f'{key}={value}' for key, value in settings.items())})" if settings else "")
    if not inputs:
        return stage
    return " > ".join([inputs[0] if len(inputs) == 1 else f"[{' | '.join(inputs)}]", stage])


def warn_of_lost_order(dataset: tf.data.Dataset) -> None:
    """Say where a saved position does not hold how many seeds a shuffle has drawn.

    TensorFlow saves that number with the shuffle's iterator, which most stages let go of at its end. Where a stage has
    come to that end while it still has something to give, and the position is saved then, a `repeat` above begins the
    shuffle again with another number after a restore: the orders of the next epochs are others.
    """
    maps_run_ahead = dataset.options().experimental_optimization.map_parallelization is not False
    for path in _paths(dataset):
        for place, stage in enumerate(path):
            if not _is_reshuffled(stage) or not any(_name(each) == "Repeat" for each in path[:place]):
                continue
            above = itertools.takewhile(lambda each: _name(each) != "Repeat", reversed(path[:place]))
            if early := _first_early(above, maps_run_ahead):
                log.warning(
                    "the dataset's repeat comes after %s, which is done with shuffle before an epoch ends: after a "
                    "pause near that end the next epochs have another order. Call repeat() before it%s.",
                    early,
                    ", or give it drop_remainder=True" if early in _BATCHES else "",
                    extra={"event": "lost-order"},
                )
                return


def dataset_of(iterator: tf.data.Iterator) -> tf.data.Dataset:
    """What an iterator reads, which it keeps alive."""
    return iterator._dataset


def _first_early(stages: Iterable[tf.data.Dataset], maps_run_ahead: bool) -> str | None:
    """The first, from a shuffle upwards, that is done with it before it ends, where something has let go of it."""
    is_let_go = False
    for stage in stages:
        name = _name(stage)
        is_let_go = is_let_go or name not in _HOLD_ON
        runs_ahead = name in _RUN_AHEAD or (name == "Map" and maps_run_ahead)
        if is_let_go and (runs_ahead or name == "Concatenate" or _has_a_smaller_last(stage)):
            return name
    return None


def _has_a_smaller_last(dataset: tf.data.Dataset) -> bool:
    """Whether a stage may give a smaller last batch, with which it comes to the end of what is below it."""
    if _name(dataset) not in _BATCHES or _setting(dataset, "drop_remainder"):
        return False
    size, count = _setting(dataset, "batch_size") or _setting(dataset, "size"), int(dataset._inputs()[0].cardinality())
    return count < 0 or not size or count % size != 0 or _setting(dataset, "shift") not in (None, size)


def _is_reshuffled(dataset: tf.data.Dataset) -> bool:
    return _name(dataset) == "Shuffle" and getattr(dataset, "_reshuffle_each_iteration", None) is not False


def _paths(dataset: tf.data.Dataset) -> list[list[tf.data.Dataset]]:
    """The stages from the last one to each source."""
    return [[dataset, *path] for each in dataset._inputs() for path in _paths(each)] or [[dataset]]


def _name(dataset: tf.data.Dataset) -> str:
    return type(dataset).__name__.strip("_").removesuffix("Dataset")


def _setting(dataset: tf.data.Dataset, key: str) -> int | bool | None:
    """One number of a stage; None where it has none of that name, or not before it runs."""
    value = getattr(dataset, f"_{key}", None)
    if isinstance(value, tf.Tensor):
        found = tf.get_static_value(value)
        value = found.item() if found is not None and found.size == 1 else None
    return value if isinstance(value, int) else None


def describe_elements(spec: Any) -> str:
    """The types and shapes of a dataset's elements, such as "float32[None, 8, 8, 1], int32[None]"."""
    return ", ".join(
        f"{each.dtype.name}{each.shape.as_list() if each.shape.rank is not None else '[...]'}"
        if isinstance(each, tf.TensorSpec)
        else str(each)
        for each in tf.nest.flatten(spec)
    )
