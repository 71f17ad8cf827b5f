"""The process that copies: it follows the run, and is started and ended beside it."""

from __future__ import annotations

import functools
import os
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import IO, cast

import pytest

from tests.unit.conftest import FakeTime
from tests.unit.copies.stores import (
    MemoryStore,
    copied,
    identified,
    run_of,
)
from tests.unit.test_rollback import write
from trainerd.config import parse as configs
from trainerd.config.schema import CopyConfig
from trainerd.copies.beside import CopierBeside
from trainerd.copies.layout import RunCopy
from trainerd.copies.process import follow
from trainerd.copies.status import CopyStatus, read_copy_status
from trainerd.errors import CopyError
from trainerd.rundir.paths import RunDirectory
from trainerd.rundir.state import Phase, State


class Stop(threading.Event):
    """Is set after so many waits; does what is to happen in each."""

    def __init__(self, *steps: Callable[[], object]) -> None:
        super().__init__()
        self.steps, self.waits = list(steps), list[float]()

    def wait(self, timeout: float | None = None) -> bool:
        self.waits.append(timeout or 0.0)
        if self.steps:
            self.steps.pop(0)()
        else:
            self.set()
        return self.is_set()


def test_a_destination_that_fails_is_tried_again_and_the_run_is_followed(
    rundir: RunDirectory, caplog: pytest.LogCaptureFixture
) -> None:
    write(rundir, 10)
    identified(rundir)
    contents, errors = dict[str, bytes](), [CopyError("503."), CopyError("503."), CopyError("503.")]

    def open_it() -> RunCopy:
        if errors:
            raise errors.pop()
        return RunCopy(MemoryStore(contents, on_put), "memory")

    def on_put(name: str) -> None:
        if name == "checkpoints/model.ckpt-20.json" and not failed:
            failed.append(name)
            raise CopyError("the connection was reset.")

    failed, seen = list[str](), list[CopyStatus | None]()
    look = functools.partial(read_copy_status, rundir)
    steps = [lambda: seen.append(look())] * 4 + [lambda: write(rundir, 20), lambda: seen.append(look())]
    stop = Stop(*steps)
    follow(run_of(rundir), open_it, stop)
    assert stop.waits == [2.0, 4.0, 8.0, 1.0, 1.0, 2.0, 1.0]
    assert "the copy failed: 503. It is tried again in 8 s" in caplog.text
    assert [(each.steps, each.error) for each in seen if each is not None] == [
        ([], "503."),
        ([], "503."),
        ([], "503."),
        ([10], None),
        ([10], "the connection was reset."),
    ]
    status = look()
    assert status is not None and (status.steps, status.error) == ([10, 20], None)


def test_what_is_copied_is_known_while_a_new_process_cannot_connect(rundir: RunDirectory) -> None:
    write(rundir, 10)
    identified(rundir)
    copied(rundir, MemoryStore())

    def open_it() -> RunCopy:
        raise CopyError("503.")

    for to, steps in (("memory", [10]), ("elsewhere", [])):
        follow(replace(run_of(rundir), to=to), open_it, Stop())
        status = read_copy_status(rundir)
        assert status is not None and (status.to, status.steps, status.error) == (to, steps, "503.")


@pytest.mark.parametrize("ended_by", ["all is copied", "failures"])
def test_a_copy_while_training_ends_after_the_run(rundir: RunDirectory, ended_by: str) -> None:
    """What the run saved last is copied, also if it is started again and ends during the copy."""
    identified(rundir)
    contents, ends = dict[str, bytes](), [False, True, False, True, True]

    def open_it() -> RunCopy:
        if ended_by == "failures":
            raise CopyError("503.")
        return RunCopy(MemoryStore(contents), "memory")

    def is_over() -> bool:
        if len(ends) > 1:  # until then it trains now and again
            write(rundir, 10 * len(ends))
        return ends.pop(0) if len(ends) > 1 else ends[0]

    stop = Stop(*[lambda: None] * 20)
    if ended_by == "failures":
        with pytest.raises(CopyError):
            follow(run_of(rundir), open_it, stop, is_over=is_over)
        assert sum(stop.waits) > 250
    else:
        follow(run_of(rundir), open_it, stop, is_over=is_over)
        status = read_copy_status(rundir)
        assert status is not None and status.steps == [20, 30, 40, 50]


