"""The contract between a session, which owns the state, and the store, which makes it durable."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Protocol


class Snapshot(Protocol):
    """The state at one boundary."""

    @property
    def step(self) -> int:
        """The global step of that boundary."""
        ...

    @property
    def size(self) -> int:
        """About how many bytes its files will have."""
        ...

    def write(self, prefix: Path, moved: Callable[[int], None]) -> Mapping[str, str]:
        """Write the state as files whose names start with `prefix`, in TensorFlow's checkpoint format.

        Args:
          prefix: the path that they start with.
          moved: told of the bytes that were dealt with, where the files do not grow meanwhile.

        Returns:
          The 128-bit XXH3 of those files for which it is known already, by name. None is on disk for sure yet.

        Raises:
          OSError: it cannot be written.
          UnsoundError: it must not be: it holds a NaN.
        """
        ...

    def first_change(self, later: Any) -> str | None:
        """The name of a variable whose value is another in a later snapshot of the same model; None if all are."""
        ...

    def release(self) -> None:
        """Give back its memory: it will not be written, or has been. May be called on any thread, and again."""
        ...


class UnsoundError(Exception):
    """The state must not be saved. The message names the variable and says why."""
