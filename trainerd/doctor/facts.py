"""The facts about a run before anything is examined: its config, its state, its newest checkpoint, its process."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

from trainerd.checkpoints import catalogue
from trainerd.checkpoints.manifest import Manifest
from trainerd.config.schema import Config
from trainerd.errors import TrainerdError
from trainerd.rundir.lock import read_holder
from trainerd.rundir.paths import RunDirectory
from trainerd.rundir.state import State, read_state

T = TypeVar("T")
_MOST = float(1 << 62)  # a state.json may say anything


@dataclass(frozen=True)
class SystemdService:
    """The systemd unit that trains a config.

    Attributes:
      name: what `systemctl` calls it.
      user: whether it is one of `systemctl --user`.
    """

    name: str
    user: bool

    @property
    def systemctl(self) -> str:
        """The command for it, as it is typed."""
        return "systemctl --user" if self.user else "systemctl"

    @property
    def journalctl(self) -> str:
        """The command for its log, as it is typed, without its name."""
        return "journalctl --user-unit" if self.user else "journalctl -u"


@dataclass(frozen=True)
class Facts:
    """The known facts about a run.

    Attributes:
      config: what it trains.
      rundir: its run directory, which may not be there yet.
      state: what it says of itself; None if it has not begun, or says nothing that can be understood.
      newest: the checkpoint from which the next start resumes; None if there is none.
      pid: the process that trains it now; None if none does.
      service: the unit that trains it; None if none is known.
      unread: what could not be read of the run directory, and why.
      properties: the unit's properties that `systemctl show` reports.
    """

    config: Config
    rundir: RunDirectory
    state: State | None = None
    newest: Manifest | None = None
    pid: int | None = None
    service: SystemdService | None = None
    unread: tuple[str, ...] = ()
    properties: Mapping[str, str] = field(default_factory=dict)

    @property
    def step_secs(self) -> float | None:
        """The time of a step at the last rate that is known, in seconds."""
        rate = _sane(self.state.steps_per_sec) if self.state is not None else None
        return _sane(1 / rate) if rate else None

    @property
    def save_secs(self) -> float | None:
        """The time that the last save took, from the boundary until it was durable, in seconds."""
        saved = self.state.last_checkpoint if self.state is not None else None
        return _sane(saved.seconds) if saved is not None else None

    @property
    def memory_bytes(self) -> int | None:
        """The resident memory of the process when it last said so."""
        found = _sane(self.state.memory_bytes) if self.state is not None else None
        return int(found) if found else None

    @property
    def folder(self) -> Path:
        """The run directory, or the nearest folder above it that is there."""
        path = self.rundir.path
        return next(each for each in (path, *path.parents) if each.is_dir())


def _sane(value: float | None) -> float | None:
    """Return a measurement that a file states; None if nobody can have measured it."""
    if value is None or not (0 <= value <= _MOST) or not math.isfinite(value):
        return None
    return float(value)


def gather(config: Config, rundir: RunDirectory, service: SystemdService | None = None) -> Facts:
    """Read what a run directory says. `unread` lists what cannot be read."""
    unread: list[str] = []

    def tried(read: Callable[[], T | None]) -> T | None:
        try:
            return read()
        except TrainerdError as error:
            unread.append(str(error))
            return None

    state = tried(lambda: read_state(rundir.state))
    newest = tried(lambda: catalogue.newest(rundir))
    holder = tried(lambda: read_holder(rundir))
    pid = holder.pid if holder is not None else None
    return Facts(config, rundir, state, newest, pid, service, tuple(unread))
