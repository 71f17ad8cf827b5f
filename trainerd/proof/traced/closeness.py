"""The distance between the variables of two checkpoints; a program, for callers that do not import TensorFlow.

    python -m trainerd.proof.traced.closeness ONE OTHER

prints an object of JSON with the fields of `Closeness`.
"""

from __future__ import annotations

import json
import math
import sys
from dataclasses import asdict, dataclass
from pathlib import Path

from trainerd.proof.traced.variables import Comparison, VariableDifference


@dataclass(frozen=True)
class Closeness:
    """The distance between the variables of two checkpoints.

    Attributes:
      count: how many variables were compared.
      differing: how many are not the same, bit for bit.
      name: the one that differs most; empty if none does.
      relative: by how much, as a share of its largest element; None if that is not a number: it is missing, has
        another shape, or a NaN on one side alone.
      why: how it differs, in words.
    """

    count: int
    differing: int = 0
    name: str = ""
    relative: float | None = 0.0
    why: str = ""


def measure(one: Path, other: Path) -> Closeness:
    """Compare the checkpoints with these prefixes."""
    comparison = Comparison(one, other)
    found = list(comparison.differences())
    if not found:
        return Closeness(comparison.count)
    worst = max(found, key=_distance)
    relative = _distance(worst)
    return Closeness(
        comparison.count, len(found), worst.label, relative if math.isfinite(relative) else None, worst.why
    )


def _distance(difference: VariableDifference) -> float:
    return math.inf if difference.relative is None else difference.relative


if __name__ == "__main__":
    print(json.dumps(asdict(measure(*map(Path, sys.argv[1:])))))
