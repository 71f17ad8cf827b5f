"""The file system that holds a folder, and the disk below it."""

from __future__ import annotations

import contextlib
import os
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


def written_back(path: Path) -> int:
    """Return a count that grows while the kernel writes to the disk that holds `path`.

    It counts the sectors of that disk; the pages of all disks, if the kernel counts none for this one (an overlay, a
    network's file system); 0 if neither is known.
    """
    number = _disk(path)
    try:
        fields = Path(f"/sys/dev/block/{os.major(number)}:{os.minor(number)}/stat").read_text().split()
        return int(fields[6])
    except (OSError, IndexError, ValueError):
        pass
    try:
        text = Path("/proc/vmstat").read_text()
    except OSError:
        return 0
    return next((int(line.split()[1]) for line in text.splitlines() if line.startswith("nr_written ")), 0)


def _disk(path: Path) -> int:
    """Return the number of the disk that holds `path`. Btrfs has a number of its own, so its disk is found by the
    mount."""
    number = path.stat().st_dev
    if os.major(number):
        return number
    mount = holding(path.resolve())
    with contextlib.suppress(OSError):
        return (Path(mount.source).stat().st_rdev if mount is not None else 0) or number
    return number
