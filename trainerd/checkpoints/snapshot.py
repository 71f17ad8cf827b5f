"""The contract between a session, which owns the state, and the store, which makes it durable."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Literal, Protocol

Earlier = Callable[[str, Path], bool]
"""Puts a file of an earlier checkpoint with this 128-bit XXH3 at this path. Returns whether there is one."""


def no_earlier(digest: str, path: Path) -> bool:
    """Return False: no earlier checkpoint has a file to share."""
    return False


Kept = Literal["host", "auto", "share", "copy"]
"""Where a snapshot keeps the values of variables.

host: in the machine's own memory: those on a GPU are copied; those on a CPU share the memory of their variables, and
TensorFlow gives a variable other memory when a step writes to it.
share: all share the memory of their variables, on a GPU too. So a GPU needs room for what steps write meanwhile.
copy: all are copied.
auto: as host; or as share while the GPU has room.
"""


class Writable(Protocol):
    """A state that can be written as the files of a checkpoint."""

    @property
    def step(self) -> int:
        """The global step of that boundary."""

    @property
    def size(self) -> int:
        """About how many bytes its files will have."""

    def write(self, prefix: Path, moved: Callable[[int], None], earlier: Earlier = no_earlier) -> Mapping[str, str]:
        """Write the state as files whose names start with `prefix`, in TensorFlow's checkpoint format.

        Those of an earlier state may be there. They are written over.

        Args:
          prefix: the path that they start with.
          moved: called with the number of bytes done, while the files do not grow.
          earlier: called for a file that an earlier checkpoint may have.

        Returns:
          The 128-bit XXH3 of the files for which it is known already, by name. None of the files is durable yet.

        Raises:
          OSError: it cannot be written.
          UnsoundError: it holds a NaN, and must not be saved.
        """


class Snapshot(Writable, Protocol):
    """The state at one boundary."""

    def first_change(self, later: Any) -> str | None:
        """Return what differs in a later snapshot of the same model, in words; None if nothing does."""

    def release(self) -> None:
        """Free its memory: it was written, or will not be. May be called on any thread, and more than once."""


class UnsoundError(Exception):
    """The state must not be saved. The message names the variable and says why."""
