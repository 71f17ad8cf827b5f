"""Nobody who pauses a run waits for an evaluation, or for a step that never ends; and nothing of it is lost."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

import psutil
import pytest

from tests.process.conftest import Start, write_config
from tests.process.trainers import Trainer, saved
from tests.waiting import wait_for, wait_until_still
from trainerd.checkpoints import manifest
from trainerd.rundir.paths import RunDirectory
from trainerd.rundir.state import Phase, read_state

GRACE_SECS = 10.0  # of an evaluation that takes for ever
EVERY = "max_steps = 40\n[evaluate]\nevaluate_secs = 0\nevaluate_steps = 20\n"
SUMMARIES = "max_steps = 40\n[summary]\nsave_summaries_secs = 0.01\n"


def until_it_evaluates(run: Trainer, times: int = 1) -> None:
    wait_for(lambda: run.rundir.log.exists() and run.text.count("evaluating") >= times, lambda: run.text)


def metrics_at_the_end(rundir: RunDirectory) -> dict[str, float]:
    found = manifest.read(rundir.manifest(saved(rundir)[0]))
    assert found.reason == "finish" and not found.unfinished
    return found.metrics


@pytest.mark.parametrize(
    ("entry", "more"),
    [
        ("evaluated", EVERY),
        pytest.param("summarized", SUMMARIES, marks=pytest.mark.long),
        pytest.param("keras_evaluated", "max_steps = 40\n", marks=pytest.mark.long),
        pytest.param("graph_evaluated", EVERY, marks=pytest.mark.long),
    ],
)
def test_a_pause_in_an_evaluation_is_granted_at_once_and_loses_nothing(
    start: Start, project: Path, entry: str, more: str
) -> None:
    write_config(project, entry=f"jobs:{entry}", more=more)
    (project / "long").touch()
    run = start("run")
    until_it_evaluates(run)
    begun = time.monotonic()
    assert run.pause() == 0, run.text
    assert time.monotonic() - begun < GRACE_SECS
    step = int(run.until_printed(r"of step (\d+) was abandoned, and is made again at the next start")[1])
    assert "Paused on request" in run.text
    state = read_state(run.rundir.state)
    assert state is not None and state.phase is Phase.PAUSED and saved(run.rundir)[0] == step == state.step
    (project / "long").unlink()
    again = start("run")
    assert again.end() == 0, again.text
    calm = start("run", "--logdir", "calm", rundir=project / "calm")
    assert calm.end() == 0, calm.text
    assert metrics_at_the_end(run.rundir) == metrics_at_the_end(calm.rundir)
    if entry != "summarized":  # those come by the clock
        assert again.text.count("evaluating") == calm.text.count("evaluating") > 0


def test_a_daemon_in_an_evaluation_saves_on_request_and_is_paused_by_a_file(start: Start, project: Path) -> None:
    write_config(project, entry="jobs:evaluated", more=EVERY)
    assert start("start", "--forever").end() == 0
    rundir = RunDirectory(project / "run")
    (project / "long").touch()
    wait_for(lambda: (s := read_state(rundir.state)) and s.phase is Phase.EVALUATING, "an evaluation")
    found = read_state(rundir.state)
    assert found is not None
    begun = time.monotonic()
    save = start("save", "--wait")
    assert save.end() == 0 and f"saved step {found.step}:" in save.text
    pause = start("pause", "--wait")
    assert pause.end() == 0 and pause.text.endswith(f"paused at step {found.step}\n")
    assert time.monotonic() - begun < GRACE_SECS and saved(rundir)[0] == found.step


def test_a_start_that_evaluates_first_can_be_paused_too(start: Start, project: Path) -> None:
    """The parent of the daemon waits for the first step, and is told."""
    write_config(project, entry="jobs:evaluated", more=EVERY)
    (project / "long").touch()
    run = start("run")
    until_it_evaluates(run)
    assert run.pause() == 0
    begun = start("start")
    wait_for(lambda: (s := read_state(run.rundir.state)) and s.phase is Phase.EVALUATING, "an evaluation")
    assert start("pause", "--wait").end() == 0
    assert begun.end() == 0 and "paused on request; the evaluation of step 20 was abandoned" in begun.text


@pytest.mark.long
def test_a_step_whose_workers_are_gone_is_abandoned(start: Start, project: Path) -> None:
    """A Ctrl-C ends every process of a terminal's group, and what waits for a queue of theirs waits for ever."""
    write_config(project, entry="jobs:fed_by_workers", more="[watchdog]\npause_secs = 2\n")
    run = start("run")
    run.until_training(step=10)
    workers = psutil.Process(run.pid).children()
    for worker in workers:
        worker.kill()
    stuck = wait_until_still(lambda: run.state.step, 1.5, "a step that does not end")
    run.signal(signal.SIGINT)
    assert run.end(30) == 0, run.text
    assert "did not end for 2 s, and was abandoned" in run.text
    assert 0 < saved(run.rundir)[0] <= stuck
    again = start("run", "--max-steps", str(stuck + 10))
    assert again.end() == 0, again.text


