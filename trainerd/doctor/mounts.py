"""Finds the file system that holds a folder."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import psutil


@dataclass(frozen=True)
class Mount:
    """One mounted file system.

    Attributes:
      point: where it is mounted.
      kind: its type, such as "ext4".
      source: the device, or what the type has in its place.
      options: those of the mount and of the file system.
    """

    point: Path
    kind: str
    source: str
    options: frozenset[str]


def holding(path: Path) -> Mount | None:
    """Return the file system that holds a path without links: that of the longest mount point; of equals the last one
    made."""
    parts = [part for part in psutil.disk_partitions(all=True) if path.is_relative_to(part.mountpoint)]
    mounts = [Mount(Path(p.mountpoint), p.fstype, p.device, frozenset(p.opts.split(","))) for p in reversed(parts)]
    return max(mounts, key=lambda mount: len(mount.point.parts), default=None)
