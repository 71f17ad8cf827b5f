"""The own state of each worker, in one checkpoint: its position in its input, and what it has measured.

The chief's is in the place where that of a single worker would be.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import tensorflow as tf

from trainerd.checkpoints.format.bundle_writer import Form, Item
from trainerd.checkpoints.format.snapshotter import OF_WORKER, TensorSnapshot

_KEY = OF_WORKER + "{rank}/own_state"


class OwnState(msgspec.Struct, frozen=True):
    """The own state of a worker.

    Attributes:
      position: in its input; empty if that of the chief is that of all.
      measured: the values of the variables of its metrics, in their order.
    """

    position: bytes = b""
    measured: list[bytes] = []

    def put_back(self, iterator: Any, variables: Sequence[Any]) -> None:
        """Put the state back into an iterator and variables, which continue from there."""
        if self.position:
            go_to(iterator, self.position)
        for variable, value in zip(variables, self.measured, strict=False):
            dtype = np.dtype(tf.as_dtype(variable.dtype).as_numpy_dtype)
            variable.assign(np.frombuffer(value, dtype).reshape(variable.shape))


def position_of(iterator: Any) -> bytes:
    """Return an iterator's position, as it is sent."""
    variants = tf.raw_ops.SerializeIterator(resource_handle=iterator._iterator_resource)
    return bytes(tf.io.serialize_tensor(variants).numpy())


def go_to(iterator: Any, position: bytes) -> None:
    """Have an iterator continue from a position that was sent."""
    variants = tf.io.parse_tensor(position, tf.variant)
    tf.raw_ops.DeserializeIterator(resource_handle=iterator._iterator_resource, serialized=variants)


def measured(variables: Sequence[Any]) -> list[bytes]:
    """Return the values of variables, as they are sent."""
    return [np.asarray(variable).tobytes() for variable in variables]


def with_own_states(snapshot: TensorSnapshot, states: Mapping[int, bytes]) -> TensorSnapshot:
    """Return a snapshot with the own states of other workers, by rank."""
    items = [
        Item(_KEY.format(rank=rank), "", tf.constant(value), Form(tf.string, len(value)))
        for rank, value in states.items()
    ]
    return replace(snapshot, items=[*snapshot.items, *items])


def stored_own_state(prefix: Path, rank: int) -> OwnState:
    """Return the own state that a worker had when a checkpoint was made; an empty one if it had none of this rank."""
    reader, key = tf.train.load_checkpoint(str(prefix)), _KEY.format(rank=rank)
    return msgspec.msgpack.decode(reader.get_tensor(key), type=OwnState) if reader.has_tensor(key) else OwnState()
