"""All runs of this user on this machine, and those of the machine's own services."""

from __future__ import annotations

import os
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from trainerd.errors import TrainerdError
from trainerd.rundir import registry
from trainerd.rundir.lock import find_removed, read_holder
from trainerd.rundir.paths import RunDirectory
from trainerd.rundir.state import DAMAGED, State, is_running, read_state
from trainerd.system import machine
from trainerd.system.machine import NAME, WATCHER

_SYSTEMCTL_SECS = 5.0


@dataclass(frozen=True)
class Run:
    """One run.

    Attributes:
      name: tells it apart from the others.
      path: its run directory.
      state: what it says of itself; None if nothing was trained there yet, or it cannot be read.
      is_running: whether a process trains it.
      told: what there is to say of a run that cannot be read: systemd's word, or the error.
    """

    name: str
    path: Path
    state: State | None
    is_running: bool
    told: str = ""

    def to_json(self) -> dict[str, Any]:
        """The run as JSON's types: the fields of state.json, with its name, its folder and whether it runs."""
        state = self.state.to_json() if self.state is not None else {}
        return state | {"name": self.name, "logdir": str(self.path), "running": self.is_running, "told": self.told}


def all_runs() -> list[Run]:
    """The runs, by name.

    Raises:
      StorageError: what is known of them cannot be read.
    """
    names = registry.names(all_paths())
    return sorted((_look(name, path) for path, name in names.items()), key=lambda run: run.name)


def all_paths() -> list[Path]:
    """The run directories of all runs; see `all_runs`."""
    found: dict[object, Path] = {}
    for path in (*(run.path for run in registry.known()), *_of_services()):
        found.setdefault(_folder(path), path)
    return list(found.values())


def _folder(path: Path) -> object:
    """Which folder it is, whatever its name; the path where it may not be looked at."""
    try:
        found = path.stat()
    except OSError:
        return path
    return found.st_dev, found.st_ino


def readable_paths() -> list[Path]:
    """Those of `all_paths` that can tell anything: without the services that only root may look into."""
    return [path for path in all_paths() if not _unit_of(path) or _may(os.R_OK | os.X_OK, path)]


def _of_services() -> list[Path]:
    """The run directories of the machine's own services. systemd has them be links into a folder that is root's."""
    found = [machine.MACHINE.state / NAME, *machine.MACHINE.state.glob(f"{NAME}-*")]
    runs = [path for path in found if path.name != WATCHER and _is_there(path)]
    return [path.resolve() if _may(os.R_OK, path) else path for path in runs]


def _may(what: int, path: Path) -> bool:
    """Whether this process may do this, with the capabilities that it has."""
    return os.access(path, what, effective_ids=True)


def _is_there(path: Path) -> bool:
    return os.path.isdir(path) or os.path.islink(path)  # noqa: PTH112, PTH114  no error where it may not be looked at


def _look(name: str, path: Path) -> Run:
    unit = _unit_of(path)
    if unit and not _may(os.R_OK | os.X_OK, path):
        return _by_systemd(name, path, unit)
    rundir = RunDirectory(path)
    try:
        state = read_state(rundir.state)
        is_over = state is not None and state.phase.is_over  # then nothing trains in a folder that was removed
        is_here = read_holder(rundir) is not None or (not is_over and find_removed(rundir) is not None)
    except TrainerdError as error:  # another user's, or a disk that fails: the others are shown
        return Run(name, path, None, False, str(error))
    running = is_running(state, is_here=is_here, now=time.time())
    return Run(name, path, state, running, DAMAGED if state is None and os.path.lexists(rundir.state) else "")


def _unit_of(path: Path) -> str:
    """The unit whose run this is; empty for none."""
    if machine.MACHINE.state not in path.parents:
        return ""
    instance = path.name.removeprefix(NAME).removeprefix("-")
    return f"{NAME}@{instance}" if instance else NAME


def _by_systemd(name: str, path: Path, unit: str) -> Run:
    """What systemd says of a run that only root may look into."""
    show = ["systemctl", "show", "--property=ActiveState", "--property=StatusText", unit]
    try:
        done = subprocess.run(show, capture_output=True, text=True, timeout=_SYSTEMCTL_SECS, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return Run(name, path, None, False, "only root may look into it")
    said = dict(line.split("=", 1) for line in done.stdout.splitlines() if "=" in line)
    active = said.get("ActiveState", "unknown")
    return Run(name, path, None, active == "active", ": ".join(filter(None, [active, said.get("StatusText")])))
