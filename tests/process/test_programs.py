"""What an entry may be beside a Job: a Keras model, and a function that writes its own loop."""

from __future__ import annotations

import csv
import re
from pathlib import Path

import pytest
import tensorflow as tf

from tests.process.conftest import Start, write_config
from tests.process.trainers import saved
from trainerd.checkpoints import manifest
from trainerd.rundir.paths import RunDirectory
from trainerd.rundir.state import Phase, read_state

PROGRAMS = ["jobs:steps_program", "jobs:graph_program"]


def value(rundir: RunDirectory, step: int) -> float:
    """Of the one variable of these programs, in a checkpoint."""
    reader = tf.train.load_checkpoint(str(rundir.prefix(step)))
    name = "p" if reader.has_tensor("p") else "p/.ATTRIBUTES/VARIABLE_VALUE"
    return float(reader.get_tensor(name))


@pytest.mark.parametrize("entry", PROGRAMS)
def test_a_program_ends_at_max_steps_to_the_step(start: Start, project: Path, entry: str) -> None:
    write_config(project, entry=entry, more="max_steps = 333\n")
    run = start("run")
    assert run.end() == 0, run.text
    rundir = RunDirectory(project / "run")
    assert saved(rundir)[0] == 333 and value(rundir, 333) == 666.0
    assert manifest.read(rundir.manifest(333)).reason == "finish"
    state = read_state(rundir.state)
    assert state is not None and state.phase is Phase.FINISHED and state.max_steps == 333
    assert "max_steps = 333 is reached" in run.text
    again = start("run")
    assert again.end() == 0 and "max_steps = 333 is reached" in again.text


@pytest.mark.parametrize("entry", PROGRAMS)
def test_a_program_is_paused_saved_and_resumes(start: Start, project: Path, entry: str) -> None:
    write_config(project, entry=entry, more="[checkpoint]\nsave_model_secs = 0\n")
    last = 0
    for how in ("signal", "file", "kill"):
        run = start("run")
        run.until_training(last + 20)
        if how == "kill":
            run.signal(9)
            assert run.end() == -9
            break
        run.signal(10)  # SIGUSR1: save, and go on
        run.until_printed(r"saved step \d+ \(request\)")
        if how == "signal":
            assert run.pause() == 0, run.text
        else:
            run.rundir.pause.touch()
            assert run.end() == 0, run.text
        newest = saved(run.rundir)[0]
        assert newest > last and value(run.rundir, newest) == 2.0 * newest
        assert manifest.read(run.rundir.manifest(newest)).reason == "pause"
        last = newest
    end = saved(run.rundir)[0] + 250  # nothing that was announced is lost, and the rest is done again
    assert end >= last + 250
    write_config(project, entry=entry, more=f"max_steps = {end}\n")
    run = start("run")
    assert run.end() == 0, run.text
    assert saved(run.rundir)[0] == end and value(run.rundir, end) == 2.0 * end


def test_a_program_of_many_sessions_is_paused(start: Start, project: Path) -> None:
    write_config(project, entry="jobs:program_of_rounds")
    last = 0
    for _ in range(2):
        run = start("run")
        run.until_training(last + 500)
        assert run.pause() == 0, run.text
        newest = saved(run.rundir)[0]
        assert newest > last and manifest.read(run.rundir.manifest(newest)).reason in ("pause", "finish")
        state = read_state(run.rundir.state)
        assert state is not None and state.phase is Phase.PAUSED and state.step == newest
        last = newest


@pytest.mark.parametrize(
    ("place", "begins", "how"),
    [
        ("beside", "evaluating", "signal"),
        ("inside", "evaluating", "signal"),
        ("inside", "evaluating", "file"),
        ("thread", "evaluating", "signal"),
        ("failing", "failing", "signal"),
        ("training", "looking", "signal"),
        ("training", "looking", "file"),
        ("between", "waiting", "signal"),
        ("between", "waiting", "file"),
        ("inside, later", "waiting", "signal"),
    ],
)
def test_a_pause_ends_a_program_wherever_it_is(start: Start, project: Path, place: str, begins: str, how: str) -> None:
    """In a session beside the one that trains or inside of it, in one that fails as it ends, or in none."""
    write_config(project, entry="jobs:program_of_places")
    (project / "place").write_text(place)
    run = start("run")
    run.until_printed(begins)
    if how == "file":
        run.rundir.pause.touch()
    else:
        run.signal(15)
        run.until_printed("SIGTERM")
    (project / "go").touch()
    assert run.end() == 0, run.text
    state = read_state(run.rundir.state)
    assert state is not None and state.phase is Phase.PAUSED and not run.rundir.pause.exists()
    assert state.step == saved(run.rundir)[0]
    assert state.step % 20 == 0 if begins == "waiting" else state.step == 20  # a file may be seen in the next round


