"""The ticker: polled by hand, on a clock that the test moves."""

from __future__ import annotations

import os
import stat
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.unit.conftest import FakeTime
from tests.waiting import wait_for
from trainerd.loop.flag import Flag, Request
from trainerd.loop.ticker import POLL_SECS, Ticker
from trainerd.rundir import request_files
from trainerd.rundir.paths import RunDirectory
from trainerd.rundir.reporter import Reporter
from trainerd.rundir.requests.answers import Answers
from trainerd.rundir.state import State


def test_it_raises_the_flag_once_when_something_is_due(rundir: RunDirectory, clock: FakeTime) -> None:
    flag = Flag()
    ticker = Ticker(flag, rundir, timer=clock)
    ticker.set_due(clock.now + 0.1)
    assert ticker.poll() < 0.11 and not flag.is_raised
    clock.now += 0.1
    ticker.poll()
    assert flag.take() == {Request.TICK}
    clock.now += 100
    assert ticker.poll() == POLL_SECS
    assert not flag.is_raised


def test_files_raise_the_flag(odd_rundir: RunDirectory, clock: FakeTime) -> None:
    flag = Flag()
    ticker = Ticker(flag, odd_rundir, timer=clock)
    odd_rundir.pause.touch()
    odd_rundir.save.touch()
    ticker.poll()
    assert flag.take() == {Request.PAUSE, Request.SAVE}


def test_the_thread_survives_an_error_and_stops(rundir: RunDirectory) -> None:
    flag = Flag()
    ticker = Ticker(flag, rundir)
    with ticker.running():
        ticker.set_due(0.0)
        while not flag.is_raised:
            pass
    assert "trainerd-ticker" not in [thread.name for thread in threading.enumerate()]


def test_the_thread_looks_at_once_and_for_what_is_due_sooner(
    rundir: RunDirectory, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("trainerd.loop.ticker.POLL_SECS", 3600.0)
    rundir.save.touch()
    flag = Flag()
    ticker = Ticker(flag, rundir)
    with ticker.running():
        wait_for(lambda: flag.is_raised, "the first look")
        assert flag.take() == {Request.SAVE}
        ticker.set_due(time.monotonic() + 0.02)
        wait_for(lambda: flag.wants(Request.TICK), "what is due in 0.02 s")


def test_a_save_file_is_consumed_with_its_ids(odd_rundir: RunDirectory) -> None:
    odd_rundir.save.write_text("one\ntwo\n")
    assert request_files.consume_save(odd_rundir) == ["one", "two"]
    assert request_files.consume_save(odd_rundir) == []
    assert list(odd_rundir.path.iterdir()) == []


def test_a_pause_file_is_consumed(odd_rundir: RunDirectory) -> None:
    odd_rundir.pause.touch()
    assert request_files.consume_pause(odd_rundir)
    assert not request_files.consume_pause(odd_rundir)


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        ("", "the file `pause`"),
        ("the agent: waits until 20:00\n", "the agent: waits until 20:00"),
        ("\x1b[2J" + "x" * 300, ("\\x1b[2J" + "x" * 300)[:200]),
    ],
)
def test_a_pause_file_says_who_asks(odd_rundir: RunDirectory, content: str, expected: str) -> None:
    assert request_files.who_asks_for_pause(odd_rundir) is None
    odd_rundir.pause.write_text(content)
    flag = Flag()
    Ticker(flag, odd_rundir).poll()
    assert flag.take() == {Request.PAUSE} and flag.paused_by == expected


@pytest.mark.parametrize("make", [Path.mkdir, os.mkfifo])
def test_a_folder_or_a_fifo_of_their_names_asks_for_nothing(rundir: RunDirectory, make: Callable[[Path], None]) -> None:
    for path in (rundir.save, rundir.pause):
        make(path)
    flag = Flag()
    Ticker(flag, rundir).poll()
    assert not flag.is_raised
    assert request_files.consume_save(rundir) == [] and not request_files.consume_pause(rundir)
    assert rundir.save.exists() and rundir.pause.exists()


def test_a_save_file_that_cannot_be_read_asks_once(rundir: RunDirectory) -> None:
    (rundir.path / ".save.taken").mkdir()
    rundir.save.touch()
    assert request_files.consume_save(rundir) == [] and not rundir.save.exists()


def test_a_group_may_ask_for_a_save_and_a_pause_and_for_nothing_else(
    rundir: RunDirectory, monkeypatch: pytest.MonkeyPatch
) -> None:
    request_files.open_to_group(rundir)
    assert not rundir.requests.exists()
    monkeypatch.setenv("TRAINERD_GROUP_MAY_ASK", "1")
    request_files.open_to_group(rundir)
    assert stat.S_IMODE(rundir.requests.stat().st_mode) == 0o770
    for path in (rundir.pause, rundir.set_request, rundir.rollback, rundir.accept_changes):
        (rundir.requests / path.name).touch()
    (rundir.requests / "save").write_text("my-id\n")
    flag = Flag()
    Ticker(flag, rundir).poll()
    assert flag.take() == {Request.PAUSE, Request.SAVE}
    assert request_files.consume_save(rundir) == ["my-id"] and request_files.consume_pause(rundir)
    assert not request_files.is_pause_asked(rundir) and not request_files.is_save_asked(rundir)


def test_ids_that_no_command_makes_keep_state_json_small(rundir: RunDirectory) -> None:
    rundir.save.write_text("x" * 1000 + "\nan-id\n" + "".join(f"{number}\n" for number in range(10_000)))
    asked = request_files.consume_save(rundir)
    reporter = Reporter(State(), [])
    Answers(reporter).give(asked, 7, None)
    [answer] = reporter.state.answers
    assert answer.ids[0] == "an-id" and len(answer.ids) < 1000


def test_a_link_that_a_group_has_planted_is_not_followed(rundir: RunDirectory, tmp_path: Path) -> None:
    rundir.requests.mkdir()
    (tmp_path / "secret").write_text("secret\n")
    (rundir.requests / "save").symlink_to(tmp_path / "secret")
    assert not request_files.is_save_asked(rundir) and request_files.consume_save(rundir) == []
