"""Comparing the variables of two checkpoints. Imports TensorFlow."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf
from numpy.typing import NDArray

from trainerd.sessions.tf1.positions import POSITION

_TABLE = "/.ATTRIBUTES/table-"  # then "keys" or "values"
_NOT_VARIABLES = ("iterator/", POSITION, "_CHECKPOINTABLE")


def first_other_variable(one: Path, other: Path) -> tuple[int, str | None]:
    """Compare two checkpoints.

    The positions of datasets are not looked at: the same one may be written in other bytes. The batches were compared,
    or what was made of them.

    Returns:
      How many variables were compared, and the first, by name, whose bytes are not the same; None if all are.
    """
    readers = [tf.train.load_checkpoint(str(path)) for path in (one, other)]
    names = [
        {name for name in reader.get_variable_to_shape_map() if not name.startswith(_NOT_VARIABLES)}
        for reader in readers
    ]
    for name in sorted(names[0] | names[1]):
        if name not in names[0] & names[1]:
            return len(names[0]), name
        values = [_value(reader, name) for reader in readers]
        if not _are_same(*values):
            return len(names[0]), name
    return len(names[0]), None


def _value(reader: Any, name: str) -> NDArray[Any]:
    """A variable; of a lookup table, its keys or values in the order of the keys: it has none of its own."""
    value = np.asarray(reader.get_tensor(name))
    table, found, _ = name.rpartition(_TABLE)
    if not found:
        return value
    keys = np.asarray(reader.get_tensor(f"{table}{_TABLE}keys"))
    rows = [np.asarray(key).tolist() for key in keys]  # a key may be an array
    return value[sorted(range(len(rows)), key=lambda index: rows[index])]


def _are_same(one: NDArray[Any], other: NDArray[Any]) -> bool:
    """Whether two values are the same, bit for bit. An array of texts holds where they are, and not they themselves."""
    if one.dtype != other.dtype or one.shape != other.shape:
        return False
    return bool(one.tolist() == other.tolist() if one.dtype == object else one.tobytes() == other.tobytes())
