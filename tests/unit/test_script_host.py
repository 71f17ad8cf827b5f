"""A program whose calls are one run: what it does between two calls, and how the run ends with it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator

import pytest

from tests.unit.test_here import Trained, at, config, from_step, state
from tests.waiting import wait_for
from trainerd.errors import InUseError
from trainerd.loop.flag import Request
from trainerd.loop.outcome import Outcome, Paused
from trainerd.loop.signals.dispatch import forget_pause
from trainerd.programs.keras.script_host import ScriptHost, host_of_call
from trainerd.run.here import train_here
from trainerd.run.host import end_held_run, held_run, hosted_phase
from trainerd.rundir import request_files, run_events
from trainerd.rundir.paths import RunDirectory
from trainerd.rundir.state import Phase, State


@pytest.fixture(autouse=True)
def ended() -> Iterator[None]:
    """End the run of a test, as the end of the process does."""
    yield
    end_held_run()
    forget_pause()


def call(rundir: RunDirectory, until: int, on_step: Callable[[int], None] = lambda step: None) -> Outcome:
    keys = config(rundir, max_steps=until)
    return train_here(lambda config: Trained(on_step=on_step), keys, host=host_of_call(rundir, keys.entry))


def kinds(rundir: RunDirectory) -> list[str]:
    return [str(event.kind) for event in run_events.read(rundir)]


def test_the_run_starts_with_the_first_call_and_finishes_with_the_program(rundir: RunDirectory) -> None:
    before = signal.getsignal(signal.SIGTERM)
    for until in (10, 20):
        assert call(rundir, until).phase is Phase.FINISHED
        assert state(rundir).phase is Phase.FINISHING and state(rundir).step == until
    with hosted_phase(Phase.EVALUATING):
        wait_for(lambda: state(rundir).phase is Phase.EVALUATING, "the evaluation to be shown")
    end_held_run()
    assert state(rundir).phase is Phase.FINISHED and state(rundir).ended == "max_steps = 20 is reached"
    assert kinds(rundir) == ["start", "resume", "finish"] and signal.getsignal(signal.SIGTERM) is before


def test_a_program_that_fails_between_two_calls_fails_the_run(
    rundir: RunDirectory, monkeypatch: pytest.MonkeyPatch
) -> None:
    call(rundir, 10)
    monkeypatch.setattr(sys, "last_value", ValueError("no such file"), raising=False)  # as Python sets it
    [host] = held_run
    assert isinstance(host, ScriptHost)
    host.end_with_program()
    assert state(rundir).phase is Phase.FAILED and state(rundir).error == "ValueError: no such file"


def ask_by_file(rundir: RunDirectory) -> None:
    rundir.pause.touch()
    threading.Event().wait(60)


def terminate(rundir: RunDirectory) -> None:
    os.kill(os.getpid(), signal.SIGTERM)
    threading.Event().wait(60)


@pytest.mark.parametrize("is_caught", [False, True])
@pytest.mark.parametrize(("ask", "by"), [(ask_by_file, "the file `pause`"), (terminate, "SIGTERM")])
def test_a_pause_between_two_calls_ends_the_program_there(
    rundir: RunDirectory, ask: Callable[[RunDirectory], None], by: str, is_caught: bool
) -> None:
    call(rundir, 10)
    with pytest.raises(Paused):
        ask(rundir)
    if is_caught:
        assert call(rundir, 20).phase is Phase.PAUSED
    else:
        end_held_run()
        assert state(rundir).ended == f"paused on request ({by})"
    assert state(rundir).phase is Phase.PAUSED and state(rundir).step == 10 and not rundir.pause.exists()


def test_a_pause_while_a_call_ends_ends_the_program_after_it(rundir: RunDirectory) -> None:
    keys = config(rundir, max_steps=10)
    host = host_of_call(rundir, keys.entry)

    def ask(state: State) -> None:
        if state.phase is Phase.FINISHING:
            rundir.pause.touch()
            wait_for(lambda: host.flag.wants(Request.PAUSE), "the file to be seen")
            request_files.append(rundir.save, "id")
            wait_for(lambda: not request_files.is_save_asked(rundir), "the next look")

    with pytest.raises(Paused):
        train_here(lambda config: Trained(), keys, [ask], host=host)
        threading.Event().wait(60)
    end_held_run()
    assert state(rundir).phase is Phase.PAUSED and state(rundir).step == 10


def test_a_call_takes_back_the_handlers_that_the_program_has_replaced(rundir: RunDirectory) -> None:
    call(rundir, 10)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    ask = from_step(15, lambda: os.kill(os.getpid(), signal.SIGTERM))
    assert call(rundir, 100_000, ask).phase is Phase.PAUSED


def test_a_call_within_a_call_is_refused(rundir: RunDirectory) -> None:
    def nested() -> None:
        with pytest.raises(InUseError):
            call(rundir, 20)

    call(rundir, 5)
    assert call(rundir, 10, at(7, nested)).phase is Phase.FINISHED
    assert state(rundir).step == 10


ENDING = """
import atexit, os, signal, sys
from pathlib import Path
from tests.unit.test_script_host import call, state
from trainerd.rundir.paths import RunDirectory
from tests.waiting import wait_for

rundir = RunDirectory(Path(sys.argv[1]))
call(rundir, 10)

@atexit.register
def write_results():
    os.kill(os.getpid(), signal.SIGTERM)
    rundir.save.write_text("id\\n")
    wait_for(lambda: state(rundir).answers, "a look")
    rundir.save.write_text("id\\n")
    wait_for(lambda: not rundir.save.exists(), "the next look")
    print("written")
"""


def test_a_pause_does_not_interrupt_what_python_does_at_its_end(rundir: RunDirectory) -> None:
    line = [sys.executable, "-c", ENDING, str(rundir.path)]
    done = subprocess.run(line, capture_output=True, text=True, check=True, timeout=100)
    assert done.stdout == "written\n" and "Traceback" not in done.stderr
    assert state(rundir).phase is Phase.PAUSED and state(rundir).ended == "paused on request (SIGTERM)"


def test_a_save_between_two_calls_is_answered_at_once(rundir: RunDirectory) -> None:
    call(rundir, 10)
    request_files.append(rundir.save, "id")
    wait_for(lambda: [each.step for each in state(rundir).answers] == [10], "the answer")


def test_a_call_in_another_run_directory_ends_the_run(rundir: RunDirectory) -> None:
    elsewhere = RunDirectory(rundir.path.parent / "elsewhere")
    call(rundir, 10)
    call(elsewhere, 5)
    assert state(rundir).phase is Phase.FINISHED and state(elsewhere).phase is Phase.FINISHING
    call(rundir, 20)
    assert kinds(rundir) == ["start", "finish", "start", "resume"]
