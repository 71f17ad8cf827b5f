"""The ticker: polled by hand, on a clock that the test moves."""

from __future__ import annotations

from tests.unit.conftest import FakeTime
from trainerd.rundir import RunDirectory
from trainerd.supervisor import requests
from trainerd.supervisor.flag import Flag, Request
from trainerd.supervisor.ticker import POLL_SECS, Ticker


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
    with Ticker(flag, rundir) as ticker:
        ticker.set_due(0.0)
        while not flag.is_raised:
            pass
    assert not ticker._thread.is_alive()


def test_a_save_file_is_consumed_with_its_ids(odd_rundir: RunDirectory) -> None:
    odd_rundir.save.write_text("one\ntwo\n")
    assert requests.consume_save(odd_rundir) == ["one", "two"]
    assert requests.consume_save(odd_rundir) == []
    assert list(odd_rundir.path.iterdir()) == []


def test_a_pause_file_is_consumed(odd_rundir: RunDirectory) -> None:
    odd_rundir.pause.touch()
    assert requests.consume_pause(odd_rundir)
    assert not requests.consume_pause(odd_rundir)


def test_a_folder_named_save_does_no_harm(rundir: RunDirectory) -> None:
    rundir.save.mkdir()
    assert requests.consume_save(rundir) == []
    assert not rundir.save.exists()
