"""Estimators under the daemon: what they have evaluated and exported, over pauses and kills."""

from __future__ import annotations

import json
import re
import signal
import time
from pathlib import Path

import pytest

from tests.conftest import Fork
from tests.process.conftest import Start, write_config
from tests.process.trainers import Trainer, saved
from tests.waiting import wait_for
from trainerd.checkpoints import evaluations, manifest
from trainerd.rundir.paths import RunDirectory
from trainerd.rundir.state import Phase, read_state


def test_status_shows_what_was_evaluated_and_the_best(start: Start, programs: Path) -> None:
    write_config(programs, entry="estimators:recommender")
    run = start("run")
    assert run.end() == 0, run.text
    assert re.search(r"evaluated step 20 in .* s: accuracy 0\.\d+, loss 0\.\d+", run.text)
    assert re.search(r"exported step 20: .*/run/export/best/\d{10}", run.text)
    status = start("status")
    assert status.end() == 0
    assert re.search(r"evaluated +4 checkpoints\nbest +step 100: accuracy 0\.\d+, loss 0\.\d+", status.text)
    listed = start("checkpoints", "--json")
    assert listed.end() == 0 and "val_accuracy" in listed.text


def test_a_pause_in_an_evaluation_gives_it_up_and_the_next_start_makes_it_again(start: Start, programs: Path) -> None:
    write_config(programs, entry="estimators:patient")
    run = start("run")
    run.until(lambda state: state.phase is Phase.EVALUATING, "an evaluation")
    begun = time.monotonic()
    assert run.pause() == 0, run.text
    assert time.monotonic() - begun < 5
    rundir = RunDirectory(programs / "run")
    assert saved(rundir)[0] == 20 and not rundir.evaluations(20).exists()
    (programs / "fast").touch()
    again = start("run")
    assert again.end() == 0, again.text
    assert re.search(r"evaluated step 20 in", again.text)
    found = evaluations.read(rundir, manifest.read(rundir.manifest(20))).by_entry
    assert set(found) == {""} and found[""].metrics["val_loss"] is not None


@pytest.mark.long
def test_an_evaluator_follows_a_trainer_that_is_killed(start: Start, programs: Path) -> None:
    trainer = write_config(programs, entry="estimators:trainer").rename(programs / "trainer.toml")
    more = 'schedule = "continuous_eval"\n'
    config = write_config(programs, entry="estimators:evaluator", logdir="evaluator", more=more)
    evaluator = start("run", "--config", str(config), rundir=programs / "evaluator")
    first = start("run", "--config", str(trainer))
    first.until_training(45)
    first.signal(signal.SIGKILL)
    first.end()
    second = start("run", "--config", str(trainer))
    assert second.end() == 0, second.text
    assert evaluator.end() == 0, evaluator.text
    state = read_state(RunDirectory(programs / "evaluator").state)
    assert state is not None and state.evaluations is not None and state.phase is Phase.FINISHED
    summary = json.loads((programs / "run" / "evaluations-continuous.json").read_text())
    assert summary["last_step"] == 120 and summary["count"] == state.evaluations.count >= 2
    again = start("run", "--config", str(config), rundir=programs / "evaluator")
    assert again.end() == 0 and "evaluated step" not in again.text, "each checkpoint is evaluated once"


@pytest.mark.long
def test_a_program_of_its_own_ends_with_0_when_it_is_paused_and_resumes(fork: Fork, programs: Path) -> None:
    rundir = RunDirectory(programs / "own")

    def run(secs_of_a_step: str) -> Trainer:
        env = {"PATH": "", "SECS_OF_A_STEP": secs_of_a_step}
        return fork(programs, rundir.path, program="estimators.py", arguments=["census", "own"], env=env)

    paused = run("0.02")
    wait_for(lambda: not paused.is_alive() or rundir.manifest(20).exists(), "the checkpoint of step 20")
    assert paused.pause() == 0 and "Traceback" not in paused.text, paused.text
    assert saved(rundir)[0] >= 20
    done = run("0")
    assert done.end() == 0, done.text
    assert saved(rundir)[0] == 120 and json.loads((rundir.path / "evaluations.json").read_text())["count"] == 7


@pytest.mark.parametrize(
    ("entry", "more", "code", "said"),
    [
        (
            "census",
            'schedule = "mispelled"\n',
            69,
            "schedule = 'mispelled': there is no such schedule. It has continuous",
        ),
        ("elsewhere", "", 69, "its model_dir is /somewhere/else, and logdir is"),
        ("without_train_op", "", 70, "Missing train_op"),
        ("without_input", "", 70, "It returned None"),
    ],
)
def test_what_is_wrong_is_reported(start: Start, programs: Path, entry: str, more: str, code: int, said: str) -> None:
    write_config(programs, entry=f"estimators:{entry}", more=more)
    run = start("run")
    assert run.end() == code, run.text
    assert said in run.text


@pytest.mark.long
def test_its_training_is_proved_and_its_past_evaluated(start: Start, programs: Path) -> None:
    write_config(programs, entry="estimators:census", more="deterministic = true\nseed = 1\n")
    proof = start("prove", "--steps", "40", "--interruptions", "1")
    assert proof.end(300) == 0 and "The same, bit for bit." in proof.text, proof.text
    run = start("run")
    assert run.end() == 0, run.text
    again = start("evaluate", "--all", "--again")
    assert again.end() == 0, again.text
    rundir = RunDirectory(programs / "run")
    assert len(saved(rundir)) == 3 and all(rundir.evaluations(step).exists() for step in saved(rundir))
