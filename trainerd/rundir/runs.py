"""All runs of this user on this machine, and those of the machine's own services."""

from __future__ import annotations

import contextlib
import os
import subprocess
import time
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Generic, TypeVar

from trainerd.errors import TrainerdError
from trainerd.rundir import registry
from trainerd.rundir.lock import find_removed, read_holder
from trainerd.rundir.names import RunIdentity, names
from trainerd.rundir.paths import RunDirectory
from trainerd.rundir.state import DAMAGED, State, is_running, read_state
from trainerd.system import machine
from trainerd.system.machine import NAME, WATCHER
from trainerd.system.process_identity import LiveProcess

T = TypeVar("T")
R = TypeVar("R", bound="ListedRun")
Stamp = tuple[str, int, int, int]
_SYSTEMCTL_SECS = 5.0


@dataclass(frozen=True)
class ListedRun:
    """One run at one moment.

    Attributes:
      rundir: its run directory.
      state: what it says of itself; None if nothing was trained there yet, or it cannot be read.
      is_running: whether a process trains it.
      unread: what cannot be read of it, and why, or systemd's word in its place; empty if all can.
      name: its name, which no other run of a list has; see `trainerd.rundir.names`. Empty until it is in one.
    """

    rundir: RunDirectory
    state: State | None
    is_running: bool
    unread: str = ""
    name: str = ""

    @property
    def identity(self) -> RunIdentity:
        """The parts that its name is made of."""
        return _identity(self.rundir.path, self.state)

    def to_json(self) -> dict[str, Any]:
        """Return the run as JSON's types: the fields of state.json, with its name, its folder and whether it runs."""
        state = self.state.to_json() if self.state is not None else {}
        logdir = str(self.rundir.path)
        return state | {"name": self.name, "logdir": logdir, "running": self.is_running, "told": self.unread}


class Cached(Generic[T]):
    """Keeps what was read for as long as the files that it was read from stay the same."""

    def __init__(self) -> None:
        self._found: tuple[object, T] | None = None

    def get(self, stamps: object, read: Callable[[], T]) -> T:
        """Return what the files hold; read them only if they have changed.

        Args:
          stamps: what the files were like before this call; a file that changes meanwhile is read again the next time.
          read: reads them.

        Raises:
          StorageError: they cannot be read.
        """
        if self._found is None or self._found[0] != stamps:
            self._found = (stamps, read())
        return self._found[1]


def stamp_of(path: Path) -> Stamp | None:
    """Return a value that changes when a file changes; None if there is no such file, or it may not be read."""
    try:
        found = os.lstat(path)
    except OSError:
        return None
    return path.name, found.st_ino, found.st_size, found.st_mtime_ns


class RunReader:
    """Reads the state of one run: each file again only when it has changed.

    Args:
      path: its run directory.
      searches: whether a process is searched that trains in this folder although it was removed, which takes long.
    """

    def __init__(self, path: Path, *, searches: bool = False) -> None:
        self.rundir = RunDirectory(path)
        self._files, self._searches = (self.rundir.state, self.rundir.lock), searches
        self._unit = _unit_of(path)
        self._state: Cached[State | None] = Cached()
        self._holder: Cached[LiveProcess | None] = Cached()

    def is_here(self) -> bool:
        """Return whether a process of this machine trains the run.

        Raises:
          StorageError: its lock cannot be read.
        """
        # Cached, since who has ended never comes back.
        holder = self._holder.get(stamp_of(self._files[1]), lambda: _live_holder(self.rundir))
        return holder is not None and holder.is_alive()

    def read(self) -> ListedRun:
        """Read the present state of the run."""
        rundir, state, is_here, unread = self.rundir, None, False, ""
        if self._unit and not _may(os.R_OK | os.X_OK, rundir.path):
            return _by_systemd(rundir, self._unit)
        try:
            stamp = stamp_of(self._files[0])
            state = self._state.get(stamp, lambda: read_state(rundir.state))
            unread = DAMAGED if state is None and stamp is not None else ""
            is_here = self.is_here()
            if self._searches and not is_here and not (state is not None and state.phase.is_over):
                is_here = find_removed(rundir) is not None
        except TrainerdError as error:  # another user's, or a disk that fails: the others are shown
            state, unread = None, str(error)
        return ListedRun(rundir, state, is_running(state, is_here=is_here, now=time.time()), unread)


