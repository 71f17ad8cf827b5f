"""Checks whether there is space for a checkpoint, and makes some."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from pathlib import Path

from trainerd import text
from trainerd.checkpoints import catalogue
from trainerd.checkpoints.checkpoint_files import CheckpointFiles
from trainerd.checkpoints.retention import Point
from trainerd.checkpoints.snapshot import Writable
from trainerd.errors import StorageError
from trainerd.rundir.paths import RunDirectory
from trainerd.system.durable_files import storage

log = logging.getLogger(__name__)

_MARGIN = 1 << 20  # bytes for the index, the manifest and what else is written beside the tensors


class NoRoomError(StorageError):
    """The file system has too little space for a checkpoint.

    Attributes:
      needed: bytes.
    """

    def __init__(self, message: str, *, needed: int) -> None:
        super().__init__(message)
        self.needed = needed


class DiskSpace:
    """The space that checkpoints of a run directory need.

    Args:
      rundir: where they are.
      files: deletes those that retention gives up.
      free: returns how many bytes may be written in a folder.
    """

    def __init__(self, rundir: RunDirectory, files: CheckpointFiles, free: Callable[[Path], int]) -> None:
        self._rundir = rundir
        self._files = files
        self._free = free

    def has(self, needed: int) -> bool:
        """Return whether so many bytes may be written."""
        with storage(f"read {self._rundir.path}"):
            return self._free(self._rundir.path) >= needed

    def make(
        self,
        snapshot: Writable,
        *,
        before: int | None,
        trained_secs: float,
        stays: Sequence[int] = (),
        is_whole: bool = False,
    ) -> bool:
        """Delete before a save what would be deleted after it, if there is too little space.

        Args:
          snapshot: what is to be saved.
          before: the step of the checkpoint before it.
          trained_secs: the seconds that the run has trained by then.
          stays: steps that must stay, beside the one that a start would use.
          is_whole: whether it needs room for all of its files. Else those that the newest checkpoint shares with others
            need none: it will share them too.

        Returns:
          Whether there is room for all of its files.

        Raises:
          NoRoomError: that makes too little space.
        """
        order = catalogue.resume_order(self._rundir)
        newest = self._files.manifest(order[0]) if order else None
        needed = max(snapshot.size, newest.size if newest else 0) + _MARGIN  # a snapshot does not know all of its size
        if self.has(needed):
            return True
        if newest is not None and not is_whole:
            needed -= self._files.shared_bytes(newest)
            if self.has(needed):
                return False
        # As if this save were there already. The one that a start would use stays, whatever comes of this one.
        upcoming = Point(snapshot.step, trained_secs, before=before, size=snapshot.size)
        for step in self._files.deletable(snapshot.step, upcoming=upcoming, stays=[*order[:1], *stays]):
            log.info("deleting the checkpoint of step %d to have room", step, extra={"event": "room"})
            self._files.delete([step])
            if self.has(needed):
                return is_whole
        free = self._free(self._rundir.path)
        raise NoRoomError(
            f"cannot write the checkpoint of step {snapshot.step} in {self._rundir.path}: it needs "
            f"{text.size(needed)}, and {text.size(free)} are free. Free some space on that file system.",
            needed=needed,
        )