class FakeProcess:
    """A copier that has ended with this code, or runs."""

    code: int | None = None

    def __init__(self, command: list[str], **options: object) -> None:
        self.command, self.options = command, options
        processes.append(self)

    @property
    def returncode(self) -> int | None:
        """The exit code."""
        return self.code

    def poll(self) -> int | None:
        """The same."""
        return self.code

    def end(self, code: int, said: bytes = b"") -> None:
        """Write to standard error, and end."""
        os.write(cast(IO[bytes], self.options["stderr"]).fileno(), said)
        self.code = code


processes: list[FakeProcess] = []


def test_the_trainer_starts_the_copy_of_its_run(
    tmp_path: Path, clock: FakeTime, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Once it trains, and again with growing pauses; what is wrong is logged once."""
    path = tmp_path / "trainerd.toml"
    path.write_text('entry = "job:job"\nlogdir = "run"\n[copy]\nto = "file:///mnt/nas/digits"\n', encoding="utf-8")
    config = configs.load(path)
    monkeypatch.setattr("subprocess.Popen", FakeProcess)
    processes.clear()
    beside = CopierBeside(config, timer=clock)
    for phase in (Phase.STARTING, Phase.TRAINING, Phase.TRAINING):
        beside.observe(State(phase))
    [first] = processes
    assert first.command[3:] == [
        *("copy", "--config", str(path), "--to", "file:///mnt/nas/digits", "--max-mbit", "0.0", "--while-training")
    ]
    config.rundir.mkdir()
    CopyStatus(to="file:///mnt/nas/digits", error="the URL holds the copy of another run.").write(
        RunDirectory(config.rundir)
    )
    for count in (2, 3):
        processes[-1].end(78)
        beside.observe(State(Phase.TRAINING))
        clock.now += 30.0 * count
        assert len(processes) == count - 1
        clock.now += 31.0 * count
        beside.observe(State(Phase.TRAINING))
        assert len(processes) == count
    processes[-1].end(0)
    beside.observe(State(Phase.FINISHED))
    assert [record.message for record in caplog.records] == [
        "the run is not copied: the URL holds the copy of another run."
    ]


def test_a_copier_that_ends_before_it_copies_is_said_and_one_that_lived_is_soon_started_again(
    tmp_path: Path, clock: FakeTime, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "trainerd.toml"
    path.write_text('entry = "job:job"\nlogdir = "run"\n[copy]\nto = "file:///mnt/nas/digits"\n', encoding="utf-8")
    monkeypatch.setattr("subprocess.Popen", FakeProcess)
    processes.clear()
    beside = CopierBeside(configs.load(path), timer=clock)
    for code, said, wait in (
        (78, b"Traceback:\n  unknown key \x1bto_\n\n", 60.0),
        (75, b"another process copies it", 120.0),
        (-9, b"", 240.0),
        (0, b"done", 60.0),
    ):
        beside.observe(State(Phase.TRAINING))
        clock.now += 3600.0 * (not code)
        processes[-1].end(code, said)
        count = len(processes)
        for secs, starts in ((0.0, 0), (wait - 1.0, 0), (1.0, 1)):
            clock.now += secs
            beside.observe(State(Phase.TRAINING))
            assert len(processes) == count + starts
    assert [record.message for record in caplog.records] == [
        "the run is not copied: `trainerd copy` ended with exit code 78: unknown key \\x1bto_",
        "the run is not copied: `trainerd copy` ended with exit code -9: it said nothing",
    ]
    processes[-1].end(0)
    beside.observe(State(Phase.FINISHED))


def test_a_run_elsewhere_a_worker_and_a_service_start_no_copy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "trainerd.toml"
    path.write_text('entry = "job:job"\nlogdir = "run"\n[copy]\nto = "file:///mnt/nas/digits"\n', encoding="utf-8")
    config = configs.load(path)
    monkeypatch.setattr("subprocess.Popen", FakeProcess)
    processes.clear()
    for other in (replace(config, logdir="trial"), replace(config, rank=1), replace(config, copy=CopyConfig())):
        CopierBeside(other).observe(State(Phase.TRAINING))
    monkeypatch.setenv("NOTIFY_SOCKET", "/run/systemd/notify")
    CopierBeside(config).observe(State(Phase.TRAINING))
    assert processes == []