def _live_holder(rundir: RunDirectory) -> LiveProcess | None:
    holder = read_holder(rundir)
    return LiveProcess(holder.pid, holder.uptime_at_start) if holder is not None else None


def all_runs() -> list[ListedRun]:
    """Return the runs, by name.

    Raises:
      StorageError: what is known of them cannot be read.
    """
    return named([RunReader(path, searches=True).read() for path in all_paths()])


def named(runs: Sequence[R]) -> list[R]:
    """Return these runs with a name for each, sorted by it."""
    found = names([run.identity for run in runs])
    return sorted((replace(run, name=found[run.rundir.path]) for run in runs), key=lambda run: run.name)


def identities(paths: Collection[Path]) -> list[RunIdentity]:
    """Return the parts of the runs' names. Of a run that cannot be read, that is its folder alone."""
    found = []
    for path in paths:
        state = None
        with contextlib.suppress(TrainerdError):
            state = read_state(RunDirectory(path).state)
        found.append(_identity(path, state))
    return found


def _identity(path: Path, state: State | None) -> RunIdentity:
    return RunIdentity(path, state.name, state.job) if state is not None else RunIdentity(path)


def all_paths() -> list[Path]:
    """Return the run directories of all runs; see `all_runs`."""
    found: dict[object, Path] = {}
    for path in (*(run.path for run in registry.known()), *_of_services()):
        found.setdefault(_folder(path), path)
    return list(found.values())


def _folder(path: Path) -> object:
    """Return the identity of a folder, whatever its name; its path if it may not be read."""
    try:
        found = path.stat()
    except OSError:
        return path
    return found.st_dev, found.st_ino


def readable_paths() -> list[Path]:
    """Return those of `all_paths` that can be read: all but the services that only root may look into."""
    return [path for path in all_paths() if not _unit_of(path) or _may(os.R_OK | os.X_OK, path)]


def _of_services() -> list[Path]:
    """Return the run directories of the machine's own services: to systemd they are links into a folder of root's."""
    found = [machine.MACHINE.state / NAME, *machine.MACHINE.state.glob(f"{NAME}-*")]
    runs = [path for path in found if path.name != WATCHER and _is_there(path)]
    return [path.resolve() if _may(os.R_OK, path) else path for path in runs]


def _may(what: int, path: Path) -> bool:
    """Return whether this process may do this, with the capabilities that it has."""
    return os.access(path, what, effective_ids=True)


def _is_there(path: Path) -> bool:
    return os.path.isdir(path) or os.path.islink(path)  # noqa: PTH112, PTH114  no error where it may not be read


def _unit_of(path: Path) -> str:
    """Return the unit whose run this is; empty for none."""
    if machine.MACHINE.state not in path.parents:
        return ""
    instance = path.name.removeprefix(NAME).removeprefix("-")
    return f"{NAME}@{instance}" if instance else NAME


def _by_systemd(rundir: RunDirectory, unit: str) -> ListedRun:
    """Return a run that only root may look into, as systemd describes it."""
    show = ["systemctl", "show", "--property=ActiveState", "--property=StatusText", unit]
    try:
        done = subprocess.run(show, capture_output=True, text=True, timeout=_SYSTEMCTL_SECS, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return ListedRun(rundir, None, False, "only root may look into it")
    said = dict(line.split("=", 1) for line in done.stdout.splitlines() if "=" in line)
    active = said.get("ActiveState", "unknown")
    return ListedRun(rundir, None, active == "active", ": ".join(filter(None, [active, said.get("StatusText")])))
