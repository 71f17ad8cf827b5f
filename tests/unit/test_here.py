"""A driven run as a function of a user's own program: signals, files, state and resume, without TensorFlow."""

from __future__ import annotations

import contextlib
import os
import signal
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.fake import FakeSession
from tests.unit.test_loop import FakeEvents, saved
from trainerd.config import parse as configs
from trainerd.config.schema import Config
from trainerd.errors import DataError, JobError
from trainerd.loop.outcome import Outcome, Paused
from trainerd.run.here import train_here
from trainerd.rundir.paths import RunDirectory
from trainerd.rundir.state import Phase, State, read_state


class Trained(FakeSession):
    """A session with event files that are kept in memory."""

    def events(self, logdir: Path) -> Any:
        return FakeEvents()


def config(rundir: RunDirectory, **keys: Any) -> Config:
    return configs.parse({"entry": "job:job", "logdir": str(rundir.path), "max_steps": 100, **keys})


def train(rundir: RunDirectory, on_step: Callable[[int], None] = lambda step: None, **keys: Any) -> Outcome:
    return train_here(lambda config: Trained(on_step=on_step), config(rundir, **keys))


def state(rundir: RunDirectory) -> State:
    found = read_state(rundir.state)
    assert found is not None
    return found


def at(step: int, act: Callable[[], object]) -> Callable[[int], None]:
    def on_step(now: int) -> None:
        if now == step:
            act()

    return on_step


def from_step(step: int, act: Callable[[], object]) -> Callable[[int], None]:
    """Do something at this step, and be slow from there on: a thread takes note of it in its own time."""
    slow = threading.Event()

    def on_step(now: int) -> None:
        if now == step:
            act()
        if now >= step:
            slow.wait(0.001)

    return on_step


def test_it_trains_and_says_how_it_ended(rundir: RunDirectory) -> None:
    assert train(rundir).phase is Phase.FINISHED
    assert saved(rundir) == [(100, "finish")]
    assert state(rundir).phase is Phase.FINISHED and state(rundir).job == "job:job"
    steps: list[int] = []
    assert train(rundir, steps.append).phase is Phase.FINISHED and not steps
    assert train(rundir, steps.append, max_steps=103).phase is Phase.FINISHED and steps == [101, 102, 103]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_pauses_it_and_the_process_is_to_end(rundir: RunDirectory, number: int) -> None:
    """A program that begins another run all the same is ended by `Paused` first. The next start resumes."""
    before = signal.getsignal(number)
    outcome = train(rundir, from_step(40, lambda: os.kill(os.getpid(), number)), max_steps=1_000_000)
    assert outcome.phase is Phase.PAUSED and state(rundir).phase is Phase.PAUSED
    assert signal.getsignal(number) is before
    [(step, reason)] = saved(rundir)
    assert step >= 40 and reason == "pause"
    steps: list[int] = []
    with pytest.raises(Paused):
        train(rundir, steps.append)
    assert train(rundir, steps.append, max_steps=step + 2).phase is Phase.FINISHED
    assert steps == [step + 1, step + 2]


def test_a_pause_file_pauses_it(rundir: RunDirectory) -> None:
    assert train(rundir, from_step(20, rundir.pause.touch), max_steps=1_000_000).phase is Phase.PAUSED
    assert saved(rundir)[0][1] == "pause" and not rundir.pause.exists()


def test_an_error_is_raised_and_shown(rundir: RunDirectory) -> None:
    def fail() -> None:
        raise JobError("step 7 failed", step=6, sound=True)

    with pytest.raises(JobError, match="step 7"):
        train(rundir, at(7, fail))
    assert saved(rundir)[0][0] == 6
    assert state(rundir).phase is Phase.FAILED and state(rundir).exit_code == 70
    assert train(rundir).phase is Phase.FINISHED


def test_another_job_is_refused(rundir: RunDirectory) -> None:
    train(rundir)
    with pytest.raises(DataError, match="another:job"):
        train(rundir, entry="another:job")
    assert saved(rundir) == [(100, "finish")]


@pytest.mark.parametrize("fails", [False, True])
def test_the_session_is_closed_after_its_last_save(rundir: RunDirectory, fails: bool) -> None:
    saved_before: list[list[tuple[int, str]]] = []

    class Closed(Trained):
        def close(self) -> None:
            saved_before.append(saved(rundir))

    def on_step(step: int) -> None:
        if fails and step == 5:
            raise JobError("step 5 failed", step=4, sound=True)

    with contextlib.suppress(JobError):
        train_here(lambda config: Closed(on_step=on_step), config(rundir))
    assert saved_before == [[(4, "failure") if fails else (100, "finish")]]
