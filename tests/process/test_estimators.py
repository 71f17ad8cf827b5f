"""Estimators under the daemon: a run that was interrupted has evaluated and exported the same as one that was not."""

from __future__ import annotations

import json
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from tests.process.conftest import Start, write_config
from tests.process.trainers import saved, variables
from tests.waiting import wait_for
from trainerd.checkpoints import evaluations, manifest
from trainerd.rundir.paths import RunDirectory
from trainerd.rundir.state import Phase, read_state

BEGUN = {Phase.TRAINING, Phase.EVALUATING, Phase.SAVING}
IN_TURNS = 'schedule = "continuous_train_and_eval"\n'
PROGRAMS = {"census": "", "schedule": IN_TURNS, "recommender": "", "keras_model": "", "job": ""}


@pytest.fixture
def programs(project: Path) -> Path:
    """The folder, with the programs of these tests."""
    shutil.copy(Path(__file__).with_name("estimators.py"), project)
    return project


def outcome(logdir: Path) -> dict[str, Any]:
    """All that a run has come to, without what the clock says."""
    from trainerd.programs.experiment.early_stopping import read_eval_metrics

    rundir = RunDirectory(logdir)
    exports: dict[str, list[Any]] = {}
    for path in sorted(logdir.glob("export/*/*/release.json")):
        about = json.loads(path.read_text())
        digest = about["files"]["variables/variables.data-00000-of-00001"]["xxh128"]
        exports.setdefault(path.parent.parent.name, []).append((about["step"], digest))
    return {
        "variables": variables(rundir.prefix(saved(rundir)[0])),
        "curves": {path.name: read_eval_metrics(str(path)) for path in sorted(logdir.glob("eval*/"))},
        "exports": exports,
        "best": [json.loads(path.read_text()) for path in sorted(logdir.glob("export/*.json"))],
        "summaries": [
            json.loads(path.read_text()) | {"last_at": 0} for path in sorted(logdir.glob("evaluations*.json"))
        ],
    }


@pytest.mark.long
@pytest.mark.parametrize(
    ("name", "times"),
    [
        ("keras_model", 3),
        ("job", 5),
        *((name, 20) for name in ("census", "schedule", "recommender")),
    ],
)
def test_kills_change_nothing(
    start: Start, programs: Path, monkeypatch: pytest.MonkeyPatch, name: str, times: int
) -> None:
    write_config(programs, entry=f"estimators:{name}", more=PROGRAMS[name])
    whole = start("run", "--logdir", "whole", rundir=programs / "whole")
    assert whole.end() == 0, whole.text
    rng, broken = random.Random(f"{name} {times}"), programs / "broken"
    cut = 0
    while cut < times:
        run = start("run", "--logdir", "broken", rundir=broken)
        wait_for(lambda run=run: not run.is_alive() or run.state.phase in BEGUN, "its beginning")  # type: ignore[misc]
        time.sleep(rng.choice([rng.uniform(0, 0.1), rng.uniform(0, 0.5)]))
        if run.is_alive():
            run.signal(rng.choice([signal.SIGKILL, signal.SIGKILL, signal.SIGTERM]))
        assert run.end() in (0, -signal.SIGKILL), run.text
        cut += 1
        found = read_state(RunDirectory(broken).state)
        if found is not None and found.phase is Phase.FINISHED:
            break
    last = start("run", "--logdir", "broken", rundir=broken)
    assert last.end() == 0, last.text
    assert cut >= 2
    assert outcome(broken) == outcome(programs / "whole")


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
def test_a_program_of_its_own_ends_with_0_when_it_is_paused_and_resumes(programs: Path) -> None:
    command = [sys.executable, "estimators.py", "census", "own"]
    environment = {"PATH": "", "SECS_OF_A_STEP": "0.02", "TF_CPP_MIN_LOG_LEVEL": "3"}
    environment["XDG_STATE_HOME"] = os.environ["XDG_STATE_HOME"]
    with subprocess.Popen(command, cwd=programs, env=environment, stderr=subprocess.PIPE) as process:
        rundir = RunDirectory(programs / "own")
        wait_for(lambda: process.poll() is not None or rundir.manifest(20).exists(), "the checkpoint of step 20")
        process.send_signal(signal.SIGTERM)
        _, said = process.communicate(timeout=60)
    assert process.returncode == 0, said.decode()[-2000:]
    assert b"Traceback" not in said and saved(rundir)[0] >= 20
    environment["SECS_OF_A_STEP"] = "0"
    done = subprocess.run(command, cwd=programs, env=environment, capture_output=True, timeout=120)
    assert done.returncode == 0, done.stderr.decode()[-2000:]
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
