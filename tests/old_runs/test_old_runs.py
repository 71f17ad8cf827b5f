"""What earlier versions of trainerd have paused, this one goes on with, to the same bytes."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import Fork
from tests.old_runs.make import RUNS, STEPS_AN_EPOCH, digests, prepare, request
from trainerd.rundir import run_events
from trainerd.rundir.paths import RunDirectory
from trainerd.rundir.run_events import EventKind

# `make test` tries the jobs of the newest version; loops of one's own are resumed by the same code as jobs.
QUICK = [Path("0.2", kind) for kind in ("function", "graph", "keras_model")]


def kept_runs() -> list[Any]:
    """Each kept run directory."""
    marks = {path: () if path.relative_to(RUNS) in QUICK else pytest.mark.long for path in sorted(RUNS.glob("*/*"))}
    return [pytest.param(path, id="-".join(path.parts[-2:]), marks=mark) for path, mark in marks.items()]


@pytest.mark.parametrize("kept", kept_runs())
def test_an_old_run_resumes(fork: Fork, tmp_path: Path, kept: Path) -> None:
    kind, rundir = kept.name, RunDirectory(tmp_path / "run")
    prepare(tmp_path, kind)
    shutil.copytree(kept, rundir.path, ignore=shutil.ignore_patterns("ends.json"))
    step, ends = max(rundir.steps()), json.loads((kept / "ends.json").read_text())
    trainer = fork(tmp_path, **request(kind, ends["end"]))
    assert trainer.end() == 0, trainer.text
    assert f"restored step {step} (pause)" in trainer.text
    if kind == "fit":  # the epoch that was interrupted restarts, and did not then
        assert max(rundir.steps()) == step + STEPS_AN_EPOCH
    else:
        assert max(rundir.steps()) >= ends["end"] and digests(rundir) == ends["variables"]
    if (kept / "events.jsonl").exists():
        assert [each.kind for each in run_events.read(rundir)][:2] == [EventKind.START, EventKind.PAUSE]
