"""The contract between a session, which owns the state, and the store, which makes it durable."""

from __future__ import annotations

from pathlib import Path
from typing import Protocol


class Snapshot(Protocol):
    """The state at one boundary."""

    @property
    def step(self) -> int:
        """The global step of that boundary."""
        ...

    def write(self, prefix: Path) -> None:
        """Write the state as files whose names start with `prefix`, in TensorFlow's checkpoint format.

        Raises:
          OSError: it cannot be written.
          UnsoundError: it must not be: it holds a NaN.
        """
        ...


class UnsoundError(Exception):
    """The state must not be saved. The message names the variable and says why."""
