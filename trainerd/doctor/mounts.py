"""Finds the file system that holds a folder, in the text of /proc/self/mountinfo; see proc_pid_mountinfo(5). Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

PATH = Path("/proc/self/mountinfo")


@dataclass(frozen=True)
class Mount:
    """One mounted file system.

    Attributes:
      point: where it is mounted.
      kind: its type, such as "ext4".
      source: the device, or what the type has in its place.
      options: those of the mount and of the file system.
      number: the device's number, as "254:0".
    """

    point: Path
    kind: str
    source: str
    options: frozenset[str]
    number: str


def parse(mountinfo: str) -> Iterator[Mount]:
    """Yield the mounts, in the order in which they were made. Any other line is skipped."""
    for line in mountinfo.splitlines():
        before, dash, after = line.partition(" - ")
        fields, rest = before.split(" "), after.split(" ")
        if dash and len(fields) >= 6 and len(rest) >= 3:
            options = frozenset([*fields[5].split(","), *rest[2].split(",")])
            yield Mount(Path(_unescaped(fields[4])), rest[0], _unescaped(rest[1]), options, fields[2])


def holding(mountinfo: str, path: Path) -> Mount | None:
    """Return the file system that holds a path without links: that of the longest mount point; of equals the last one
    made."""
    found = [mount for mount in parse(mountinfo) if path.is_relative_to(mount.point)]
    return max(reversed(found), key=lambda mount: len(mount.point.parts), default=None)


def _unescaped(text: str) -> str:
    return re.sub(r"\\([0-7]{3})", lambda match: chr(int(match[1], 8)), text)
