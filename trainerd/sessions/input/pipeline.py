"""The stages of a dataset, as far as a saved position depends on them.

A dataset has no public access to its inputs: tests/tensorflow/test_internals.py names the versions for which it holds.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import tensorflow as tf
import xxhash

from trainerd.checkpoints.contents.graph_digest import add_array
from trainerd.checkpoints.contents.op_kinds import kinds_of
from trainerd.config.fingerprint import ELEMENTS, FIRST_FORMAT, FORMAT, PIPELINE, UNREAD

SAID = "_trainerd_says"  # the attribute of a dataset that says itself what it is made of

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


def describe(dataset: tf.data.Dataset) -> str:
    """Return the stages from the source on, such as "TensorSlice > Shuffle(buffer_size=100) > Batch(batch_size=32)"."""
    if said := getattr(dataset, SAID, None):
        return str(said)
    below = [describe(each) for each in inputs(dataset)] if _has_inputs(dataset) else [UNREAD]
    name = stage_name(dataset)
    keys = ("buffer_size",) if name == "Shuffle" else _SETTINGS
    settings = {key: value for key in keys if (value := setting(dataset, key)) is not None}
    stage = name + (f"({', '.join(f'{key}={value}' for key, value in settings.items())})" if settings else "")
    if not below:
        return stage
    return " > ".join([below[0] if len(below) == 1 else f"[{' | '.join(below)}]", stage])


def fingerprint(datasets: Sequence[tf.data.Dataset]) -> dict[str, str]:
    """Return the fingerprint of the inputs of a run, for a manifest: their elements, stages and sizes."""
    return outline(datasets) | {
        "input.content": "; ".join(map(_content, datasets)),
        "input.seeds": "; ".join(map(_seeds, datasets)),
        "input.sources": "; ".join(", ".join(map(str, _source_sizes(each))) or UNREAD for each in datasets),
    }


def outline(datasets: Sequence[tf.data.Dataset]) -> dict[str, str]:
    """Return the part of the fingerprint for which no data is read: elements, stages and the number of elements."""
    return {
        FORMAT: FIRST_FORMAT,
        ELEMENTS: "; ".join(describe_elements(each.element_spec) for each in datasets),
        PIPELINE: "; ".join(map(describe, datasets)),
        "input.cardinality": "; ".join(str(int(each.cardinality())) for each in datasets),
    }


def _source_sizes(dataset: tf.data.Dataset) -> list[int]:
    """Return the number of elements of each source; negative if it is unknown or infinite."""
    if not _has_inputs(dataset):
        return []
    below = inputs(dataset)
    return [size for each in below for size in _source_sizes(each)] if below else [int(dataset.cardinality())]


def _content(dataset: tf.data.Dataset) -> str:
    """Return a digest of the tensors of a dataset; of large ones, of their beginnings and ends."""
    if any(not _has_inputs(stage) or _hides_tensors(stage) for stage in stages(dataset)):
        return UNREAD
    digest = xxhash.xxh3_64()
    for stage in stages(dataset):
        for tensor in getattr(stage, "_tensors", ()):
            if not hasattr(tensor, "numpy") or tensor.dtype in (tf.variant, tf.resource):
                continue
            add_array(digest, tensor.numpy())
    return str(digest.hexdigest())


def _seeds(dataset: tf.data.Dataset) -> str:
    """Return the seeds of its stages."""
    if not all(map(_has_inputs, stages(dataset))):
        return UNREAD
    found = [(setting(stage, "seed"), setting(stage, "seed2")) for stage in stages(dataset)]
    return ", ".join(f"{one}/{other}" for one, other in found if one is not None or other is not None)


def inputs(dataset: tf.data.Dataset) -> list[tf.data.Dataset]:
    """Return the inputs of a stage; none if this TensorFlow does not expose them."""
    return list(dataset._inputs()) if _has_inputs(dataset) else []


def _has_inputs(dataset: tf.data.Dataset) -> bool:
    return hasattr(dataset, "_inputs")


def _hides_tensors(dataset: tf.data.Dataset) -> bool:
    """Return whether it has tensors that this TensorFlow does not expose."""
    return stage_name(dataset) in ("TensorSlice", "Tensor") and not hasattr(dataset, "_tensors")


def stages(dataset: tf.data.Dataset) -> Iterator[tf.data.Dataset]:
    """Yield the dataset and all stages below it."""
    yield dataset
    for each in inputs(dataset):
        yield from stages(each)


def ops_of(dataset: tf.data.Dataset) -> set[str]:
    """Return the kinds of its stages, and of the ops in their functions."""
    return {kind for stage in stages(dataset) for kind in {type(stage).__name__} | _kinds_within(stage)}


def repeats_within(dataset: tf.data.Dataset) -> bool:
    """Return whether a function of this stage repeats a dataset."""
    return any(kind.endswith("RepeatDataset") for kind in _kinds_within(dataset))


def _kinds_within(dataset: tf.data.Dataset) -> set[str]:
    """Return the kinds of the ops in the functions of a stage."""
    return {kind for graph in graphs_of(dataset) for kind in kinds_of(graph)}


def graphs_of(dataset: tf.data.Dataset) -> list[Any]:
    """Return the graphs of the functions of a stage, such as that of `map`."""
    graphs = (getattr(getattr(value, "function", None), "graph", None) for value in vars(dataset).values())
    return [graph for graph in graphs if graph is not None]


def is_reshuffled(dataset: tf.data.Dataset) -> bool:
    """Return whether a stage shuffles again in each epoch."""
    return stage_name(dataset) == "Shuffle" and getattr(dataset, "_reshuffle_each_iteration", None) is not False


def dataset_of(iterator: tf.data.Iterator) -> tf.data.Dataset:
    """Return the dataset that an iterator reads, and keeps alive."""
    return iterator._dataset


def stage_name(dataset: tf.data.Dataset) -> str:
    """Return the kind of a stage: "Shuffle", "Batch"."""
    return type(dataset).__name__.strip("_").removesuffix("Dataset")


def setting(dataset: tf.data.Dataset, key: str) -> int | bool | None:
    """Return a number of a stage; None if it has none of that name, or none before it runs."""
    value = getattr(dataset, f"_{key}", None)
    if isinstance(value, tf.Tensor):
        found = tf.get_static_value(value)
        value = found.item() if found is not None and found.size == 1 else None
    return value if isinstance(value, int) else None


def describe_elements(spec: Any) -> str:
    """Return the types and shapes of a dataset's elements, such as "float32[None, 8, 8, 1], int32[None]"."""
    return ", ".join(
        f"{each.dtype.name}{each.shape.as_list() if each.shape.rank is not None else '[...]'}"
        if isinstance(each, tf.TensorSpec)
        else str(each)
        for each in tf.nest.flatten(spec)
    )
