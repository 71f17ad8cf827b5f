"""The stages of an attached run: every change that the table has, and what is saved in each."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import tensorflow as tf

from trainerd.checkpoints import catalogue
from trainerd.loop.flag import Request
from trainerd.run.attached import TRANSITIONS, RunStage
from trainerd.run.program_loop import ProgramLoop
from trainerd.run.settings import KeepSettings
from trainerd.rundir.paths import RunDirectory
from trainerd.rundir.state import Phase
from trainerd.sessions.tf2.model import CheckpointModel
from trainerd.sessions.tf2.run import FunctionRun
from trainerd.sessions.tf2.session import FunctionSessionLink
from trainerd.system.stages import Stages


class Session:
    session_link: FunctionSessionLink


class Walk:
    """A run that is taken from one stage to another by what its owner calls."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.stage = RunStage.IDLE
        enter = Stages.enter

        def noted(stages: Stages[Any], stage: Any) -> None:
            enter(stages, stage)
            if isinstance(stage, RunStage):
                self.stage = stage

        monkeypatch.setattr(Stages, "enter", noted)
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

    def to(self, stage: RunStage) -> None:
        """From the beginning to a stage."""
        for reach in {
            RunStage.IDLE: [],
            RunStage.BEGUN: [self.begin],
            RunStage.TRAINING: [self.begin, self.take, self.train],
            RunStage.BETWEEN: [self.begin, self.take, self.train, self.run.part],
        }[stage]:
            reach()
        assert self.stage is stage


WAYS: dict[tuple[RunStage, RunStage], list[Callable[[Walk], None]]] = {
    (RunStage.IDLE, RunStage.BEGUN): [Walk.begin],
    (RunStage.BEGUN, RunStage.TRAINING): [Walk.take],
    (RunStage.BEGUN, RunStage.IDLE): [lambda walk: walk.run.leave(None)],
    (RunStage.TRAINING, RunStage.BETWEEN): [
        lambda walk: walk.run.part(),
        lambda walk: walk.run.session_link.close(None),
    ],
    (RunStage.TRAINING, RunStage.IDLE): [lambda walk: walk.run.leave(None)],
    (RunStage.BETWEEN, RunStage.TRAINING): [Walk.take],
    (RunStage.BETWEEN, RunStage.IDLE): [lambda walk: walk.run.leave(None)],
}


def test_every_change_of_the_table_is_tried_here() -> None:
    assert set(WAYS) == {(before, after) for before, all_after in TRANSITIONS.items() for after in all_after}


@pytest.mark.parametrize(("before", "after", "number"), [(*each, n) for each in WAYS for n in range(len(WAYS[each]))])
def test_a_change_of_the_table(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, before: RunStage, after: RunStage, number: int
) -> None:
    walk = Walk(tmp_path, monkeypatch)
    walk.to(before)
    WAYS[before, after][number](walk)
    assert walk.stage is after
    if after is not RunStage.IDLE:
        walk.run.leave(None)
    walk.to(before)  # the run directory and the signals were given back
    walk.run.leave(None)


@pytest.mark.parametrize("stage", RunStage)
def test_a_step_is_saved_while_a_session_trains_and_in_no_other_stage(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, stage: RunStage
) -> None:
    walk = Walk(tmp_path, monkeypatch)
    walk.to(stage)
    walk.run.save(None)
    assert catalogue.resume_order(walk.rundir) == ([1] if stage is RunStage.TRAINING else [])
    walk.run.leave(None)


@pytest.mark.parametrize("stage", [RunStage.BEGUN, RunStage.TRAINING, RunStage.BETWEEN])
def test_a_pause_is_received_in_every_stage_and_a_save_waits_for_a_session(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, stage: RunStage
) -> None:
    walk = Walk(tmp_path, monkeypatch)
    walk.to(stage)
    boundary = walk.run.session_link.boundary
    boundary.flag.raise_for(Request.SAVE)
    boundary.reached()
    assert boundary.flag.wants(Request.SAVE) == (stage is not RunStage.TRAINING)
    boundary.flag.raise_for(Request.PAUSE)
    boundary.reached()
    assert walk.run.outcome is not None and walk.run.outcome.phase is Phase.PAUSED
    if stage is not RunStage.TRAINING:
        walk.take()
        boundary = walk.run.session_link.boundary
        walk.train()
        boundary.reached()
    walk.run.wait()
    assert len(catalogue.resume_order(walk.rundir)) == 1
    walk.run.leave(None)
