"""Readers of the tensors of a state at a boundary: all by one traced function, or each by itself."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import tensorflow as tf

from trainerd.checkpoints.contents.device_copies import copies_of, is_aggregated, is_distributed
from trainerd.checkpoints.contents.object_graph import GraphEntry, entries, position, tracked_objects, variables_among
from trainerd.checkpoints.contents.tensor_values import owned

# Tensors. At 500 the function takes 2 microseconds a tensor and a second to trace and to optimize; each by itself takes
# 7. At 1,000 it takes six seconds more than the others before the first step.
MANY = 500
Spec = tuple[str, Any, Any]  # key in the file, dtype, shape


@dataclass(frozen=True)
class StateReader:
    """Reads the tensors of one state.

    Attributes:
      specs: the key in the file, the dtype and the shape of each tensor.
      slices: which part of a larger tensor each is, in the form of SaveV2; empty for all of it.
      object_graph: what `tf.train.Checkpoint.read` follows, serialized.
      read: returns the values now, in the order of `specs`, in the machine's own memory. No later step changes them.
      read_in_place: returns them where they are, be it on a GPU; None if some cannot be read so.
      gpus: for each tensor the GPU that it is on, such as "GPU:0"; "" if it is on none.
    """

    specs: Sequence[Spec]
    slices: Sequence[str]
    object_graph: bytes
    read: Callable[[], list[tf.Tensor]]
    read_in_place: Callable[[], list[tf.Tensor]] | None
    gpus: Sequence[str]


def reader_of(checkpoint: tf.train.Checkpoint, hidden: Mapping[str, Any]) -> StateReader:
    """Return the reader that suits the number of tensors.

    Args:
      checkpoint: tracks the state.
      hidden: variables that it does not track, by their keys in the file.

    Raises:
      EntryError: a part cannot be saved.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # a dataset's options, which its iterator knows all the same
        if len(variables_among(tracked_objects(checkpoint))) + len(hidden) > MANY:
            found, object_graph = entries(checkpoint)
            if (read := _each_alone(found, hidden, in_place=False)) is not None:
                specs = [*((each.key, each.value.dtype, _shape(each)) for each in found), *_specs_of(hidden)]
                return StateReader(specs, [""] * len(specs), object_graph, read, read, [""] * len(specs))
        return traced_reader(checkpoint, hidden)


def traced_reader(checkpoint: tf.train.Checkpoint, hidden: Mapping[str, Any]) -> StateReader:
    """Return a reader that reads all tensors by one call of one traced function.

    Reading five hundred variables one by one, as `Checkpoint.write` does, takes twelve times as long, and the loop
    stands still meanwhile.

    Args:
      checkpoint, hidden: see `reader_of`.
    """
    found: list[GraphEntry] = []
    object_graph = b""

    def all_values() -> list[tf.Tensor]:
        nonlocal found, object_graph
        found, object_graph = entries(checkpoint)
        with tf.device("CPU:0"):
            beside = [tf.identity(variable) for variable in hidden.values()]
        return [owned(entry.value) for entry in found] + beside

    traced = tf.function(all_values, autograph=False).get_concrete_function()
    python_states = [(n, each.owner) for n, each in enumerate(found) if _is_python_state(each.owner)]

    def read() -> list[tf.Tensor]:
        values = list(traced())
        for index, state in python_states:
            values[index] = tf.constant(state.serialize())
        return values

    specs = [*((each.key, each.value.dtype, each.value.shape) for each in found), *_specs_of(hidden)]
    slices = [*(each.slices for each in found), *("" for _ in hidden)]
    gpus = [_gpu_of(each) for each in (*(entry.owner for entry in found), *hidden.values())]
    return StateReader(specs, slices, object_graph, read, _each_alone(found, hidden, in_place=True), gpus)


def _specs_of(hidden: Mapping[str, Any]) -> list[Spec]:
    return [(key, variable.dtype, variable.shape) for key, variable in hidden.items()]


def _each_alone(
    found: Sequence[GraphEntry], hidden: Mapping[str, Any], *, in_place: bool
) -> Callable[[], list[tf.Tensor]] | None:
    """Return a function that reads each tensor by itself; None if only a traced function can read all.

    Args:
      found: the tensors that a checkpoint tracks.
      hidden: see `reader_of`.
      in_place: whether the values may stay on a GPU; otherwise what is there cannot be read so.
    """
    readers = [_one_reader(entry, in_place) for entry in found]
    readers += [_variable_reader(each, tf.as_dtype(each.dtype), in_place) for each in hidden.values()]
    known = [reader for reader in readers if reader is not None]
    return (lambda: [reader() for reader in known]) if len(known) == len(readers) else None


def _gpu_of(owner: Any) -> str:
    """Return the GPU that a variable is on, or its first copy; "" if it is on none, or no variable."""
    device = getattr(getattr(copies_of(owner)[0], "handle", None), "device", None) or ""
    return device.rpartition("device:")[2] if ":GPU:" in device else ""


def _one_reader(entry: GraphEntry, in_place: bool) -> Callable[[], tf.Tensor] | None:
    """Return a function that reads this tensor again; None if only a traced function does."""
    owner = entry.owner
    if _is_python_state(owner):
        return lambda: tf.constant(owner.serialize())
    if isinstance(owner, tf.data.Iterator):
        return lambda: position(owner)
    return None if entry.slices else _variable_reader(owner, entry.value.dtype, in_place)


def _variable_reader(variable: Any, dtype: tf.DType, in_place: bool) -> Callable[[], tf.Tensor] | None:
    """Return a function that reads a variable without a copy; None if it is not a variable, or not on the CPU."""
    if is_distributed(variable):
        if not in_place:
            return None
        if not is_aggregated(variable):
            return lambda: tf.convert_to_tensor(variable)
    elif not hasattr(variable, "handle"):
        return None
    handle = copies_of(variable)[0].handle
    if handle.dtype != tf.resource or ("/device:CPU:" not in handle.device and not in_place):
        return None
    return lambda: tf.raw_ops.ReadVariableOp(resource=handle, dtype=dtype)


def _is_python_state(owner: Any) -> bool:
    return isinstance(owner, tf.train.experimental.PythonState)


def _shape(entry: GraphEntry) -> Any:
    """Return the shape as a traced function knows it. A position's differs at each read, and a variable's may."""
    if isinstance(entry.owner, tf.data.Iterator):
        return tf.TensorShape([None])
    return tf.TensorShape(entry.owner.shape) if hasattr(entry.owner, "handle") else entry.value.shape
