"""The stages of an attached run: what is saved and received in each."""

from __future__ import annotations

from pathlib import Path

import pytest
import tensorflow as tf

from trainerd.checkpoints import catalogue
from trainerd.loop.flag import Request
from trainerd.run.program_loop import ProgramLoop
from trainerd.run.settings import KeepSettings
from trainerd.rundir import lock
from trainerd.rundir.paths import RunDirectory
from trainerd.rundir.state import Phase
from trainerd.sessions.tf2.model import CheckpointModel
from trainerd.sessions.tf2.run import FunctionRun
from trainerd.sessions.tf2.session import FunctionSessionLink


class Session:
    session_link: FunctionSessionLink


class Walk:
    """A run that is taken from one stage to another by what its owner calls."""

    def __init__(self, folder: Path) -> None:
        self.rundir = RunDirectory.of(str(folder), "model.ckpt")
        self.steps = tf.Variable(0, dtype=tf.int64, name="global_step")
        self.model = CheckpointModel(tf.train.Checkpoint(weight=tf.Variable(1.0)), self.steps)
        self.run = FunctionRun(self.rundir, self.model, KeepSettings(), ProgramLoop(lambda error: None))

    def begin(self) -> None:
        with self.run.begun():
            pass

    def take(self) -> None:
        self.run.find()
        self.run.take(Session())

    def train(self) -> None:
        self.steps.assign_add(1)
        self.model.count(1)

    def to(self, stage: str) -> None:
        """Go from the beginning to a stage: no session yet, one that trains, or a closed one."""
        ways = {"idle": [], "begun": [self.begin], "training": [self.begin, self.take, self.train]}
        for reach in {**ways, "between": [*ways["training"], self.run.part]}[stage]:
            reach()


@pytest.mark.parametrize("stage", ["begun", "training", "between"])
def test_a_run_that_is_left_gives_its_run_directory_back(tmp_path: Path, stage: str) -> None:
    walk = Walk(tmp_path)
    for _ in range(2):
        walk.to(stage)
        walk.run.leave(None)
        with lock.acquire(walk.rundir):  # fails while the run holds it
            assert walk.run.outcome is None


@pytest.mark.parametrize("stage", ["idle", "begun", "training", "between"])
def test_a_step_is_saved_while_a_session_trains_and_in_no_other_stage(tmp_path: Path, stage: str) -> None:
    walk = Walk(tmp_path)
    walk.to(stage)
    walk.run.save(None)
    assert catalogue.resume_order(walk.rundir) == ([1] if stage == "training" else [])
    walk.run.leave(None)


@pytest.mark.parametrize("stage", ["begun", "training", "between"])
def test_a_pause_is_received_in_every_stage_and_a_save_waits_for_a_session(tmp_path: Path, stage: str) -> None:
    walk = Walk(tmp_path)
    walk.to(stage)
    boundary = walk.run.session_link.boundary
    boundary.flag.raise_for(Request.SAVE)
    boundary.reached()
    assert boundary.flag.wants(Request.SAVE) == (stage != "training")
    boundary.flag.raise_for(Request.PAUSE)
    boundary.reached()
    assert walk.run.outcome is not None and walk.run.outcome.phase is Phase.PAUSED
    if stage != "training":
        walk.take()
        boundary = walk.run.session_link.boundary
        walk.train()
        boundary.reached()
    walk.run.wait()
    assert len(catalogue.resume_order(walk.rundir)) == 1
    walk.run.leave(None)
