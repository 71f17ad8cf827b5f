"""Snapshots of a TensorFlow 2 job: the state at one boundary, in memory, and how it becomes files.

Taking one copies nothing on a CPU: reading a resource variable shares its buffer, and a later step that writes to the
variable writes into another one. The same holds on a GPU, whose memory is scarce: there the values are copied into the
machine's own memory, unless the GPU has room.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf
import xxhash

from trainerd.checkpoints.contents.kept import kept_state
from trainerd.checkpoints.contents.keras_variables import is_of_metrics
from trainerd.checkpoints.contents.object_graph import GRAPH_KEY
from trainerd.checkpoints.contents.state_readers import reader_of
from trainerd.checkpoints.contents.unsaved_state import Unsaved
from trainerd.checkpoints.contents.variable_names import NAMES_KEY, Names, packed
from trainerd.checkpoints.format import bundle_writer
from trainerd.checkpoints.format.bundle_writer import Form, Item
from trainerd.checkpoints.format.gpu_room import GPURoom
from trainerd.checkpoints.format.unchanged import Unchanged
from trainerd.checkpoints.snapshot import Earlier, Kept, no_earlier

OF_WORKER = "trainerd/worker-"  # what another worker has of its own


@dataclass(frozen=True)
class TensorSnapshot:
    """The state at one boundary, whatever steps come after it.

    Attributes:
      step: the global step of the boundary.
      items: what goes into the file.
      kept: the program's own objects, which go into it too; see `trainerd.keep`.
      unchanged: finds what has not changed since the snapshots before.
      refuse_nan: whether a tensor that holds a NaN must not be saved.
      unsaved: what the step reads and the file does not hold, by its name in words.
    """

    step: int
    items: Sequence[Item]
    refuse_nan: bool = True
    unsaved: Mapping[str, Sequence[tf.Tensor]] = field(default_factory=dict)
    kept: Sequence[Item] = ()
    unchanged: Unchanged | None = None

    @property
    def size(self) -> int:
        """The approximate size of its files, in bytes: that of the tensors."""
        return sum(item.form.size for item in (*self.items, *self.kept))

    def write(self, prefix: Path, moved: Callable[[int], None], earlier: Earlier = no_earlier) -> dict[str, str]:
        """Write `prefix.index` and its data files. May be called on any thread, by one at a time."""
        items = [*self.items, *self.kept]
        return bundle_writer.write(
            prefix, items, moved, refuse_nan=self.refuse_nan, unchanged=self.unchanged, earlier=earlier
        )

    def first_change(self, later: TensorSnapshot) -> str | None:
        """See `Snapshot`. Metrics of Keras are reset before each measurement; an input reads ahead by itself."""
        for before, after in zip(self.items, later.items, strict=True):
            name = before.key.split("/.ATTRIBUTES")[0]
            reads_ahead = before.tensor.dtype == tf.variant or name.startswith(OF_WORKER)
            if not (is_of_metrics(before.key) or reads_ahead) and not _are_same(before.tensor, after.tensor):
                return f"the state: the variable {name!r}"
        for what, tensors in self.unsaved.items():
            if not all(map(_are_same, tensors, later.unsaved[what])):
                return f"what the step reads and no checkpoint holds: {what}"
        return None

    def release(self) -> None:
        """Do nothing: its tensors are freed with it."""


def _are_same(one: tf.Tensor, other: tf.Tensor) -> bool:
    """Return whether two tensors are the same, bit for bit. Those that nothing was written to share their memory."""
    ones, others = one.numpy(), other.numpy()
    if not isinstance(ones, np.ndarray) or ones.dtype == object:
        return bool(np.array_equal(ones, others))
    is_shared = ones.__array_interface__["data"] == others.__array_interface__["data"]
    return is_shared or bool(ones.tobytes() == others.tobytes())


class Snapshotter:
    """Takes snapshots of one state.

    Args:
      checkpoint: tracks the state. What it tracks must not change afterwards.
      hidden: variables that it does not track, by their keys in the file.
      refuse_nan: whether a snapshot that holds a NaN must not be written.
      unsaved: what the step reads and the checkpoint does not track. It is compared, and not written.
      names: what is known of the variables by their names; see `variable_names`.
      room: decides whether a snapshot may stay on GPUs; None: it may not, unless it is asked for.

    Raises:
      EntryError: a part cannot be saved.
    """

    def __init__(
        self,
        checkpoint: tf.train.Checkpoint,
        hidden: Mapping[str, Any],
        *,
        refuse_nan: bool = True,
        unsaved: Unsaved | None = None,
        names: Names | None = None,
        room: GPURoom | None = None,
    ) -> None:
        self._refuse_nan = refuse_nan
        self._unsaved = unsaved or Unsaved()
        self._names = packed(names) if names else b""
        self._reader = reader_of(checkpoint, hidden)
        forms = [Form.of(tf.as_dtype(dtype), tf.TensorShape(shape)) for _, dtype, shape in self._reader.specs]
        self._items = list(zip(self.keys, self._reader.slices, forms, strict=True))
        self._on_gpus = {gpu: 0 for gpu in self._reader.gpus if gpu}
        for gpu, form in zip(self._reader.gpus, forms, strict=True):
            if gpu and form is not None:
                self._on_gpus[gpu] += form.size
        self._room = room
        self._unchanged = Unchanged()

    def resume(self, prefix: Path) -> None:
        """Expect the tensors that the restored checkpoint shares with others to stay unchanged."""
        self._unchanged.expect(bundle_writer.keys_of_unchanged(prefix))

    def prepare(self) -> None:
        """Read all once, for nothing: TensorFlow optimizes a graph at its first call, which takes seconds if it is
        large."""
        self._reader.read()

    @property
    def keys(self) -> list[str]:
        """The name of each tensor in the file."""
        return [key for key, _, _ in self._reader.specs]

    def describe(self) -> str:
        """Return how many tensors the state has, and a digest of their names, types and shapes."""
        specs = self._reader.specs
        lines = sorted(f"{key} {tf.as_dtype(dtype).name} {shape}" for key, dtype, shape in specs)
        digest = xxhash.xxh3_64_hexdigest("\n".join(lines).encode())
        return f"{len(specs)} tensors, {digest}"

    def take(self, step: int, kept: Kept = "host") -> TensorSnapshot:
        """Return the state now. Called at a boundary.

        Args:
          step: the global step.
          kept: where the values are kept.
        """
        values = self._read(kept)
        items = [Item(key, slices, value, form) for (key, slices, form), value in zip(self._items, values, strict=True)]
        object_graph = self._reader.object_graph
        graph = Item(GRAPH_KEY, "", tf.constant(object_graph), Form(tf.string, len(object_graph)))
        if self._names:
            items.append(Item(NAMES_KEY, "", tf.constant(self._names), Form(tf.string, len(self._names))))
        objects = [Item(key, "", tf.convert_to_tensor(each), allows_nan=True) for key, each in kept_state(step).items()]
        unsaved = self._unsaved.read()
        return TensorSnapshot(step, [*items, graph], self._refuse_nan, unsaved, objects, self._unchanged)

    def _read(self, kept: Kept) -> list[tf.Tensor]:
        in_place = self._reader.read_in_place
        if self._on_gpus and in_place is not None and (kept == "share" or (kept == "auto" and self._has_room())):
            return in_place()
        values = self._reader.read()
        if kept != "copy":
            return values
        return [each if gpu else _copied(each) for each, gpu in zip(values, self._reader.gpus, strict=True)]

    def _has_room(self) -> bool:
        return self._room is not None and self._room.has(self._on_gpus)


def _copied(value: tf.Tensor) -> tf.Tensor:
    """Return a copy of numbers. What else there is, such as the position of an input, is never written to."""
    is_number = value.dtype.is_floating or value.dtype.is_integer or value.dtype.is_complex or value.dtype.is_bool
    with tf.device("CPU:0"):
        return tf.raw_ops.DeepCopy(x=value) if is_number else value
