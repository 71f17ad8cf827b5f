"""The agent's own file, agent.json: its notes on each entry, and its decisions. Others read it."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from trainerd.agent.progress import EntryProgress
from trainerd.rundir.lock import Holder
from trainerd.system.durable_files import read_json, storage, write_atomic
from trainerd.system.xdg import state_home

_SAME_BOOT_SECS = 60.0  # what the kernel says of the moment of a boot varies by less


@dataclass(frozen=True)
class EntryNotes:
    """The notes of the agent on one entry.

    Attributes:
      progress: its progress.
      logdir: its run directory.
      why: why it waits or is paused, for a person; empty if it trains.
      until: when that changes, in seconds since 1970 (UTC), if that is known.
    """

    progress: EntryProgress
    logdir: str
    why: str = ""
    until: float | None = None


@dataclass(frozen=True)
class AgentNotes:
    """The content of the file.

    Attributes:
      version: the version of the agent.
      pid, create_time, uptime_at_start: its process; see `trainerd.rundir.state.State`.
      slots: how many runs it trains at a time.
      gpus: the GPUs that it gives to runs.
      entries: name to what it knows of it.
      troubles: why sweeps do not continue.
      host: its machine.
    """

    version: str = ""
    pid: int = 0
    create_time: float = 0.0
    uptime_at_start: float = 0.0
    slots: int = 1
    gpus: tuple[int, ...] = ()
    entries: Mapping[str, EntryNotes] = field(default_factory=dict)
    troubles: tuple[str, ...] = ()
    host: str = ""

    def since_boot(self, create_time: float, uptime_at_start: float) -> AgentNotes:
        """Return the notes for a new agent: if the machine has booted since, nothing waits to start again.

        Args:
          create_time, uptime_at_start: those of the new agent's process.
        """
        booted_at, booted_before = create_time - uptime_at_start, self.create_time - self.uptime_at_start
        if abs(booted_at - booted_before) < _SAME_BOOT_SECS:
            return self
        entries = {
            name: dataclasses.replace(each, progress=dataclasses.replace(each.progress, again_at=0.0))
            for name, each in self.entries.items()
        }
        return dataclasses.replace(self, entries=entries)

    def is_alive(self) -> bool:
        """Return whether the agent that wrote them runs."""
        return Holder(self.pid, self.create_time, self.uptime_at_start).is_alive()


def folder() -> Path:
    """Return the folder of the agent's own files."""
    return state_home() / "trainerd" / "agent"


def file() -> Path:
    """Return the path of the file."""
    return folder() / "agent.json"


def read() -> AgentNotes:
    """Read the file; empty notes if there is none, or if it is damaged.

    Raises:
      StorageError: it cannot be read.
    """
    return read_json(file(), AgentNotes) or AgentNotes()


def write(notes: AgentNotes) -> None:
    """Write the file. It is on disk when this returns: what the agent does next, the next agent must know.

    Raises:
      StorageError: it cannot be written.
    """
    path = file()
    with storage(f"write {path}"):
        path.parent.mkdir(parents=True, exist_ok=True)
        write_atomic(path, json.dumps(dataclasses.asdict(notes), indent=1).encode() + b"\n")
