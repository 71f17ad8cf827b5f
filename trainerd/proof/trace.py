"""A trace: a row for each step of a run, in a file that a kill leaves readable. Needs no TensorFlow."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from trainerd.loop.contract import Steps

Rows = NDArray[np.float64]
EVALUATION, EPOCH, INTERRUPTED = "evaluation", "epoch", "interrupted"  # INTERRUPTED: in an evaluation
BATCH = "batch digest "  # and a number: the columns that identify the batch


class Trace:
    """Appends the steps of one life of a run to a file.

    The file is a line of JSON with the names of the columns, and then rows of float64, little-endian: the step, and a
    value for each name. Each `append` is one write, so that a kill leaves whole rows and at most a part of one.

    Args:
      path: the file; rows of an earlier life stay.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file: BinaryIO | None = None

    def append(self, steps: Steps) -> None:
        """Write the steps that `run_until` ran."""
        if not len(steps.rows):
            return
        numbers = np.arange(steps.first, steps.first + len(steps.rows), dtype=np.float64)
        rows = np.column_stack([numbers, steps.rows]).astype("<f8")
        if self._file is None:
            self._file = self._open(steps.names, rows[0].nbytes)
        self._file.write(rows.tobytes())

    def mark(self, what: str, step: int) -> None:
        """Note what happens at a boundary, in a file beside the trace."""
        with _marks_of(self._path).open("a", encoding="utf-8") as file:
            file.write(f"{what} {step}\n")

    def close(self) -> None:
        """Close the file: nothing more will be written."""
        if self._file is not None:
            self._file.close()

    def _open(self, names: Sequence[str], width: int) -> BinaryIO:
        """Open it at its end, and cut off a part of a row that a kill left."""
        file = self._path.open("a+b", buffering=0)
        if file.tell() == 0:
            file.write(json.dumps(list(names)).encode() + b"\n")
        end = file.tell()
        file.seek(0)
        header = len(file.readline())
        file.truncate(header + (end - header) // width * width)
        file.seek(0, os.SEEK_END)
        return file


def _marks_of(path: Path) -> Path:
    return path.with_name("marks")


def steps_marked(path: Path, what: str) -> list[int]:
    """Return the steps at which the run of a trace has noted something, each once."""
    marks = _marks_of(path)
    lines = marks.read_text(encoding="utf-8").splitlines() if marks.exists() else []
    return sorted({int(step) for word, step in map(str.split, lines) if word == what})


def read(path: Path) -> tuple[list[str], Rows]:
    """Return the names of the columns, and the rows: shape [steps, 1 + names]."""
    with path.open("rb") as file:
        names: list[str] = json.loads(file.readline())
        content = file.read()
    width = 8 * (1 + len(names))
    return names, np.frombuffer(content[: len(content) // width * width], "<f8").reshape(-1, 1 + len(names))


@dataclass(frozen=True)
class TraceDifference:
    """The first step that was not the same.

    Attributes:
      step: which.
      name: of what: a metric, "the batch", "the step", "the end", or a variable at the end.
      one, other: its values; of a batch, digests; of a variable, none.
    """

    step: int
    name: str
    one: Any
    other: Any

    def __str__(self) -> str:
        if self.is_of_input:
            return f"step {self.step}: another batch"
        if self.other is None:
            return f"step {self.step}, the end: {self.name} differs"
        return f"step {self.step}: {self.name} is {self.other!r}, and was {self.one!r} without a stop"

    @property
    def is_of_input(self) -> bool:
        """True if the input differs, whatever the step computed from it."""
        return self.name == "the batch"


def first_difference(names: list[str], one: Rows, other: Rows) -> TraceDifference | None:
    """Compare a run with another that may have done some steps twice: both times must equal the first run's.

    Values are compared by their bits. Where several things differ in a step the batch is named: it comes first.
    """
    by_step = {int(row[0]): row for row in one}
    for row in sorted(other, key=lambda row: row[0]):
        expected = by_step.get(int(row[0]))
        if expected is None:
            return TraceDifference(int(row[0]), "the step", "not done", "done")
        if expected.tobytes() != row.tobytes():
            return _what_differs(names, expected, row)
    missing = sorted(by_step.keys() - {int(row[0]) for row in other})
    return TraceDifference(missing[0], "the step", "done", "not done") if missing else None


def _what_differs(names: list[str], expected: Rows, row: Rows) -> TraceDifference:
    differing = [i for i in range(1, len(row)) if expected[i].tobytes() != row[i].tobytes()]
    of_batch = [i for i in differing if names[i - 1].startswith(BATCH)]
    index = (of_batch or differing)[0]
    name = "the batch" if of_batch else names[index - 1]
    return TraceDifference(int(row[0]), name, float(expected[index]), float(row[index]))
