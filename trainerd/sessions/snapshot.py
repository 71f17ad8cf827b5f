"""Snapshots of a TensorFlow 2 job: the state at one boundary, in memory, and how it becomes files.

Taking one copies nothing on a CPU: reading a resource variable shares its buffer, and TensorFlow copies the buffer
when a later step writes to the variable. Writing one is TensorFlow's own SaveV2, so that the files are its format.
"""

from __future__ import annotations

import errno
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf
import xxhash

from trainerd.checkpoints.snapshot import UnsoundError
from trainerd.sessions.objectgraph import GRAPH_KEY, Entry, entries


@dataclass(frozen=True)
class TensorSnapshot:
    """The state at one boundary, whatever steps come after it.

    Attributes:
      step: the global step of the boundary.
      keys, slices, tensors: what goes into the file, in the form of SaveV2.
      refuse_nan: whether a tensor that holds a NaN must not be saved.
    """

    step: int
    keys: Sequence[str]
    slices: Sequence[str]
    tensors: Sequence[tf.Tensor]
    refuse_nan: bool = True

    @property
    def size(self) -> int:
        """About how many bytes its files will have: those of the tensors."""
        return sum(_size(tensor) for tensor in self.tensors)

    def write(self, prefix: Path, moved: Callable[[int], None]) -> None:
        """Write `prefix.index` and `prefix.data-00000-of-00001`. May be called on any thread."""
        if self.refuse_nan:
            self._require_no_nan(moved)
        try:
            with tf.device("CPU:0"):
                tf.raw_ops.SaveV2(
                    prefix=str(prefix), tensor_names=self.keys, shape_and_slices=self.slices, tensors=self.tensors
                )
        except tf.errors.ResourceExhaustedError as error:
            raise OSError(errno.ENOSPC, "No space left on device") from error
        except tf.errors.OpError as error:
            raise OSError(errno.EIO, str(error).splitlines()[0]) from error

    def _require_no_nan(self, moved: Callable[[int], None]) -> None:
        for key, tensor in zip(self.keys, self.tensors, strict=True):
            if tensor.dtype.is_floating or tensor.dtype.is_complex:
                value = _view(tensor)
                # The minimum of what holds a NaN is NaN, and is found without a second array.
                if value.size and np.isnan(np.min(value)):
                    raise UnsoundError(f"the variable {key.split('/.ATTRIBUTES')[0]!r} holds a NaN")
                moved(value.nbytes)


def _size(tensor: tf.Tensor) -> int:
    """Bytes in memory; of strings, what is in them."""
    if tensor.dtype == tf.string:
        return int(tf.reduce_sum(tf.strings.length(tensor)))
    return int(tensor.shape.num_elements() * tensor.dtype.size)


def _view(tensor: tf.Tensor) -> np.ndarray[Any, Any]:
    """A tensor's memory as an array, without a copy where Python's buffers know the type."""
    try:
        return np.asarray(memoryview(tensor))
    except ValueError:
        return np.asarray(tf.cast(tensor, tf.float32).numpy())


class Snapshotter:
    """Takes snapshots of one state.

    All of it is read by one call of one traced function: reading five hundred variables one by one, as
    `Checkpoint.write` does, takes twenty times as long, and the loop stands still meanwhile.

    Args:
      checkpoint: tracks the state. What it tracks must not change afterwards.
      hidden: variables that it does not track, by their keys in the file.
      refuse_nan: whether a snapshot that holds a NaN must not be written.

    Raises:
      EntryError: a part cannot be saved.
    """

    def __init__(self, checkpoint: tf.train.Checkpoint, hidden: Mapping[str, Any], *, refuse_nan: bool = True) -> None:
        self._checkpoint = checkpoint
        self._hidden = dict(hidden)
        self._refuse_nan = refuse_nan
        self._entries: list[Entry] = []
        self._object_graph = b""
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)  # a dataset's options, which its iterator knows all the same
            self._read = tf.function(self._all_values, autograph=False).get_concrete_function()

    def _all_values(self) -> list[tf.Tensor]:
        self._entries, self._object_graph = entries(self._checkpoint)
        with tf.device("CPU:0"):
            hidden = [tf.identity(variable) for variable in self._hidden.values()]
        return [entry.value for entry in self._entries] + hidden

    def describe(self) -> str:
        """How many tensors the state has, and a digest of their names, types and shapes."""
        specs = [(entry.key, entry.value.dtype, entry.value.shape) for entry in self._entries]
        specs += [(key, variable.dtype, variable.shape) for key, variable in self._hidden.items()]
        lines = sorted(f"{key} {tf.as_dtype(dtype).name} {shape}" for key, dtype, shape in specs)
        digest = xxhash.xxh3_64_hexdigest("\n".join(lines).encode())
        return f"{len(specs)} tensors, {digest}"

    def take(self, step: int) -> TensorSnapshot:
        """The state now. Called at a boundary."""
        values = list(self._read())
        for index, entry in enumerate(self._entries):
            if entry.python_state is not None:
                values[index] = tf.constant(entry.python_state.serialize())
        keys = [*(entry.key for entry in self._entries), *self._hidden, GRAPH_KEY]
        slices = [*(entry.slices for entry in self._entries), *("" for _ in self._hidden), ""]
        return TensorSnapshot(step, keys, slices, [*values, tf.constant(self._object_graph)], self._refuse_nan)
