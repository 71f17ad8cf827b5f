"""The earlier lines of a run: what lay ahead each time that it went back. Nothing of them is deleted."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass

from trainerd.rundir.paths import RunDirectory
from trainerd.system import safe_paths
from trainerd.system.durable_files import fsync_directory, read_json, storage, write_atomic

_ABOUT = "line.json"


@dataclass(frozen=True)
class Line:
    """One earlier line.

    Attributes:
      number: its folder's name: 1 for the first time that the run went back.
      began_at: the step of the run directory's checkpoint that its own follow.
      ended_at: its newest step.
      at: when the run went back, in seconds since 1970 (UTC).
      target: the step that it went to.
      target_line: the earlier line that this step was of; None for the line that was left.
    """

    number: int
    began_at: int
    ended_at: int
    at: float
    target: int | None = None
    target_line: int | None = None

    def write(self, rundir: RunDirectory) -> None:
        """Make its folder, and say there what it is.

        Raises:
          OSError: it cannot be made, or is a link.
        """
        folder = rundir.line(self.number)
        for each in (rundir.lines, folder):
            safe_paths.make_folder(each, exist_ok=True)
            fsync_directory(each.parent)
        write_atomic(folder / _ABOUT, json.dumps(asdict(self)).encode() + b"\n")

    def remove(self, rundir: RunDirectory) -> None:
        """Remove its folder, whose checkpoints have left it; and that of all lines if this was the only one.

        Raises:
          OSError: it cannot be removed.
        """
        folder = rundir.line(self.number)
        if not safe_paths.is_folder(rundir.lines):  # `write` makes nothing where a link leads
            return
        if safe_paths.is_folder(folder):
            safe_paths.remove(folder / _ABOUT, missing_ok=True)
            safe_paths.remove_folder(folder)
        if not safe_paths.names(rundir.lines):
            safe_paths.remove_folder(rundir.lines)


def lines(rundir: RunDirectory) -> list[Line]:
    """Return the earlier lines of a run, the oldest first. A folder that says nothing of itself is none.

    Raises:
      StorageError: they cannot be read.
    """
    folders = [rundir.line(number) for number in _numbers(rundir)]
    with storage(f"read {rundir.lines}"):
        own = [folder for folder in folders if safe_paths.is_folder(folder)]  # a link may lead to another run
    found = [read_json(folder / _ABOUT, Line) for folder in own]
    return [line for line in found if line is not None]


def checkpoints_of(rundir: RunDirectory, line: int) -> RunDirectory:
    """Return the folder of an earlier line, as a run directory whose checkpoints can be read."""
    return RunDirectory(rundir.line(line), rundir.basename)


def next_number(rundir: RunDirectory) -> int:
    """Return the number of the next line."""
    return max(_numbers(rundir), default=0) + 1


def _numbers(rundir: RunDirectory) -> list[int]:
    with storage(f"read {rundir.lines}", missing_ok=True):
        names = safe_paths.names(rundir.lines) if safe_paths.is_folder(rundir.lines) else []
        return sorted(int(name) for name in names if _is_line(name))
    return []


def _is_line(name: str) -> bool:
    return name.isascii() and name.isdecimal() and not name.startswith("0")
