"""Estimators of TensorFlow 2: a compiled Keras model, and a job."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf

import trainerd
from tests.tensorflow.noting import instances
from trainerd.checkpoints import manifest
from trainerd.errors import DataError
from trainerd.loop.flag import Request
from trainerd.loop.minima.minima import Minima
from trainerd.programs.estimator.base import BaseEstimator
from trainerd.programs.experiment.early_stopping import read_eval_metrics
from trainerd.run.boundary import Boundary
from trainerd.rundir.paths import RunDirectory
from trainerd.sessions.tf2.job_session import FunctionSession

X = np.random.RandomState(0).rand(60, 3).astype("float32")
Y = (X[:, 0] > X[:, 1]).astype("int64")


def endless() -> tf.data.Dataset:
    return tf.data.Dataset.from_tensor_slices((X, Y)).shuffle(60, seed=2).repeat().batch(5)


def reversed_endless() -> tf.data.Dataset:
    return tf.data.Dataset.from_tensor_slices((X[::-1].copy(), Y[::-1].copy())).repeat().batch(5)


def whole() -> tf.data.Dataset:
    return tf.data.Dataset.from_tensor_slices((X, Y)).batch(20)


def model(seed: int = 1, units: int = 2) -> keras.Model:
    keras.utils.set_random_seed(seed)
    layers = [keras.Input((3,)), keras.layers.Dropout(0.3), keras.layers.Dense(units, activation="softmax")]
    found = keras.Sequential(layers)
    found.compile("adam", "sparse_categorical_crossentropy", metrics=["accuracy"])
    return found


def settings(folder: Path, every: int | None = 10) -> trainerd.RunConfig:
    return trainerd.RunConfig(model_dir=str(folder), save_checkpoints_steps=every, keep_checkpoint_max=20)


def keras_estimator(folder: Path, seed: int = 1, every: int | None = 10) -> trainerd.KerasEstimator:
    return trainerd.KerasEstimator(model(seed), config=settings(folder, every))


def counting_job(**more: Any) -> trainerd.Job:
    """Sums up what it reads."""
    total = tf.Variable(0, dtype=tf.int64)

    def train_step(number: Any) -> Any:
        total.assign_add(number)
        return {"loss": tf.cast(total, tf.float32), "read": number}

    options: dict[str, Any] = {"evaluate": lambda: {"total": float(total.numpy())}}
    return trainerd.Job(train_step, dataset=tf.data.Dataset.range(1, 1000), state={"total": total}, **(options | more))


def job_estimator(folder: Path, **more: Any) -> trainerd.JobEstimator:
    return trainerd.JobEstimator(counting_job(**more), config=settings(folder))


def values(estimator: BaseEstimator) -> dict[str, Any]:
    """All that the newest checkpoint holds."""
    return {name: np.asarray(estimator.get_variable_value(name)).tolist() for name in estimator.get_variable_names()}


@pytest.mark.long
def test_it_trains_in_parts_as_in_one_and_evaluations_change_nothing(tmp_path: Path) -> None:
    whole_run, parts = keras_estimator(tmp_path / "whole"), tmp_path / "parts"
    whole_run.train(endless, max_steps=57)
    keras_estimator(parts).train(endless, steps=23)
    second = keras_estimator(parts)
    seen: list[Any] = []

    class Evaluate(trainerd.hooks.CheckpointSaverListener):  # type: ignore[misc]
        def after_save(self, session: Any, global_step_value: int) -> None:
            assert session.step == global_step_value
            assert RunDirectory(parts).manifest(global_step_value).exists(), "it is on disk"
            seen.append((global_step_value, second.evaluate(whole)["global_step"]))

    second.train(endless, max_steps=57, saving_listeners=[Evaluate()])
    assert seen == [(step, step) for step in (30, 40, 50, 57)]
    assert values(second) == values(whole_run)
    reasons = [manifest.read(RunDirectory(parts).manifest(step)).reason for step in (23, 30, 57)]
    assert reasons == ["finish", "schedule", "finish"]


def test_an_old_checkpoint_is_measured_as_it_was(tmp_path: Path) -> None:
    estimator = keras_estimator(tmp_path)
    found = {}
    for last in (10, 20, 30):
        estimator.train(endless, max_steps=last)
        found[last] = estimator.evaluate(whole)
    assert [found[last]["global_step"] for last in found] == [10, 20, 30]
    assert len({found[last]["loss"] for last in found}) == 3
    another = keras_estimator(tmp_path, seed=5)
    for last in found:
        path = str(tmp_path / f"model.ckpt-{last}")
        assert another.evaluate(whole, checkpoint_path=path) == found[last]
    assert another.evaluate(whole, steps=1) != found[30]
    assert len(read_eval_metrics(str(tmp_path / "eval"))) == 3, "a point of the curves for each step"


def test_predictions_are_those_of_the_checkpoint(tmp_path: Path) -> None:
    keras_estimator(tmp_path).train(endless, max_steps=30)
    untrained = model(seed=5)
    fresh = trainerd.KerasEstimator(untrained, config=settings(tmp_path))
    before = untrained(X).numpy()
    examples = list(fresh.predict(whole))
    assert len(examples) == 60 and set(examples[0]) == {"output_1"}
    assert np.array_equal(untrained(X).numpy(), before), "the model is what it was"
    [first, *_] = fresh.predict(lambda: tf.data.Dataset.from_tensors(X[:20]), yield_single_examples=False)
    assert np.allclose(first["output_1"], [each["output_1"] for each in examples[:20]], atol=1e-6)
    assert not np.allclose(first["output_1"], before[:20])
    with pytest.raises(ValueError, match="Expected to run at least one output"):
        next(fresh.predict(whole, predict_keys=["another"]))


def test_an_export_is_a_saved_model_of_that_checkpoint(tmp_path: Path) -> None:
    estimator = keras_estimator(tmp_path)
    estimator.train(endless, max_steps=20)
    path = str(tmp_path / "model.ckpt-10")
    folder = os.fsdecode(estimator.export_saved_model(tmp_path / "export", checkpoint_path=path))
    loaded = tf.saved_model.load(folder)
    served = loaded.serve(X[:5])
    expected = [each["output_1"] for each in estimator.predict(whole, checkpoint_path=path)][:5]
    assert np.allclose(served, expected, atol=1e-6)
    assert "release.json" in os.listdir(folder)


@pytest.mark.parametrize("kind", ["model", "job"])
def test_an_experiment_takes_the_model_itself(tmp_path: Path, kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("trainerd.programs.estimator.base.hosted_logdir", lambda: str(tmp_path))
    if kind == "model":
        experiment = trainerd.Experiment(model(), endless, whole, train_steps=12, eval_steps=None)
    else:
        experiment = trainerd.Experiment(counting_job(), None, None, train_steps=12, eval_steps=None)
    assert isinstance(experiment.estimator, trainerd.JobEstimator) and experiment.model_dir == str(tmp_path)
    metrics, _ = experiment.train_and_evaluate()
    assert metrics["global_step"] == 12
    if kind == "job":
        assert metrics["total"] == sum(range(1, 13))


def test_the_checkpoints_of_a_job_are_those_of_the_daemon(tmp_path: Path) -> None:
    job_estimator(tmp_path).train(None, max_steps=15)
    session = FunctionSession(counting_job())
    session.restore(tmp_path / "model.ckpt-15")
    assert session.step == 15 and session.evaluate() == {"total": 120.0}
    session.run_until(16)
    assert session.evaluate() == {"total": 136.0}, "the next number is 16"


def test_the_end_of_the_input_ends_the_training(tmp_path: Path) -> None:
    estimator = job_estimator(tmp_path)
    estimator.train(lambda: tf.data.Dataset.range(7), max_steps=100)
    assert str(estimator.latest_checkpoint()).endswith("-7")


def test_an_input_that_gives_nothing_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"made no steps\. Perhaps input is empty"):
        keras_estimator(tmp_path).train(lambda: whole().take(0), max_steps=10)


def test_another_input_begins_at_its_beginning(tmp_path: Path) -> None:
    estimator = job_estimator(tmp_path)
    estimator.train(lambda: tf.data.Dataset.range(1, 100), steps=3)
    estimator.train(lambda: tf.data.Dataset.range(1000, 2000).map(lambda number: number * 2), steps=2)
    assert estimator.evaluate(None)["total"] == 1 + 2 + 3 + 2000 + 2002
    again = job_estimator(tmp_path)
    again.train(lambda: tf.data.Dataset.range(1000, 2000).map(lambda number: number * 2), steps=1)
    assert again.evaluate(None)["total"] == 6 + 2000 + 2002 + 2004, "a new process goes on where it was"


def test_a_loss_that_is_no_number_ends_it(tmp_path: Path) -> None:
    bad = tf.Variable(1.0)
    job = trainerd.Job(lambda: bad.assign(bad * 1e30 - bad * 1e29), state={"bad": bad})
    estimator = trainerd.JobEstimator(job, config=settings(tmp_path, 2))
    with pytest.raises(trainerd.hooks.NanLossDuringTrainingError):
        estimator.train(None, max_steps=50)
    assert estimator.latest_checkpoint() is None, "a state that is no number is not saved"


def _listener_error(estimator: Any) -> None:
    estimator.train(endless, max_steps=1, saving_listeners=[trainerd.hooks.CheckpointSaverListener()])


@pytest.mark.parametrize(
    ("do", "kind", "said"),
    [
        (lambda e: e.train(None), ValueError, "needs an input function"),
        (lambda e: e.evaluate(None), ValueError, "needs an input function"),
        (
            lambda e: e.train(lambda: (X, Y)),
            ValueError,
            "input_fn returned a value of type tuple, where a tf.data.Dataset",
        ),
        (lambda e: e.train(3), TypeError, "`input_fn` must be callable"),
        (lambda e: e.train(endless, steps=1, max_steps=1), ValueError, "Can not provide both steps and max_steps"),
        (lambda e: e.evaluate(whole, hooks=[trainerd.hooks.StopAtStepHook(1)]), ValueError, "are for graphs"),
        (lambda e: e.export_saved_model("x"), ValueError, "Couldn't find trained model"),
        (_listener_error, ValueError, "There should be a CheckpointSaverHook"),
    ],
)
def test_what_is_wrong_is_reported(tmp_path: Path, do: Callable[[Any], Any], kind: type[Exception], said: str) -> None:
    estimator = trainerd.KerasEstimator(model(), config=settings(tmp_path, None))
    with pytest.raises(kind, match=said):
        do(estimator)


def test_what_is_wrong_with_a_model_or_a_job_is_reported(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="KerasEstimator: the model is not compiled"):
        trainerd.KerasEstimator(keras.Sequential([keras.layers.Dense(1)]))
    with pytest.raises(ValueError, match="must be a keras"):
        trainerd.KerasEstimator("a model")
    estimator = job_estimator(tmp_path, evaluate=None)
    with pytest.raises(ValueError, match="the job has no `evaluate`"):
        estimator.evaluate(None)
    with pytest.raises(ValueError, match="measured by its own `evaluate`"):
        job_estimator(tmp_path).evaluate(whole)
    estimator.train(None, max_steps=3)
    with pytest.raises(ValueError, match="the job has no `export`"):
        estimator.export_saved_model(tmp_path / "export")
    keras_estimator(tmp_path / "keras").train(endless, max_steps=2)
    another = trainerd.KerasEstimator(model(units=5), config=settings(tmp_path / "keras"))
    with pytest.raises(DataError, match="its variables are not those of the model"):
        another.evaluate(whole)


def test_the_state_at_a_minimum_is_kept_in_a_loop_over_functions(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The loss falls for 600 steps and rises then; a program's own loop names it."""
    step = tf.Variable(0, dtype=tf.int64)

    def train() -> Any:
        now = tf.cast(step.assign_add(1), tf.float32)
        return {"height": tf.where(now < 600, 3.0 - now / 300, now / 600)}

    minima, boundaries = instances(monkeypatch, Minima), instances(monkeypatch, Boundary)
    session = trainerd.MonitoredTrainingSession(
        checkpoint_dir=str(tmp_path), checkpoint=tf.train.Checkpoint(step=step), save_checkpoint_steps=50, loss="height"
    )
    with session:
        for _ in range(150):
            session.run(train, steps=10)
            minima[-1].next_at = 0.0  # whatever snapshots cost on this machine
            boundaries[-1].flag.raise_for(Request.TICK)
    rundir = RunDirectory(tmp_path)
    kept = [each for each in rundir.steps() if manifest.read(rundir.manifest(each)).minimum is not None]
    assert kept and all(400 <= each <= 1000 for each in kept), "the loss is smoothed over a hundred steps"
