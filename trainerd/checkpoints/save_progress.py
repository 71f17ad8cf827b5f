"""The progress of the save under way, which distinguishes a slow disk from a hung one."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable
from pathlib import Path

from trainerd.rundir.paths import RunDirectory
from trainerd.system.resources.mounts import written_back


class SaveProgress:
    """The progress of the save under way. One thread saves; another one may look.

    Args:
      at: called with the stage before each operation of a publish.
    """

    def __init__(self, at: Callable[[str], None]) -> None:
        self._at = at
        self._stage = ""
        self._moved = 0
        self._staging: Path | None = None  # where the save writes its files

    def begin(self, staging: Path) -> Path:
        """Record that a save begins, which writes its files to this folder. Return the folder."""
        self._staging = staging
        return staging

    def enter(self, stage: str) -> None:
        """Record that the next operation is one of this stage."""
        self._stage = stage
        self._at(stage)

    def moved(self, size: int) -> None:
        """Record that so many bytes were checked or hashed."""
        self._moved += size

    def value(self, rundir: RunDirectory, looked_at: int) -> object:
        """Return a value that changes while the save makes progress.

        It is made of the files' size, the bytes that were checked or hashed, how many checkpoints were checked or
        deleted, and, while the files are put on disk, what the kernel has written there.

        Args:
          rundir: where the save is made.
          looked_at: how many checkpoints were checked or deleted.
        """
        written = on_disk = 0
        if self._staging is not None:
            # The save may end at any moment, and its folder with it.
            with contextlib.suppress(OSError), os.scandir(self._staging) as entries:
                written = sum(entry.stat().st_size for entry in entries)
        if self._stage == "fsync":
            with contextlib.suppress(OSError):
                on_disk = written_back(rundir.path)
        return self._stage, written, self._moved, looked_at, on_disk