def test_a_program_that_does_not_end_its_session_is_saved_all_the_same(start: Start, project: Path) -> None:
    write_config(project, entry="jobs:unstopped_program", more="[checkpoint]\nsave_model_secs = 0\n")
    run = start("run")
    run.until_training(50)
    assert run.pause() == 0, run.text
    state = read_state(run.rundir.state)
    assert state is not None and state.phase is Phase.PAUSED and state.step == saved(run.rundir)[0] >= 50
    assert manifest.read(run.rundir.manifest(state.step)).reason == "pause"


def test_a_program_that_has_finished_is_not_paused_any_more(start: Start, project: Path) -> None:
    write_config(project, entry="jobs:exporting_program")
    run = start("run")
    run.until_printed("files are written")
    run.signal(15)
    run.until_printed("SIGTERM")
    (project / "export").touch()
    assert run.end() == 0, run.text
    state = read_state(run.rundir.state)
    assert state is not None and state.phase is Phase.FINISHED and state.step == 20


def test_an_evaluation_in_a_session_of_its_own_is_abandoned_and_made_again(start: Start, project: Path) -> None:
    write_config(project, entry="jobs:job_with_sessions", more="[evaluate]\nevaluate_secs = 0\nevaluate_steps = 5\n")
    run = start("run")
    run.until_printed("evaluating")
    assert run.pause() == 0, run.text
    state = read_state(run.rundir.state)
    assert state is not None and state.phase is Phase.PAUSED and "val_figure" not in state.metrics, run.text
    again = start("run", "--max-steps", "5")
    assert again.end() == 0 and again.text.count("evaluating") == 1, again.text
    assert manifest.read(run.rundir.manifest(5)).metrics["val_figure"] == 1.0


def test_an_error_of_the_program_is_shown_and_its_last_step_saved(start: Start, project: Path) -> None:
    write_config(project, entry="jobs:failing_program")
    run = start("run")
    assert run.end() == 70
    assert "the program failed at step 3" in run.text and "my own mistake" in run.text
    assert 'File "' in run.text and "site-packages" not in run.text
    assert saved(run.rundir)[0] == 3
    state = read_state(run.rundir.state)
    assert state is not None and state.phase is Phase.FAILED and state.exit_code == 70


def test_what_the_config_says_a_program_cannot(start: Start, project: Path) -> None:
    write_config(project, entry="jobs:meddling_program")
    run = start("run")
    assert run.end() == 70 and "logdir: under the daemon trainerd.toml says that" in run.text


def test_a_program_cannot_be_tried(start: Start, project: Path) -> None:
    write_config(project, entry="jobs:steps_program")
    check = start("check")
    assert check.end() == 69 and "is a function that takes the Supervisor" in check.text


@pytest.mark.long
def test_a_keras_model_is_trained_paused_and_trained_further(start: Start, project: Path) -> None:
    write_config(project, entry="jobs:keras_model")
    run = start("run")
    run.until_training(20)
    assert run.pause() == 0, run.text
    paused = saved(run.rundir)[0]
    assert 20 <= paused < 210
    run = start("run")
    assert run.end() == 0, run.text
    assert "epochs = 30 are done" in run.text and saved(run.rundir)[0] == 210
    reported = [int(n) for n in re.findall(r"epoch (\d+) ended at step", run.text)]
    # A pause at an epoch's last step comes before or after the epoch's end.
    assert reported and reported[0] in {-(-paused // 7), paused // 7 + 1} and reported == sorted(reported)
    state = read_state(run.rundir.state)
    assert state is not None and state.metrics["epoch"] == 30 and "val_loss" in state.metrics
    rows = list(csv.DictReader((project / "epochs.csv").read_text().splitlines()))
    assert [int(row["epoch"]) for row in rows] == list(range(30))
    again = start("run")
    assert again.end() == 0 and "epochs = 30 are done" in again.text and "restored" not in again.text
    changed = project / "jobs.py"
    changed.write_text(changed.read_text() + "\n")
    again = start("run")
    assert again.end() == 0 and "restored step 210" in again.text and "epochs = 30 are done" in again.text


def test_what_works_and_is_warned_of_is_not_called_well(start: Start, project: Path) -> None:
    write_config(project, entry="jobs:cached")
    check = start("check")
    assert check.end() == 0, check.text
    assert check.text.count("warning: the dataset has a shuffle that is cached") == 1, check.text
    assert check.text.count("the dataset has a shuffle that is cached") == 1, check.text
    assert "All is well" not in check.text and "It works; read the warning above. " in check.text, check.text
