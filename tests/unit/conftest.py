"""Fixtures of the unit tests. None of them imports TensorFlow."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from tests.fake import FakeSession
from trainerd.cli import main
from trainerd.rundir.paths import RunDirectory
from trainerd.system.threads import Background

LEAVE_SECS = 5.0  # how long a thread of a test may take to end after the test


@pytest.fixture(autouse=True)
def no_thread_is_left() -> Iterator[None]:
    """Show the test that leaves a thread: a command of a later test would end the whole process to get rid of it."""
    before = set(threading.enumerate())
    yield
    left = [thread for thread in threading.enumerate() if not thread.daemon and thread not in before]
    for thread in left:
        thread.join(LEAVE_SECS)
    assert [thread.name for thread in left if thread.is_alive()] == []


# Run directories that people really have.
NAMES = ["plain", "with space", "quote'\"s", "ünïcödé-日本", "a#b%20&;$(c)"]


@pytest.fixture(params=NAMES)
def odd_rundir(request: pytest.FixtureRequest, tmp_path: Path) -> RunDirectory:
    """A run directory, once for each kind of name."""
    rundir = RunDirectory(tmp_path / request.param)
    rundir.create()
    return rundir


@pytest.fixture
def rundir(tmp_path: Path) -> RunDirectory:
    """A run directory."""
    rundir = RunDirectory(tmp_path / "run")
    rundir.create()
    return rundir


Cli = Callable[..., tuple[int, str]]


@pytest.fixture
def cli(capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Cli:
    """Run a command in an empty folder, where no run is known; its exit code and all it printed."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state-home"))

    def run(*arguments: str) -> tuple[int, str]:
        handlers = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}
        try:
            with pytest.raises(SystemExit) as ended:
                main(list(arguments))
        finally:
            for number, handler in handlers.items():
                signal.signal(number, handler)
        printed = capsys.readouterr()
        assert "Traceback" not in printed.err
        return int(ended.value.code or 0), printed.out + printed.err

    return run


@dataclass
class FakeTime:
    """A clock that moves when a test says so."""

    now: float = 1000.0
    on_sleep: list[Callable[[], None]] = field(default_factory=list)

    def __call__(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        """Move on, and do what is to happen next."""
        self.now += seconds
        if self.on_sleep:
            self.on_sleep.pop(0)()


@pytest.fixture
def clock() -> FakeTime:
    """A clock."""
    return FakeTime()


@pytest.fixture
def in_berlin(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The machine is in Berlin, or where the test says by TZ. Afterwards it is in its own time zone again."""
    with monkeypatch.context() as patch:
        patch.setenv("TZ", "Europe/Berlin")
        time.tzset()
        yield
    time.tzset()


class ScriptedSession(FakeSession):
    """A fake session whose steps and losses a test may change after the session is made."""

    def __init__(
        self,
        *,
        on_step: Callable[[int], object] = lambda step: None,
        loss: Callable[[int], float] = lambda step: 1.0 / step,
        **arguments: Any,
    ) -> None:
        self.on_step, self.loss = on_step, loss

        def call_on_step(step: int) -> None:
            self.on_step(step)

        super().__init__(on_step=call_on_step, loss=lambda step: self.loss(step), **arguments)


class WriterByHand(Background):
    """A writer of checkpoints that writes when the test says so; at once, unless it is held."""

    def __init__(self, *, held: bool = False) -> None:
        super().__init__("by-hand")
        self.held = held
        self.waiting: list[Callable[[], None]] = []

    def submit(self, work: Callable[[], None]) -> bool:
        """Keep the work, or do it."""
        self.waiting.append(work)
        if not self.held:
            self.release()
        return True

    def release(self) -> None:
        """Do what waits, and all that comes from now on."""
        self.held = False
        while self.waiting:
            self.waiting.pop(0)()
