"""A file system that fails for a while, as a network's does: training continues, and what was asked for is answered."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.unit.conftest import FakeTime
from tests.unit.test_loop import Life, saved
from trainerd.loop.flag import Request
from trainerd.loop.ticker import Ticker
from trainerd.rundir import lock, run_events
from trainerd.rundir.claim import warn_if_removed
from trainerd.rundir.paths import RunDirectory
from trainerd.rundir.run_events import EventKind
from trainerd.rundir.state import Phase, read_state
from trainerd.rundir.state_writer import StateWriter

CODES = [errno.EACCES, errno.ESTALE, errno.EIO, errno.ENOTCONN, errno.ETIMEDOUT]
BY_PATH = ["open", "stat", "lstat", "listdir", "scandir", "mkdir", "unlink", "rename", "replace", "rmdir", "chmod"]


class Faults:
    """Makes every operation by a path of a run directory fail while `code` is set."""

    def __init__(self, rundir: RunDirectory, monkeypatch: pytest.MonkeyPatch) -> None:
        self.code = 0
        self.failed = 0
        self._folder = rundir.path
        for name in BY_PATH:
            monkeypatch.setattr(os, name, self._failing(getattr(os, name)))

    def _failing(self, real: Callable[..., Any]) -> Callable[..., Any]:
        def call(path: Any = ".", *args: Any, **kwargs: Any) -> Any:
            if self.code and isinstance(path, str | Path) and Path(path).is_relative_to(self._folder):
                self.failed += 1
                raise OSError(self.code, os.strerror(self.code), str(path))
            return real(path, *args, **kwargs)

        return call


@pytest.mark.parametrize("code", CODES)
def test_a_passing_error_of_the_file_system_ends_no_run(
    rundir: RunDirectory, monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    clock = FakeTime()
    life = Life(rundir, {"max_steps": 60, "checkpoint": {"save_model_steps": 10, "keep_last": 50}}, timer=clock)
    faults = Faults(rundir, monkeypatch)
    ticker, state_file = Ticker(life.flag, rundir), StateWriter(rundir, timer=clock)
    with lock.acquire(rundir) as held, life.reporter.observed_by([state_file.observe]):
        held.name_holder(os.getpid())

        def on_step(step: int) -> None:
            clock.now += 100.0  # state.json is written at every boundary, and a failed save is tried again
            faults.code = code if 15 <= step < 35 else 0
            ticker.poll()
            warn_if_removed(rundir, life.reporter)
            if step in (20, 40):
                if step == 40:
                    rundir.save.write_text("my-id\n")
                life.flag.raise_for(Request.SAVE)
            run_events.add(rundir, EventKind.CHANGE, step=step)

        life.session.on_step = on_step
        assert life.train().phase is Phase.FINISHED
    assert faults.failed > 20
    assert {step for step, _ in saved(rundir)} >= {10, 40, 50, 60} and not {20, 30} & {s for s, _ in saved(rundir)}
    assert life.reporter.state.warnings == [], "all is well again"
    answer = life.reporter.state.answer
    assert answer is not None and (answer.ids, answer.error) == (["my-id"], None)
    state = read_state(rundir.state)
    assert state is not None and state.step == 60
    assert [each.step for each in run_events.read(rundir) if each.kind is EventKind.CHANGE][-1] == 60


@pytest.mark.parametrize("code", CODES)
def test_a_run_directory_that_cannot_be_seen_was_not_removed(
    rundir: RunDirectory, monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    faults = Faults(rundir, monkeypatch)
    with lock.acquire(rundir) as held:
        held.name_holder(os.getpid())
        faults.code = code
        assert lock.is_there(rundir) and lock.is_in_place(rundir) and not lock.was_removed(rundir)
        lock.require_in_place(rundir)
