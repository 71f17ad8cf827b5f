"""A history that is walked: real runs go back, are forked and compared, and end with the bytes that they should."""

from __future__ import annotations

import json
import re
import signal
from pathlib import Path

import pytest

from tests.process.conftest import Start, write_config
from tests.process.trainers import Trainer, saved, variables
from trainerd.checkpoints import manifest
from trainerd.history import lines
from trainerd.rundir.paths import RunDirectory
from trainerd.rundir.state import Phase

BY_HAND = "[checkpoint]\nsave_model_secs = 0\nkeep_last = 1000\nminima = false\n"


def save(run: Trainer) -> int:
    """Have it save; the step."""
    run.signal(signal.SIGUSR1)
    return int(run.until_printed(r"saved step (\d+) \(request\)")[1])


LONG = pytest.mark.long


@pytest.mark.parametrize("entry", ["exact", pytest.param("keras_model", marks=LONG), pytest.param("graph", marks=LONG)])
def test_a_run_that_went_back_is_the_run_that_never_left(start: Start, project: Path, entry: str) -> None:
    write_config(project, entry=f"jobs:{entry}", more=BY_HAND)
    run = start("run", "--forever")
    run.until_training(1)
    back = save(run)
    run.until_training(back + 60)
    asked = start("rollback", str(back))
    assert asked.end() == 0, asked.text
    assert f"went back to step {back}; training continues" in asked.text
    end = run.until(lambda state: state.phase is Phase.TRAINING and state.step > back + 20, "steps after it").step
    assert run.pause() == 0, run.text
    end = saved(run.rundir)[0]
    left = lines.checkpoints_of(run.rundir, 1)
    assert len(left.steps()) == 1 and manifest.read(left.manifest(left.steps()[0])).reason == "rollback"
    calm = start("run", "--max-steps", str(end), "--logdir", "calm", rundir=project / "calm")
    assert calm.end() == 0, calm.text
    assert trained(run.rundir.prefix(end)) == trained(calm.rundir.prefix(end))


def trained(prefix: Path) -> dict[str, str]:
    """The variables, without the metrics of Keras: a pause at the end of an epoch has begun the next one already."""
    return {name: value for name, value in variables(prefix).items() if ".METRICS" not in name}


@pytest.mark.long
def test_a_program_is_paused_and_its_next_start_goes_back(start: Start, project: Path) -> None:
    write_config(project, entry="jobs:graph_program", more=BY_HAND)
    run = start("run")
    run.until_training(1)
    back = save(run)
    run.until_training(back + 20)
    asked = start("rollback", str(back))
    assert asked.end() == 0, asked.text
    assert run.end() == 0, run.text
    assert f"the next start goes back to step {back}" in run.text
    again = start("run", "--max-steps", str(back + 5))
    assert again.end() == 0, again.text
    assert f"restored step {back}" in again.text and saved(run.rundir)[:2] == [back + 5, back]


@pytest.mark.long
def test_a_fork_equals_its_parent_at_every_common_step(start: Start, project: Path) -> None:
    more = "max_steps = 40\n[checkpoint]\nsave_model_steps = 10\nkeep_last = 99\n"
    write_config(project, entry="jobs:exact", more=more)
    assert start("run").end() == 0
    assert start("fork", "20", "other").end() == 0
    fork = start("run", "--logdir", "other", rundir=project / "other")
    assert fork.end() == 0 and "restored step 20" in fork.text
    compared = start("diff", "run", "other")
    assert compared.end() == 0, compared.text
    assert compared.text.count("equal") == 3  # 20, 30, 40
    write_config(project, entry="jobs:exact_otherwise", more=more)
    assert start("fork", "20", "third").end() == 0
    assert start("run", "--logdir", "third", "--accept-job").end() == 0
    compared = start("diff", "run", "third")
    assert compared.end() == 1 and "step 20: equal" in compared.text
    assert re.search(
        r"step 30: differ\n  \d+ of \d+ variables differ; the first:\n    \S+: \d+ of \d+ bytes differ", compared.text
    )
    assert "step 40" not in compared.text


