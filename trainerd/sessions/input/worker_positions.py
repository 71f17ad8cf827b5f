"""The positions of several workers' inputs in one checkpoint. That of the chief is where a single worker's would be."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import tensorflow as tf

from trainerd.checkpoints.format.bundle_writer import Form, Item
from trainerd.checkpoints.format.snapshotter import TensorSnapshot
from trainerd.errors import DataError

_KEY = "trainerd/worker-{rank}/position"


def position_of(iterator: Any) -> bytes:
    """An iterator's position, as it is sent."""
    variants = tf.raw_ops.SerializeIterator(resource_handle=iterator._iterator_resource)
    return bytes(tf.io.serialize_tensor(variants).numpy())


def go_to(iterator: Any, position: bytes) -> None:
    """Have an iterator go on from a position that was sent."""
    variants = tf.io.parse_tensor(position, tf.variant)
    tf.raw_ops.DeserializeIterator(resource_handle=iterator._iterator_resource, serialized=variants)


def with_positions(snapshot: TensorSnapshot, positions: Mapping[int, bytes]) -> TensorSnapshot:
    """A snapshot with the positions of other workers, by rank."""
    items = [
        Item(_KEY.format(rank=rank), "", tf.constant(value), Form(tf.string, len(value)))
        for rank, value in positions.items()
    ]
    return replace(snapshot, items=[*snapshot.items, *items])


def stored_position(prefix: Path, rank: int) -> bytes:
    """A worker's position in a checkpoint.

    Raises:
      DataError: there is none.
    """
    try:
        return bytes(tf.train.load_checkpoint(str(prefix)).get_tensor(_KEY.format(rank=rank)))
    except tf.errors.OpError as error:
        raise DataError(f"{prefix} holds no position for worker {rank}.") from error
