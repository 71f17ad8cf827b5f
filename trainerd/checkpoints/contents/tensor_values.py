"""Tensors that keep their values when the variable or table that they were read from is written."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import tensorflow as tf

from trainerd.checkpoints.contents.device_copies import copies_of

# What gives its own memory, and writes into it in place: TensorFlow 1's own kind of variable, and a DenseHashTable.
# A resource variable gives its memory too, and takes another one when it is written to.
_WRITTEN_IN_PLACE = ("VariableV2", "Variable", "TemporaryVariable", "LookupTableExport", "LookupTableExportV2")


def owned(tensor: Any) -> Any:
    """Return the same value, which later steps do not change. Called while a graph is built; copies only if it must."""
    if hasattr(tensor, "numpy"):  # a value of Python's, and of no op
        return tensor
    if tensor.dtype.base_dtype != tensor.dtype:
        return tf.raw_ops.DeepCopy(x=tensor)
    source = tensor
    while source.op.type == "Identity":
        source = source.op.inputs[0]
    return tf.raw_ops.DeepCopy(x=tensor) if source.op.type in _WRITTEN_IN_PLACE else tensor


class Values:
    """The values of variables. TensorFlow copies one when its variable is next written.

    Args:
      variables: TensorFlow's or Keras's.
    """

    def __init__(self, variables: Iterable[Any]) -> None:
        self._values = [(copy, tf.convert_to_tensor(copy)) for each in variables for copy in copies_of(each)]

    def put_back(self) -> None:
        """Assign them to the variables again."""
        for variable, value in self._values:
            variable.assign(value)
