"""The stages of a `fit`: every change that the table has, made by calling the callback as Keras does."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import keras
import pytest
import tensorflow as tf

from trainerd.keras import Supervise
from trainerd.sessions.keras.fit_stage import TRANSITIONS, FitStage
from trainerd.system.stages import Stages

BATCHES = 3  # of an epoch


class Walk:
    """A callback that is called by hand, and the changes of its stage."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.changes: list[tuple[FitStage, FitStage]] = []
        enter = Stages.enter

        def noted(stages: Stages[Any], stage: Any) -> None:
            if isinstance(stage, FitStage) and stage is not stages.now:
                self.changes.append((stages.now, stage))
            enter(stages, stage)
            if isinstance(stage, FitStage):
                self.stage = stage

        monkeypatch.setattr(Stages, "enter", noted)
        self.stage = FitStage.IDLE
        self.model = keras.Sequential([keras.Input((1,)), keras.layers.Dense(1)])
        self.compile()
        self.model.make_train_function()
        self.supervise = Supervise(str(folder))
        self.supervise.set_params({"epochs": 2, "steps": BATCHES})
        self.supervise.set_model(self.model)
        numbers = tf.ones([1, 1])
        self.data = tf.data.Dataset.from_tensors((numbers, numbers)).repeat(BATCHES)

    @classmethod
    def after_an_epoch(cls, folder: Path, monkeypatch: pytest.MonkeyPatch) -> Walk:
        """A walk after an earlier process has trained with the last batch of an epoch, and no more."""
        first = cls(folder, monkeypatch)
        first.keep_data()
        first.begin()
        for batch in range(BATCHES):
            first.supervise.on_train_batch_begin(batch)
            first.train()
            first.supervise.on_train_batch_end(batch, {"loss": 1.0})
        first.leave()
        walk = cls(folder, monkeypatch)
        walk.keep_data()
        return walk

    def keep_data(self) -> None:
        self.data = self.supervise.data(self.data)

    def compile(self) -> None:
        self.model.compile("sgd", "mse")

    def begin(self) -> None:
        self.supervise.on_train_begin()
        self.batches = iter(self.data)

    def begin_batch(self) -> None:
        self.supervise.on_train_batch_begin(0)

    def train(self) -> None:
        self.model.train_function(self.batches)

    def end_batch(self) -> None:
        self.supervise.on_train_batch_end(0, {"loss": 1.0})

    def end_epoch(self) -> None:
        self.supervise.on_epoch_end(0, {})

    def leave(self) -> None:
        self.supervise.__exit__(None, None, None)

    def compile_and_leave(self) -> None:
        self.compile()
        self.leave()

    def replay(self) -> None:
        """What comes in place of the next step tells the logs of one that an earlier process has trained."""
        self.supervise.on_epoch_begin(0)

    def to(self, stage: FitStage) -> None:
        for reach in {
            FitStage.IDLE: [],
            FitStage.KEPT: [self.begin],
            FitStage.STEP: [self.begin, self.begin_batch],
            FitStage.DONE: [self.begin, self.begin_batch, self.train],
            FitStage.BOUNDARY: [self.begin, self.begin_batch, self.train, self.end_batch],
            FitStage.REPLAYED: [self.begin, self.replay, self.begin_batch, self.train],
        }[stage]:
            reach()
        assert self.stage is stage


def _train_again(walk: Walk) -> None:
    walk.replay()
    walk.train()


WAYS: dict[tuple[FitStage, FitStage], Callable[[Walk], None]] = {
    (FitStage.IDLE, FitStage.BOUNDARY): Walk.begin,
    (FitStage.BOUNDARY, FitStage.STEP): Walk.begin_batch,
    (FitStage.BOUNDARY, FitStage.KEPT): Walk.end_epoch,
    (FitStage.BOUNDARY, FitStage.IDLE): Walk.leave,
    (FitStage.STEP, FitStage.DONE): Walk.train,
    (FitStage.STEP, FitStage.REPLAYED): _train_again,
    (FitStage.STEP, FitStage.BOUNDARY): Walk.end_batch,
    (FitStage.STEP, FitStage.IDLE): Walk.leave,
    (FitStage.DONE, FitStage.STEP): Walk.begin_batch,
    (FitStage.DONE, FitStage.BOUNDARY): Walk.leave,
    (FitStage.DONE, FitStage.IDLE): Walk.compile_and_leave,
    (FitStage.REPLAYED, FitStage.STEP): Walk.begin_batch,
    (FitStage.REPLAYED, FitStage.BOUNDARY): Walk.end_batch,
    (FitStage.REPLAYED, FitStage.IDLE): Walk.leave,
    (FitStage.KEPT, FitStage.STEP): Walk.begin_batch,
    (FitStage.KEPT, FitStage.BOUNDARY): Walk.end_epoch,
    (FitStage.KEPT, FitStage.IDLE): Walk.leave,
}


def walk_to(stage: FitStage, folder: Path, monkeypatch: pytest.MonkeyPatch, *later: FitStage) -> Walk:
    """A walk to a stage, from where it can come to the later one."""
    is_told_again = FitStage.REPLAYED in (stage, *later)
    walk = Walk.after_an_epoch(folder, monkeypatch) if is_told_again else Walk(folder, monkeypatch)
    walk.to(stage)
    return walk


def test_every_change_of_the_table_is_tried_here() -> None:
    assert set(WAYS) == {(before, after) for before, all_after in TRANSITIONS.items() for after in all_after}


@pytest.mark.parametrize(("before", "after"), WAYS)
def test_a_change_of_the_table(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, before: FitStage, after: FitStage
) -> None:
    walk = walk_to(before, tmp_path, monkeypatch, after)
    walk.changes.clear()
    WAYS[before, after](walk)
    assert walk.changes[0] == (before, after)
    walk.leave()
    assert walk.stage is FitStage.IDLE


@pytest.mark.parametrize(
    ("stage", "step"),
    [
        (FitStage.KEPT, 0),
        (FitStage.STEP, 0),
        (FitStage.DONE, 1),
        (FitStage.BOUNDARY, 1),
        (FitStage.REPLAYED, BATCHES),
    ],
)
def test_an_error_leaves_the_step_that_the_stage_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, stage: FitStage, step: int
) -> None:
    walk_to(stage, tmp_path, monkeypatch).leave()
    again = Walk(tmp_path, monkeypatch)
    again.begin()
    assert again.supervise.step == step
    again.leave()
