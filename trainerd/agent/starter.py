"""Starts runs: as instances of a systemd unit where there is one, and as daemons otherwise."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import IO

from trainerd.agent.chain import begin
from trainerd.agent.entry import QueueEntry
from trainerd.agent.progress import StartResult
from trainerd.config import parse as configs
from trainerd.errors import ConfigError, StorageError, exit_code_of
from trainerd.system.machine import NAME
from trainerd.system.xdg import config_home
from trainerd.text import printable

_MOST = 64 * 1024  # bytes of what a command printed that are read


@dataclass(frozen=True)
class AgentCommand:
    """A command that the agent has started. It continues if this process is killed."""

    process: subprocess.Popen[bytes]
    output: IO[bytes]

    @classmethod
    def start(cls, words: Sequence[str], folder: str, environment: Mapping[str, str] | None = None) -> AgentCommand:
        """Start it in a folder.

        Raises:
          OSError: it cannot be started.
        """
        output = tempfile.TemporaryFile()  # noqa: SIM115  it outlives this call
        process = subprocess.Popen(
            words,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            cwd=folder,
            env=environment,
            start_new_session=True,
        )
        return cls(process, output)

    def is_running(self) -> bool:
        """Return whether it has not ended."""
        return self.process.poll() is None

    def result(self) -> StartResult:
        """Return how it has ended, once."""
        with self.output as file:
            file.seek(max(0, file.seek(0, os.SEEK_END) - _MOST))
            text = file.read(_MOST).decode(errors="replace").strip()
        return StartResult(self.process.returncode, printable(text))


class Starter:
    """Starts runs, and says how each start has ended. A start continues if this process is killed."""

    def __init__(self) -> None:
        self._forks: dict[str, object] = {}  # what tells each fork, which has a thread of its own, from later ones
        self._commands: dict[str, AgentCommand] = {}
        self._refused: dict[str, StartResult] = {}

    def start(
        self, name: str, entry: QueueEntry, after: QueueEntry | None, gpus: tuple[int, ...], *, has_gpus: bool
    ) -> None:
        """Start a run.

        Args:
          name: the name of its entry.
          entry: the entry.
          after: the entry that it comes after, if that is in the queue.
          gpus: the GPUs that it gets.
          has_gpus: whether the agent gives out GPUs at all; else the run sees all of them.
        """
        command = partial(self._run, name, entry, gpus, has_gpus=has_gpus)
        if not entry.begin_at:
            command()
            return
        # Large checkpoints take long to verify: the agent continues meanwhile.
        self._forks[name] = fork = object()
        threading.Thread(target=self._fork, args=(name, fork, entry, after, command), daemon=True).start()

    def _fork(
        self, name: str, fork: object, entry: QueueEntry, after: QueueEntry | None, command: Callable[[], None]
    ) -> None:
        refused = None
        try:
            begin(entry, after)
        except Exception as error:  # its place is where those of starts are shown
            refused = StartResult(exit_code_of(error), str(error))
        if self._forks.get(name) is not fork:  # the entry was removed, and another one has its name
            return
        if refused is None:
            command()
        else:
            self._refused[name] = refused
        del self._forks[name]

    def _run(self, name: str, entry: QueueEntry, gpus: tuple[int, ...], *, has_gpus: bool) -> None:
        unit = None if has_gpus else unit_of(entry)
        if unit is not None:
            command = ["systemctl", "--user", "start", unit]
        else:
            command = [*_scope(), sys.executable, "-m", NAME, *entry.command()]
        try:
            self._commands[name] = AgentCommand.start(command, entry.folder, _environment(gpus, has_gpus=has_gpus))
        except OSError as error:
            said = f"cannot start it in {entry.folder}: {error.strerror}"
            self._refused[name] = StartResult(StorageError.exit_code, said)

    def is_starting(self, name: str) -> bool:
        """Return whether the command that starts this run is running, or is about to."""
        return name in self._forks or (name in self._commands and self._commands[name].is_running())

    def take_result(self, name: str) -> StartResult | None:
        """Return how the command that started this run has ended, once; None if none has."""
        if name in self._refused:
            return self._refused.pop(name)
        command = self._commands.get(name)
        if command is None or command.is_running():
            return None
        return self._commands.pop(name).result()


def _has_manager() -> bool:
    """Return whether this agent can have a service manager of the user start a run."""
    return Path(os.environ.get("XDG_RUNTIME_DIR", "/nowhere"), "systemd", "private").exists()


def _scope() -> list[str]:
    """Return the command that gives a run a scope of its own, if this agent is a unit of the user.

    At a shutdown a user's manager kills what is in the agent's own control group. A scope gets SIGTERM, and the run
    saves. The system's manager does not kill it, and the shutdown sends SIGTERM to all processes.
    """
    if not os.environ.get("INVOCATION_ID") or not _has_manager() or shutil.which("systemd-run") is None:
        return []
    return ["systemd-run", "--user", "--scope", "--quiet", "--collect", "--property=TimeoutStopSec=6min", "--"]


def _environment(gpus: tuple[int, ...], *, has_gpus: bool) -> Mapping[str, str]:
    """Return the environment of a run: it sees the GPUs that it gets and no others."""
    inherited = {name: value for name, value in os.environ.items() if name not in ("NOTIFY_SOCKET", "WATCHDOG_USEC")}
    if not has_gpus:
        return inherited
    return {**inherited, "CUDA_VISIBLE_DEVICES": ",".join(map(str, gpus)), "CUDA_DEVICE_ORDER": "PCI_BUS_ID"}


def unit_of(entry: QueueEntry) -> str | None:
    """Return the unit of the user that trains the entry's config as it is; None if there is none.

    There is none for a config with a destination: a daemon starts its copier, and a unit does not.
    """
    config = Path(entry.config)
    template = config_home() / "systemd" / "user" / f"{NAME}@.service"
    is_plain = entry.max_steps is None and not entry.forever and not entry.set
    if config.parent != config_home() / NAME or config.suffix != ".toml" or not is_plain:
        return None
    if not template.is_file() or not _has_manager():
        return None
    try:
        return f"{NAME}@{config.stem}" if configs.load(config).copy.to is None else None
    except ConfigError:  # `trainerd start` reports it
        return None
