"""A session without TensorFlow, for tests of what is above sessions. It honours the same contract."""

from __future__ import annotations

import json
import math
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from trainerd.checkpoints.snapshot import Earlier, Kept, UnsoundError, no_earlier
from trainerd.errors import DataError
from trainerd.job.settable import Number
from trainerd.loop.contract import Session, Steps
from trainerd.loop.flag import Flag


@dataclass(frozen=True)
class FakeSnapshot:
    """A snapshot that writes two small files, named as TensorFlow names them."""

    step: int
    value: float

    @property
    def size(self) -> int:
        """A few bytes."""
        return 100

    def write(self, prefix: Path, moved: Callable[[int], None], earlier: Earlier = no_earlier) -> dict[str, str]:
        """Write the state as JSON."""
        if np.isnan(self.value):
            raise UnsoundError("the variable 'value' holds a NaN")
        prefix.with_name(prefix.name + ".data-00000-of-00001").write_text(json.dumps(self.value))
        prefix.with_name(prefix.name + ".index").write_text(json.dumps(self.step))
        return {}

    def first_change(self, later: FakeSnapshot) -> str | None:
        """Return the words for the number if it has changed; else None."""
        return None if later.value == self.value else "the state: the variable 'value'"

    def release(self) -> None:
        """Do nothing: it holds nothing."""


class FakeSession(Session):
    """Adds 2 to a number at each step, like the seed's counter.

    One class, since the loop's contract asks for most of its methods.

    Args:
      on_step: called with the global step before each step; what it raises, `run_until` raises.
      ends_at: the step after which the input has no more batches.
      figures: returns the metrics of `evaluate` for a step; None if there is no evaluation.
      changes: what `changes_since` returns.
    """

    def __init__(
        self,
        *,
        on_step: Callable[[int], None] = lambda step: None,
        ends_at: int | None = None,
        figures: Callable[[int], dict[str, float]] | None = None,
        loss: Callable[[int], float] = lambda step: 1.0 / step,
        fingerprint: dict[str, str] | None = None,
        changes: Sequence[str] = (),
    ) -> None:
        self.value = 0.0
        self._on_step = on_step
        self._ends_at = ends_at
        self._figures = figures
        self._loss = loss
        self._fingerprint = fingerprint or {}
        self._changes = list(changes)
        self._raised = threading.Event()
        self.skipped: list[tuple[int, int]] = []

    step = 0
    calls_python = False

    @property
    def has_evaluation(self) -> bool:
        """True if it was made with `figures`."""
        return self._figures is not None

    def bind(self, flag: Flag) -> None:
        """Look at this flag after every step."""
        flag.bind(lambda raised: self._raised.set() if raised else self._raised.clear())

    def run_until(self, limit: int) -> Steps:
        """Run steps in Python."""
        first = self.step + 1
        rows: list[list[float]] = []
        while self.step < limit and not self._raised.is_set():
            if self.step == self._ends_at:
                return Steps(first, ("loss", "p"), self._table(rows), ended=True)
            self._on_step(self.step + 1)
            self.step += 1
            self.value += 2.0
            rows.append([self._loss(self.step), self.value])
            if not np.isfinite(rows[-1][0]):
                break
        return Steps(first, ("loss", "p"), self._table(rows))

    @staticmethod
    def _table(rows: list[list[float]]) -> np.ndarray[Any, np.dtype[np.float64]]:
        return np.array(rows, dtype=np.float64).reshape(len(rows), 2)

    def snapshot(self, kept: Kept = "host") -> FakeSnapshot:
        """Return the number and its step."""
        return FakeSnapshot(self.step, self.value)

    def restore(self, prefix: Path) -> None:
        """Read what FakeSnapshot wrote."""
        try:
            self.value = json.loads(prefix.with_name(prefix.name + ".data-00000-of-00001").read_text())
            self.step = json.loads(prefix.with_name(prefix.name + ".index").read_text())
        except (OSError, ValueError) as error:
            raise DataError(f"{prefix} does not fit the job: {error}") from error

    def changes_since(self, prefix: Path) -> list[str]:
        """Return the changes that it was made with."""
        return self._changes

    def fingerprint(self) -> dict[str, str]:
        """Return the fingerprint that it was made with."""
        return self._fingerprint

    def evaluate(self) -> dict[str, float]:
        """Return the metrics for this step."""
        return self._figures(self.step) if self._figures else {}

    def numbers(self) -> dict[str, Number]:
        """Return the number, and one that cannot be set."""
        return {"value": Number(self.value, minimum=-1e6), "scheduled": Number(math.nan, fixed="it follows a schedule")}

    def assign(self, name: str, value: float) -> None:
        """Set the number."""
        assert name == "value"
        self.value = value

    def skip(self, count: int) -> list[int]:
        """Note the skip. Return indices that count from 0."""
        self.skipped.append((self.step, count))
        return list(range(count))

    def weights(self) -> Mapping[str, Any]:
        """Return the number."""
        return {"value": self.value}

    def events(self, logdir: Path) -> Any:
        """Return None: nothing writes for it."""
        return None
