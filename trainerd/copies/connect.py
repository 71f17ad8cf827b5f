"""Opens the destination of a copy."""

from __future__ import annotations

from pathlib import Path

from trainerd.config.destination import Destination
from trainerd.copies.layout import RunCopy
from trainerd.copies.rclone import RcloneStore
from trainerd.copies.store import FolderStore

_BYTES_PER_MBIT = 125_000


def connect(destination: Destination, max_mbit: float = 0.0) -> RunCopy:
    """Open a destination.

    Args:
      destination: where.
      max_mbit: the most that is sent, in Mbit/s; 0 for no limit.

    Raises:
      ConfigError: rclone is missing, or others may read a file of credentials.
      CopyError: it cannot be opened.
    """
    limit = max_mbit * _BYTES_PER_MBIT or None
    if destination.scheme == "file":
        return RunCopy(FolderStore(Path(destination.path), limit), str(destination))
    return RunCopy(RcloneStore(destination, limit), str(destination))
