"""The memory that the control groups of a process allow it, of version 1 or 2."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

_MOUNTED = Path("/sys/fs/cgroup")


def memory_limit(pid: int | None = None) -> int | None:
    """Return the smallest memory limit of the control groups of a process, in bytes; None for none.

    Args:
      pid: the process. Default: this one.

    Raises:
      OSError: the process is gone.
    """
    return limit_in(Path(f"/proc/{pid or 'self'}/cgroup").read_text(), _MOUNTED)


def memory_headroom() -> tuple[int, int]:
    """Return how much more memory the control group of this process may take, and its limit, in bytes.

    The pages of files count as free, since the kernel takes them back; those of a tmpfs do not. Without a limit both
    are `sys.maxsize`.
    """
    try:
        return headroom_in(Path("/proc/self/cgroup").read_text(), _MOUNTED)
    except OSError:
        return sys.maxsize, sys.maxsize


def headroom_in(groups: str, mounted: Path) -> tuple[int, int]:
    """Return the smallest headroom and its limit; see `memory_headroom` and `limit_in`."""
    found = []
    for folder, name in _folders(groups, mounted):
        if (limit := _number(folder / name)) is not None:
            used = _number(folder / ("memory.current" if name == "memory.max" else "memory.usage_in_bytes")) or 0
            found.append((limit - used + _reclaimable(folder / "memory.stat"), limit))
    return min(found, default=(sys.maxsize, sys.maxsize))


def limit_in(groups: str, mounted: Path) -> int | None:
    """Return the smallest memory limit of control groups, those above them included; None for none.

    Args:
      groups: the text of /proc/PID/cgroup.
      mounted: where control groups are mounted.
    """
    found = [size for folder, name in _folders(groups, mounted) if (size := _number(folder / name)) is not None]
    return min(found, default=None)


def _folders(groups: str, mounted: Path) -> Iterator[tuple[Path, str]]:
    """Yield the folders that may have a limit, and its file's name. A container sees its own group as the root."""
    for line in groups.splitlines():
        number, _, rest = line.partition(":")
        controllers, _, path = rest.partition(":")
        if number == "0" and not controllers:
            root, name = mounted, "memory.max"
        elif "memory" in controllers.split(","):
            root, name = mounted / "memory", "memory.limit_in_bytes"
        else:
            continue
        place = root / path.lstrip("/")
        yield from ((each, name) for each in (place, *place.parents) if each.is_relative_to(root))


def _number(file: Path) -> int | None:
    try:
        said = file.read_text().strip()
    except OSError:
        return None
    return int(said) if said.isdigit() and int(said) < 1 << 60 else None  # version 1 has a huge number for no limit


def _reclaimable(stat: Path) -> int:
    """Return the bytes of files in memory, without those of a tmpfs."""
    try:
        fields = dict(line.split() for line in stat.read_text().splitlines())
        return max(0, int(fields.get("file", fields.get("cache", "0"))) - int(fields.get("shmem", "0")))
    except (OSError, ValueError):
        return 0
