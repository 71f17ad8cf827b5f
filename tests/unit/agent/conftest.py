"""A machine of fake runs: they write real files, and their processes do nothing."""

from __future__ import annotations

import contextlib
import json
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory

import psutil
import pytest

from tests.unit.conftest import FakeTime
from trainerd.agent.entry import QueueEntry
from trainerd.agent.progress import StartResult
from trainerd.rundir import request_files
from trainerd.rundir.lock import Holder
from trainerd.rundir.paths import RunDirectory
from trainerd.rundir.state import Phase, State
from trainerd.system.process_identity import process_identity


@dataclass
class FakeRun:
    """A run, whose process is real and does nothing.

    Attributes:
      rundir: its run directory.
      work: the seconds that it must train.
      trained: those that it has trained.
      process: its process, if it has one.
      starts: how many processes it has had.
      finished: how often it has reached its end.
    """

    rundir: RunDirectory
    work: float = 10.0
    trained: float = 0.0
    process: subprocess.Popen[bytes] | None = None
    starts: int = 0
    finished: int = 0

    def begin(self, now: float) -> None:
        """Take the run directory, and train."""
        self.rundir.create()
        assert self.process is None, f"{self.rundir.path} has two processes"
        request_files.consume_pause(self.rundir)
        self.process = subprocess.Popen(["sleep", "infinity"])
        self.starts += 1
        holder = Holder(self.process.pid, *process_identity(self.process.pid))
        self.rundir.lock.write_text(json.dumps(holder.__dict__))
        self.say(Phase.TRAINING, now)

    def say(self, phase: Phase, now: float, **fields: object) -> None:
        """Write state.json."""
        assert self.process is not None
        state = State(phase, at=now, pid=self.process.pid, step=int(self.trained), **fields)  # type: ignore[arg-type]
        state.write(self.rundir.state)

    def end(self, phase: Phase, now: float, **fields: object) -> None:
        """End, and say so."""
        self.finished += phase is Phase.FINISHED
        self.say(phase, now, **fields)
        self.kill()

    def kill(self) -> None:
        """End, and say nothing."""
        assert self.process is not None
        self.process.kill()
        self.process.wait()
        self.process = None

    def train(self, secs: float, now: float) -> None:
        """Train for so long, or pause if that is asked for."""
        if (by := request_files.who_asks_for_pause(self.rundir)) is not None:
            request_files.consume_pause(self.rundir)
            self.end(Phase.PAUSED, now, ended=f"paused on request ({by})")
            return
        self.trained += secs
        if self.trained >= self.work:
            self.end(Phase.FINISHED, now, ended="finished")


@dataclass
class FakeMachine:
    """Fake runs, and the commands that start them: those go on when the agent is gone.

    Attributes:
      folder: where the runs are.
      clock: the time.
      runs: name to run.
      start_secs: how long a command takes until its run begins.
      fails: what the next start of a run comes to, by its name.
      given: the GPUs of each start, with its name.
    """

    folder: Path
    clock: FakeTime
    runs: dict[str, FakeRun] = field(default_factory=dict)
    start_secs: float = 1.0
    fails: dict[str, StartResult] = field(default_factory=dict)
    given: list[tuple[str, tuple[int, ...]]] = field(default_factory=list)
    commands: list[tuple[str, float, FakeStarter]] = field(default_factory=list)

    def make(self, name: str, **fields: object) -> QueueEntry:
        """Make a run. Returns an entry for it."""
        self.runs[name] = FakeRun(RunDirectory(self.folder / name))
        logdir = str(self.runs[name].rundir.path)
        config = self.folder.with_name("a.toml")
        config.write_text('entry = "job:job"\nlogdir = "a"\n')
        return QueueEntry(config=str(config), logdir=logdir, folder="/", **fields)  # type: ignore[arg-type]

    def on(self) -> list[str]:
        """The runs that have a process, or a command that starts one."""
        return [name for name, run in self.runs.items() if run.process is not None or self._is_commanded(name)]

    def _is_commanded(self, name: str) -> bool:
        return any(name == other for other, _, _ in self.commands)

    def advance(self, secs: float) -> None:
        """Let time pass."""
        self.clock.now += secs
        due = [each for each in self.commands if each[1] <= self.clock.now]
        self.commands = [each for each in self.commands if each not in due]
        for name, _, starter in due:
            starter.results[name] = self.fails.pop(name) if name in self.fails else self._begin(name)
        for run in self.runs.values():
            if run.process is not None:
                run.train(secs, self.clock.now)

    def _begin(self, name: str) -> StartResult:
        run = self.runs[name]
        if run.process is not None:
            return StartResult(75, f"process {run.process.pid} trains in {run.rundir.path}.")
        if run.finished:
            return StartResult(0, "")
        run.begin(self.clock.now)
        return StartResult(0, "")


@dataclass
class FakeStarter:
    """Starts fake runs; see `trainerd.agent.starter.Starter`."""

    machine: FakeMachine
    results: dict[str, StartResult] = field(default_factory=dict)

    def start(
        self, name: str, entry: QueueEntry, after: QueueEntry | None, gpus: tuple[int, ...], *, has_gpus: bool
    ) -> None:
        """Start a command."""
        self.machine.given.append((name, gpus))
        self.machine.commands.append((name, self.machine.clock.now + self.machine.start_secs, self))

    def is_starting(self, name: str) -> bool:
        """Whether this starter's command is under way."""
        return any(other == name and starter is self for other, _, starter in self.machine.commands)

    def take_result(self, name: str) -> StartResult | None:
        """The end of the command, once."""
        return self.results.pop(name, None)


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch, clock: FakeTime) -> Iterator[FakeMachine]:
    """A machine without runs. Its files are in memory: a test has thousands of durable writes."""
    clock.now = psutil.boot_time()
    memory = Path("/dev/shm")
    with TemporaryDirectory(dir=memory if memory.is_dir() else None) as folder:
        monkeypatch.setenv("XDG_STATE_HOME", folder)
        found = FakeMachine(Path(folder) / "runs", clock)
        yield found
        for run in found.runs.values():
            if run.process is not None:
                with contextlib.suppress(ProcessLookupError):
                    run.kill()
