"""Comparing the variables of two checkpoints. Imports TensorFlow; for a caller that does not, it is a program:

    python -m trainerd.proof.traced.variables ONE OTHER

prints the largest difference of the two prefixes' variables as a list of JSON: the share, the variable ("" if all are
the same), and how many variables were compared.
"""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf
from numpy.typing import NDArray

from trainerd.checkpoints.contents.variable_names import NAMES_KEY
from trainerd.sessions.tf1.positions import POSITION

_TABLE = "/.ATTRIBUTES/table-"  # then "keys" or "values"
_NOT_VARIABLES = ("iterator/", POSITION, NAMES_KEY, "_CHECKPOINTABLE")
_VALUE = "/.ATTRIBUTES/VARIABLE_VALUE"


@dataclass(frozen=True)
class VariableDifference:
    """A variable that differs between two checkpoints.

    Attributes:
      name: its name in the checkpoints.
      why: how it differs, in words.
      relative: the largest difference of two elements, as a share of the largest element; infinity if none exists:
        it is missing, has another shape, or a NaN on one side alone.
    """

    name: str
    why: str
    relative: float = math.inf

    @property
    def label(self) -> str:
        """Its name without what every name ends with."""
        return self.name.removesuffix(_VALUE)

    def __str__(self) -> str:
        return f"{self.label}: {self.why}"


class Comparison:
    """Compares the variables of two checkpoints.

    The positions of datasets are not compared: the same one may be written in other bytes.

    Args:
      one, other: the prefixes of the checkpoints.

    Attributes:
      count: how many variables are compared, those of one alone too.
      opaque: the names of other values that cannot be compared, since only TensorFlow can read them: variants.
    """

    def __init__(self, one: Path, other: Path) -> None:
        self._readers = [tf.train.load_checkpoint(str(path)) for path in (one, other)]
        kinds: list[Mapping[str, Any]] = [reader.get_variable_to_dtype_map() for reader in self._readers]
        names = [{name for name in each if not name.startswith(_NOT_VARIABLES)} for each in kinds]
        opaque = {name for each in kinds for name, kind in each.items() if not kind.is_numpy_compatible}
        self._names = [each - opaque for each in names]
        self.count = len(self._names[0] | self._names[1])
        self.opaque = sorted((names[0] | names[1]) & opaque)

    def differences(self) -> Iterator[VariableDifference]:
        """Yield the variables that differ, by their names."""
        for name in sorted(self._names[0] | self._names[1]):
            where = [name in names for names in self._names]
            if not all(where):
                yield VariableDifference(name, f"only in the {'first' if where[0] else 'second'}")
                continue
            one, other = (_value(reader, name) for reader in self._readers)
            if why := _difference(one, other):
                yield VariableDifference(name, why, _relative(one, other))


def first_other_variable(one: Path, other: Path) -> tuple[int, str | None]:
    """Compare two checkpoints; see `Comparison`.

    Returns:
      How many variables were compared, and the first, by name, whose bytes are not the same; None if all are.
    """
    comparison = Comparison(one, other)
    first = next(comparison.differences(), None)
    return comparison.count, first.name if first is not None else None


def _value(reader: Any, name: str) -> NDArray[Any]:
    """Return a variable; of a lookup table, its keys or values in the order of the keys: it has none of its own."""
    value = np.asarray(reader.get_tensor(name))
    table, found, _ = name.rpartition(_TABLE)
    if not found:
        return value
    keys = np.asarray(reader.get_tensor(f"{table}{_TABLE}keys"))
    rows = [np.asarray(key).tolist() for key in keys]  # a key may be an array
    return value[sorted(range(len(rows)), key=lambda index: rows[index])]


def _difference(one: NDArray[Any], other: NDArray[Any]) -> str:
    """Return the words for the difference of two values; empty if they are the same, bit for bit."""
    if one.dtype != other.dtype or one.shape != other.shape:
        return f"{one.dtype}{list(one.shape)} and {other.dtype}{list(other.shape)}"
    if one.dtype == object:  # an array of texts holds where they are, and not they themselves
        return "" if one.tolist() == other.tolist() else "other texts"
    ours, theirs = (np.frombuffer(each.tobytes(), np.uint8) for each in (one, other))
    differing = int((ours != theirs).sum())
    if not differing:
        return ""
    said = f"{differing:,} of {ours.size:,} bytes differ"
    if _is_real(one):
        said += f", by {_furthest(one, other):.3g} at most"
    return said


def _relative(one: NDArray[Any], other: NDArray[Any]) -> float:
    """Return the largest difference of two elements, as a share of the largest one; see `VariableDifference`."""
    if one.dtype != other.dtype or one.shape != other.shape or not _is_real(one):
        return math.inf
    scale = max(float(np.nanmax(np.abs(each.astype(np.float64)), initial=0.0)) for each in (one, other))
    furthest = _furthest(one, other)
    return furthest / scale if scale and np.isfinite(furthest) and np.isfinite(scale) else math.inf


def _is_real(value: NDArray[Any]) -> bool:
    return np.issubdtype(value.dtype, np.number) and not np.issubdtype(value.dtype, np.complexfloating)


def _furthest(one: NDArray[Any], other: NDArray[Any]) -> float:
    """Return the largest difference of two elements; infinity if one is NaN and the other is not."""
    ones, others = one.astype(np.float64), other.astype(np.float64)
    if (np.isnan(ones) != np.isnan(others)).any():
        return float("inf")
    with np.errstate(invalid="ignore"):
        return float(np.nanmax(np.abs(ones - others), initial=0.0))


if __name__ == "__main__":
    compared = Comparison(*map(Path, sys.argv[1:]))
    worst = max(compared.differences(), key=lambda each: each.relative, default=None)
    print(json.dumps([worst.relative, worst.label, compared.count] if worst else [0.0, "", compared.count]))
