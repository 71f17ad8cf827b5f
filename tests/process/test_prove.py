"""`trainerd prove`, over jobs that are exact and jobs that are not."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.process.conftest import Start, write_config


@pytest.mark.long
def test_an_exact_job_is_proved_and_leaves_no_temporary_files(project: Path) -> None:
    """Processes are killed that had theirs, TensorFlow's generated code among them."""
    folder = project / "temporary"
    folder.mkdir()
    write_config(project, entry="jobs:measured_with_noise")
    code = "import os, sys; os.environ['TMPDIR'] = sys.argv[1]; from trainerd.cli import main; main(sys.argv[2:])"
    prove = ["prove", "--steps", "60", "--interruptions", "2", "--keep", "kept"]
    command = [sys.executable, "-c", code, str(folder), *prove]
    done = subprocess.run(command, cwd=project, capture_output=True, text=True, timeout=200)
    assert done.stdout.rstrip().endswith("The same, bit for bit."), done.stdout + done.stderr
    assert not list(folder.iterdir())
    assert "paused at step" in done.stdout and "killed at step" in done.stdout
    assert "warning: the evaluation changed the state: the variable 'random/_state_var'" in done.stdout
    assert "interrupted: 1 pause and 1 kill; 1 in an evaluation" in done.stdout
    assert "not interrupted past the end of an epoch: none" in done.stdout
    assert "compared: 60 steps" in done.stdout and "their batches and loss, x" in done.stdout
    assert not (project / "run").exists()
    logs = [(project / "kept" / name / "trainerd.log").read_text() for name in ("whole", "broken")]
    assert all("restored step" in log and "the job builds another graph" not in log for log in logs)


@pytest.mark.long
def test_a_model_is_interrupted_in_a_validation_and_past_an_epoch(start: Start, project: Path) -> None:
    (project / "epochs.csv").write_text("mine\n")
    write_config(project, entry="jobs:keras_model")
    check = start("check")
    assert check.end() == 0 and "All is well" in check.text, check.text
    prove = start("prove", "--steps", "20", "--interruptions", "2")
    assert prove.end(120) == 0 and prove.text.rstrip().endswith("The same, bit for bit."), prove.text
    assert re.search(r"interrupted: 1 pause and 1 kill; 1 in an evaluation, [12] past the end of an epoch", prove.text)
    assert "not interrupted" not in prove.text
    assert (project / "epochs.csv").read_text() == "mine\n", "the job's own file"


@pytest.mark.parametrize(
    ("entry", "more", "parts"),
    [
        (
            "jobs:exact",
            'input_position = "restart"\n',
            ["the interrupted run is not the run without a stop", "another batch"],
        ),
        (
            "jobs:unsorted",
            "",
            ["two runs without a stop are not the same either", "at step 1: loss is", "builds something else"],
        ),
    ],
)
@pytest.mark.long
def test_prove_says_where_a_job_differs(start: Start, project: Path, entry: str, more: str, parts: list[str]) -> None:
    write_config(project, entry=entry, more=more)
    prove = start("prove", "--steps", "40", "--interruptions", "1")
    assert prove.end(120) == 70
    for part in parts:
        assert part in prove.text, prove.text


def test_an_evaluation_that_changes_the_state_is_named(start: Start, project: Path) -> None:
    write_config(project, entry="jobs:measured_with_noise", more="deterministic = true\nseed = 1\n")
    refused = start("check")
    assert refused.end(120) == 70 and "deterministic = true, and the evaluation changed" in refused.text