def test_what_is_set_is_kept_over_a_kill(start: Start, project: Path) -> None:
    write_config(project, entry="jobs:settable", more=BY_HAND)
    run = start("run", "--forever")
    run.until_training(5)
    asked = start("set", "rate=0.5", "learning_rate=0.25")
    assert asked.end() == 0, asked.text
    assert re.search(r"after step \d+: rate = 0.5, learning_rate = 0.25", asked.text)
    wrong = start("set", "speed=1")
    assert wrong.end() == 64 and "no number 'speed' to set. It has learning_rate, rate." in wrong.text
    for value, limit in {"learning_rate=-1": "at least 0, and -1", "rate=2": "at most 1, and 2"}.items():
        outside = start("set", value)
        assert outside.end() == 64 and f"must be {limit} was given." in outside.text
    run.signal(signal.SIGKILL)
    run.end()
    again = start("run", "--max-steps", str(saved(run.rundir)[0] + 1))
    assert again.end() == 0, again.text
    found = manifest.read(run.rundir.manifest(saved(run.rundir)[0]))
    assert found.metrics["rate"] == 0.5 and found.metrics["learning_rate"] == 0.25
    assert [change.name for change in found.lineage] == ["rate", "learning_rate"]


def test_a_run_without_its_bad_batch_is_the_run_that_never_had_it(start: Start, project: Path) -> None:
    write_config(
        project,
        entry="jobs:poisoned",
        more='max_steps = 60\n[checkpoint]\nsave_model_steps = 20\n[trouble]\non_nan = "skip"\n',
    )
    run = start("run")
    assert run.end() == 0, run.text
    assert "the loss became nan in step 31; rolling back to step 20" in run.text
    clean = start(
        "run",
        "--config",
        str(write_config(project, entry="jobs:never_poisoned", more="max_steps = 60\n")),
        "--logdir",
        "clean",
        rundir=project / "clean",
    )
    assert clean.end() == 0, clean.text
    assert variables(run.rundir.prefix(60)) == variables(clean.rundir.prefix(60))
    lineage = manifest.read(run.rundir.manifest(60)).lineage
    assert [(change.kind, change.step, change.value) for change in lineage] == [("back", 20, 31.0), ("skip", 30, 1.0)]
    assert lineage[1].why.endswith("; elements 30") and "elements 30" in run.text


# ---------------------------------------------------------------------- evaluations and releases


@pytest.mark.long
def test_old_points_are_evaluated_and_the_best_is_released(start: Start, project: Path) -> None:
    write_config(
        project,
        entry="jobs:released",
        more='max_steps = 30\n[checkpoint]\nsave_model_steps = 10\nbest = "min val_loss"\n',
    )
    assert start("run").end() == 0
    rundir = RunDirectory(project / "run")
    evaluated = start("evaluate", "10", "30")
    assert evaluated.end() == 0, evaluated.text
    (rundir.path / "model.ckpt-20.index").write_text("damaged")
    rest = start("evaluate", "--all")
    assert (
        rest.end() == 70 and "step 20: model.ckpt-20.index: " in rest.text and rest.text.count("evaluated before") == 2
    )
    shown = start("checkpoints", "--json")
    assert shown.end() == 0
    entries = {entry["step"]: entry for entry in json.loads(shown.text)}
    assert "best" in entries[30]["marks"] and entries[30]["metrics"]["val_loss"] < entries[10]["metrics"]["val_loss"]
    released = start("export", "best", "out")
    assert released.end() == 0, released.text
    about = json.loads((project / "out" / "release.json").read_text())
    assert about["step"] == 30 and set(about["verified"]) == {"savedmodel", "keras"}
    assert about["figures"]["val_loss"] == pytest.approx(entries[30]["metrics"]["val_loss"], rel=1e-6)
    assert {"README.md", "loss.png", "model.keras"} <= set(about["files"])
    again = start("export", "best", "out")
    assert again.end() == 64 and "exists and is not empty" in again.text
    predicted = start("predict", "best", "-o", "x.csv")
    assert predicted.end() == 0, predicted.text
    rows = (project / "x.csv").read_text().splitlines()
    assert rows[0] == "id,prediction" and len(rows) == 9 and rows[1].startswith("1,")


@pytest.mark.parametrize(
    ("command", "says"),
    [("evaluate", "def evaluate():"), ("export out", "def export(directory):"), ("predict -o x.csv", "def predict():")],
)
def test_a_job_without_it_is_shown_what_to_add(start: Start, project: Path, command: str, says: str) -> None:
    write_config(project, entry="jobs:counter", more="max_steps = 10\n")
    assert start("run").end() == 0
    asked = start(*command.split())
    assert asked.end() == 69 and says in asked.text
    assert not (project / "out").exists() and not (project / "x.csv").exists()
    assert not list(project.glob(".*staging"))


@pytest.mark.long
def test_a_release_that_gives_something_else_is_none(start: Start, project: Path) -> None:
    write_config(project, entry="jobs:exports_wrongly", more="max_steps = 10\n")
    assert start("run").end() == 0
    asked = start("export", "out")
    assert asked.end() == 70 and "There is no release." in asked.text
    assert not (project / "out").exists() and not list(project.glob(".*staging"))