@pytest.mark.long
@pytest.mark.parametrize(
    ("entry", "pauses_first"),
    [
        ("program_whose_step_waits", False),
        ("program_whose_step_waits", True),
        ("program_that_waits_for_its_input", False),
    ],
)
def test_a_program_that_never_looks_again_is_abandoned(
    start: Start, project: Path, entry: str, pauses_first: bool
) -> None:
    """In its step, or between two; asked before its worker is gone, as by a Ctrl-C, or after."""
    write_config(project, entry=f"jobs:{entry}", more="[watchdog]\npause_secs = 2\n")
    run = start("run")
    run.until_training(step=10)
    worker = psutil.Process(run.pid).children()[0]
    if pauses_first:
        worker.suspend()
        run.signal(signal.SIGINT)
        worker.kill()
    else:
        worker.kill()
        wait_until_still(lambda: run.state.step, 1.5, "a step that does not end")  # more than a report takes
        run.signal(signal.SIGINT)
    assert run.end(30) == 0, run.text
    last = saved(run.rundir)[0]
    assert last >= 10 and "did not end for 2 s, and was abandoned" in run.text
    (project / "looks-often").touch()
    again = start("run", "--max-steps", str(last + 10))
    assert again.end() == 0, again.text
    assert f"restored step {last}" in again.text and saved(run.rundir)[0] == last + 10


@pytest.mark.parametrize("command", ["run", "start"])
def test_workers_that_wait_for_a_queue_keep_no_pause_waiting(start: Start, project: Path, command: str) -> None:
    write_config(project, entry="jobs:fed_by_workers")
    run = start(command)
    if command == "start":
        assert run.end() == 0
    state = wait_for(lambda: read_state(run.rundir.state), "its state")
    wait_for(lambda: (s := read_state(run.rundir.state)) and s.phase is Phase.TRAINING, "its first step")
    workers = psutil.Process(state.pid).children()
    assert len(workers) == 2
    begun = time.monotonic()
    os.kill(state.pid, signal.SIGTERM)
    psutil.wait_procs([psutil.Process(state.pid)] if command == "start" else [], timeout=60)
    if command == "run":
        assert run.end() == 0 and "the process ends without" not in run.text
    assert time.monotonic() - begun < 5
    _, alive = psutil.wait_procs(workers, timeout=5)
    assert not alive and saved(run.rundir)


def test_workers_do_not_outlive_a_killed_trainer(start: Start, project: Path) -> None:
    write_config(project, entry="jobs:fed_by_workers")
    run = start("run")
    run.until_training()
    workers = psutil.Process(run.pid).children()
    run.signal(signal.SIGKILL)
    assert run.end() == -signal.SIGKILL and len(workers) == 2
    wait_for(lambda: not any(map(_lives, workers)), "the end of its workers", 10)


def _lives(process: psutil.Process) -> bool:
    try:
        return bool(process.status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False
