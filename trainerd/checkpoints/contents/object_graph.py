"""The tensors of a `tf.train.Checkpoint` under the keys of TensorFlow's own format, without writing them.

TensorFlow has no public way to ask a checkpoint for its tensors: `Checkpoint.write` reads and writes at once. The
  function that reads is not public: tests/tensorflow/test_internals.py names the versions for which this holds.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import keras
import tensorflow as tf
from tensorflow.python.checkpoint import graph_view, save_util
from tensorflow.python.training.saving import saveable_object, saveable_object_util

from trainerd.checkpoints.contents.device_copies import copies_of
from trainerd.errors import EntryError

GRAPH_KEY = "_CHECKPOINTABLE_OBJECT_GRAPH"
_VALUED = (  # what has a value, beside variables; iterators have positions, and are made again with their epochs
    tf.train.experimental.PythonState,
    tf.lookup.experimental.DenseHashTable,
    tf.lookup.experimental.MutableHashTable,
)


@dataclass(frozen=True)
class GraphEntry:
    """One tensor of a checkpoint.

    Attributes:
      key: its name in the file.
      slices: which part of a larger tensor it is, in the form of SaveV2; empty for all of it.
      value: the tensor; of a variable, its value without a copy, which the next step that writes to the variable makes.
      owner: the object whose value it is.
    """

    key: str
    slices: str
    value: tf.Tensor
    owner: Any


def entries(checkpoint: tf.train.Checkpoint) -> tuple[list[GraphEntry], bytes]:
    """Return every tensor of a checkpoint, and the serialized object graph that `tf.train.Checkpoint.read` follows.

    If called while a `tf.function` is traced, the tensors are those of its graph.

    Raises:
      EntryError: a part saves itself in a way of its own.
    """
    serialized, _, registered, proto = save_util.serialize_graph_view(graph_view.ObjectGraphView(checkpoint))
    if registered:
        names = ", ".join(sorted(registered))
        raise EntryError(
            f"the job's state has parts with their own save functions, which trainerd cannot call: {names}."
        )
    found = [entry for owner, values in serialized.items() for entry in _of_one(owner, values)]
    return found, proto.SerializeToString()


def position(iterator: Any) -> tf.Tensor:
    """Return the tensor that a checkpoint holds for an iterator: a vector of variants."""
    (found,) = iterator._serialize_to_tensors().values()
    return found


def tracked_objects(checkpoint: tf.train.Checkpoint) -> list[Any]:
    """Return the objects that a checkpoint tracks now, variables among them."""
    return list(graph_view.ObjectGraphView(checkpoint).breadth_first_traversal()[0])


def own_objects(checkpoint: tf.train.Checkpoint) -> list[Any]:
    """Return the tracked objects, except those reached only through an optimizer's list of the variables it trains.

    An optimizer has that list once it is built, which may be after a restore: then they would not be restored.
    """
    return list(own_places(checkpoint).values())


def own_places(checkpoint: tf.train.Checkpoint) -> dict[str, Any]:
    """Return the objects of `own_objects` by where they stand: the attributes and keys on the shortest way to each."""
    view = graph_view.ObjectGraphView(checkpoint)
    found, seen, left = {"": checkpoint}, {id(checkpoint)}, [("", checkpoint)]
    for place, each in left:  # it grows meanwhile
        trains = isinstance(each, keras.optimizers.Optimizer)
        for name, child in view.children(each).items():
            if id(child) not in seen and not (trains and name == "_trainable_variables"):
                seen.add(id(child))
                here = f"{place}/{name}" if place else name
                found[here] = child
                left.append((here, child))
    return found


def weights_alone(model: Any) -> tf.train.Checkpoint:
    """Return what tracks all of a Keras model but its optimizer, in the places that they have in the model."""
    children = graph_view.ObjectGraphView(model).children(model)
    kept = {name: each for name, each in children.items() if not isinstance(each, keras.optimizers.Optimizer)}
    return tf.train.Checkpoint(**kept)


def has_unrestored(status: Any, checkpoint: tf.train.Checkpoint, *, at_once: bool) -> bool:
    """Return whether an object with a value got none from the checkpoint that was read.

    Args:
      status: what `Checkpoint.read` returned.
      checkpoint: the checkpoint whose `read` was called.
      at_once: whether nothing was run since: later on a program may have made tables again.
    """
    read = status._checkpoint
    if not hasattr(read, "object_by_proto_id"):  # it was read by the names of variables, as TensorFlow 1 saved them
        return True
    bound = {id(each): each for each in read.object_by_proto_id.values()}
    late = [each for each in bound.values() if each._update_uid < read.restore_uid]
    own = {
        id(each)
        for each in own_objects(checkpoint)
        if hasattr(each, "handle") or (at_once and isinstance(each, _VALUED))
    }
    return bool(late) or not own <= bound.keys()


def variables_among(objects: Iterable[Any]) -> list[Any]:
    """Return the variables among objects, of Keras and of TensorFlow; the shards of a sharded one."""
    found: list[Any] = []
    for each in objects:
        if hasattr(each, "handle"):
            found.append(each)
        elif (
            hasattr(each, "assign") and hasattr(each, "variables") and not isinstance(each, keras.optimizers.Optimizer)
        ):
            found.extend(each.variables)
    return found


def handles_of(objects: Iterable[Any]) -> set[int]:
    """Return the identities of the handles of objects: variables, lookup tables and iterators."""
    found = list(objects)
    handles = [copy.handle for variable in variables_among(found) for copy in copies_of(variable)]
    handles += [each.resource_handle for each in found if hasattr(each, "resource_handle")]
    handles += [each._iterator_resource for each in found if isinstance(each, tf.data.Iterator)]
    return set(map(id, handles))


def _of_one(owner: Any, values: dict[str, Any]) -> Iterator[GraphEntry]:
    if isinstance(owner, saveable_object_util.SaveableCompatibilityConverter):
        owner = owner.obj
    for key, value in values.items():
        for slices, part in (value if isinstance(value, dict) else {"": value}).items():
            if isinstance(part, saveable_object.SaveSpec):
                yield GraphEntry(key, part.slice_spec or "", part.tensor, owner)
            else:
                yield GraphEntry(key, slices, part, owner)
