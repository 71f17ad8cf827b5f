"""The position that a dataset's iterator saves: the iterators within it.

The form is TensorFlow's own: a vector of variants. Each holds the name of an iterator, the keys of what it
saves, and the values (tensorflow/core/data/serialization_utils.cc). It is not public:
tests/tensorflow/test_internals.py names the versions for which it holds.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import tensorflow as tf
from tensorflow.core.framework.dataset_pb2 import CompressedElement
from tensorflow.core.framework.tensor_pb2 import TensorProto, VariantTensorDataProto

from trainerd.checkpoints.format.sstable import read_varint

Mark = str | int  # "Repeat", "Shuffle", or which one of several inputs
Marks = tuple[Mark, ...]

_AT_ONCE = 1024  # variants: there is one for each element of a shuffle buffer
_STAGE = re.compile(r"(?P<name>[^\[]*)(?:\[(?P<number>\d+)\])?")
_FUSED = "ShuffleAndRepeat"  # what TensorFlow makes of the two where one follows the other
BRANCHING = {"Concatenate", "Zip", "DirectedInterleave"}  # what numbers its inputs; others number what they hold


class Position:
    """The iterators within an iterator.

    Each is known by its marks: the repeats and shuffles above it, and the number of the input that it belongs to.

    Args:
      iterator: whose.
    """

    def __init__(self, iterator: Any) -> None:
        variants = tf.raw_ops.SerializeIterator(resource_handle=iterator._iterator_resource, external_state_policy=1)
        starts = range(0, int(tf.size(variants)), _AT_ONCE)
        found = (each for start in starts for each in _elements(variants[start : start + _AT_ONCE]))
        self._parts = [_Part(each) for each in found if b":buffer" not in each.metadata]

    def has(self, marks: Marks) -> bool:
        """Return whether there is an iterator with these marks."""
        return any(part.marks == marks for part in self._parts)

    def has_below(self, marks: Marks) -> bool:
        """Return whether there is an iterator below these marks."""
        return any(part.marks[: len(marks)] == marks for part in self._parts)

    def was_read(self, marks: Marks) -> bool:
        """Return whether this shuffle has given an element in its epoch."""
        return any("data_produced" in part.keys for part in self._parts if part.marks == marks)

    def epoch(self, marks: Marks) -> int | None:
        """Return the epoch of the repeat with these marks, the first of its kind from above; None if all are over."""
        below = [part for part in self._parts if part.marks[: len(marks)] == marks]
        return next((part.epoch for part in below if part.epoch is not None), None)


@dataclass(frozen=True)
class _Part:
    """One iterator, under a name and with keys such as "Iterator::Root::ForeverRepeat[2]::Shuffle@@seed@@seed2"."""

    saved: VariantTensorDataProto

    @cached_property
    def keys(self) -> list[str]:
        """The keys of its values."""
        return str(self.saved.metadata.decode()).split("@@")[1:]

    @cached_property
    def marks(self) -> Marks:
        """The marks above it, and its own."""
        return tuple(mark for stage, number in self._stages for mark in _marks(stage, number))

    @property
    def epoch(self) -> int | None:
        """The epoch of the first repeat above it; None if that is unknown."""
        for stage, number in self._stages:
            if number is not None and stage.endswith("Repeat"):
                return number
        return max(self._value("epoch") - 1, 0) if self._stages[-1][0] == _FUSED else None  # it counts those it began

    @cached_property
    def _stages(self) -> list[tuple[str, int | None]]:
        name = self.saved.metadata.decode().split("@@")[0]
        found = [_STAGE.fullmatch(stage) for stage in name.split("::")]
        return [(each["name"], int(each["number"]) if each["number"] else None) for each in found if each]

    def _value(self, key: str) -> int:
        [values] = self.saved.tensors
        [compressed] = values.variant_val
        parts = CompressedElement.FromString(compressed.metadata).component_metadata
        found = tf.raw_ops.UncompressElement(
            compressed=tf.io.parse_tensor(values.SerializeToString(), tf.variant),
            output_types=[tf.as_dtype(part.dtype) for part in parts],
            output_shapes=[tf.TensorShape(None)] * len(parts),
        )
        return int(found[self.keys.index(key)])


def set_drawn(shuffle: tf.data.Dataset, count: int) -> None:
    """Set how many pairs of seeds a shuffle has drawn, for its next epochs.

    Args:
      shuffle: the stage.
      count: 1 or more.
    """
    setter_of_drawn(shuffle, count)()


def setter_of_drawn(shuffle: tf.data.Dataset, count: int) -> Callable[[], None]:
    """Return a function that does the same as `set_drawn`. A further call of it costs little.

    There is no op for it, but restoring an iterator does it. So an iterator of a tiny dataset draws so many, and its
    position is restored into an iterator of this shuffle, which has no other use.
    """
    as_written = tf.data.Options()
    as_written.autotune.enabled = False
    as_written.experimental_optimization.apply_default_optimizations = False
    other = tf.data.Dataset.range(1).shuffle(2, seed=0)
    for _ in other.repeat().take(count - 1).skip(count - 1).with_options(as_written):
        pass  # there is none: they are drawn in skipping them
    drawn, this = (iter(each.repeat().with_options(as_written)) for each in (other, shuffle))
    position = tf.raw_ops.SerializeIterator(resource_handle=drawn._iterator_resource)

    def set_again() -> None:
        tf.raw_ops.DeserializeIterator(resource_handle=this._iterator_resource, serialized=position)

    return set_again


def _elements(variants: tf.Tensor) -> Iterator[VariantTensorDataProto]:
    """Yield the elements of a vector of variants: all sizes come first, then the elements."""
    vector = TensorProto.FromString(tf.io.serialize_tensor(variants).numpy())
    content, sizes, place = vector.tensor_content, [], 0
    for _ in range(vector.tensor_shape.dim[0].size):
        size, place = read_varint(content, place)
        sizes.append(size)
    for size in sizes:
        yield VariantTensorDataProto.FromString(content[place : place + size])
        place += size


def _marks(stage: str, number: int | None) -> list[Mark]:
    if stage == _FUSED:
        return ["Repeat", "Shuffle"]
    if number is None:
        return [stage] if stage == "Shuffle" else []
    if stage in BRANCHING:
        return [number]
    return ["Repeat"] if stage.endswith("Repeat") else []
