"""What a dataset is made of: its stages, as far as a saved position depends on them.

A dataset does not tell its inputs in public: tests/tensorflow/test_internals.py names the versions for which it holds.
"""

from __future__ import annotations

import logging
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

_FETCH_AHEAD = {"Prefetch", "ParallelMap", "ParallelBatch", "ParallelInterleave"}
_LET_GO = {"Batch", "PaddedBatch", "Filter"}


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

    TensorFlow saves that number with the shuffle's iterator, and `batch` and `filter` let go of it at its end. Where
    something fetches ahead above them, the end comes while there still are elements to be given; and a `repeat` above
    that begins the shuffle again, after a restore with another number. The orders of the next epochs are others then.
    """
    for names in _paths(dataset):
        for shuffle in (place for place, name in enumerate(names) if name == "Shuffle"):
            above = names[:shuffle]
            if "Repeat" not in above:
                continue
            within = above[len(above) - above[::-1].index("Repeat") :]
            ahead = next((place for place, name in enumerate(within) if name in _FETCH_AHEAD), None)
            if ahead is not None and (lost := [name for name in within[ahead + 1 :] if name in _LET_GO]):
                log.warning(
                    "the dataset's repeat comes after %s, which fetches ahead of %s and shuffle: after a pause near "
                    "the end of an epoch the next ones have another order. Call repeat() before it.",
                    within[ahead],
                    lost[0],
                    extra={"event": "lost-order"},
                )
                return


def _paths(dataset: tf.data.Dataset) -> list[list[str]]:
    """The names of the stages from the last one to each source. A shuffle in one order always goes by another name."""
    fixed = getattr(dataset, "_reshuffle_each_iteration", None) is False
    name = _name(dataset) + " in one order" * fixed
    return [[name, *path] for each in dataset._inputs() for path in _paths(each)] or [[name]]


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
