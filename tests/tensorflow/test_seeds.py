"""The programs of the notebooks that the idea comes from, with `trainerd.` in the place of `tf.train.`."""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import tensorflow as tf1_or_2

import trainerd
from trainerd.checkpoints import catalogue, manifest
from trainerd.rundir.paths import RunDirectory

tf = tf1_or_2.compat.v1


@pytest.fixture(params=["resource variables", "reference variables"])
def _kind(request: pytest.FixtureRequest) -> Iterator[None]:
    """As without `tf.disable_v2_behavior()`, and with it."""
    before = tf.resource_variables_enabled()
    (tf.enable_resource_variables if request.param.startswith("res") else tf.disable_resource_variables)()
    yield
    (tf.enable_resource_variables if before else tf.disable_resource_variables)()


@pytest.fixture
def said(caplog: pytest.LogCaptureFixture) -> Iterator[pytest.LogCaptureFixture]:
    """What TensorFlow's logger says."""
    logger = tf.get_logger()
    logger.propagate = True
    with caplog.at_level(logging.INFO, logger="tensorflow"):
        yield caplog
    logger.propagate = False


def reasons(folder: Path) -> list[tuple[int, str]]:
    rundir = RunDirectory(folder)
    return [(step, manifest.read(rundir.manifest(step)).reason) for step in catalogue.resume_order(rundir)]


def pausable_training(training_dir: str, touch_at: int) -> list[int]:
    """The training session of the first notebook; somebody touches the pause file. The steps that were printed."""
    pause_file = training_dir + "pause"
    graph = tf.Graph()
    with graph.as_default():
        p = tf.get_variable(name="tf_p", shape=[1], initializer=tf.constant_initializer(0), dtype=tf.float32)
        global_step = tf.Variable(0, name="global_step", trainable=False)
        fake_loss_gradient = -2 * tf.ones([1])
        grads_and_vars = [(fake_loss_gradient, p)]
        train_op = tf.train.GradientDescentOptimizer(learning_rate=1.0).apply_gradients(
            grads_and_vars, global_step=global_step
        )
    seen = []
    with graph.as_default():
        sv = trainerd.Supervisor(logdir=training_dir)
        with sv.managed_session() as s:
            for i in range(5000):
                if tf.gfile.Exists(pause_file):
                    tf.gfile.Remove(pause_file)
                    sv.saver.save(s, training_dir + "model.ckpt", global_step=global_step)
                    break
                _, y, gstep = s.run([train_op, p, global_step])
                assert y.shape == (1,)
                if sv.should_stop():
                    break
                if i % 100 == 0:
                    seen.append(int(gstep))
                if i == touch_at:
                    Path(pause_file).touch()
    return seen


@pytest.mark.usefixtures("_kind")
def test_the_pausable_training_picks_up_where_it_left_off(tmp_path: Path) -> None:
    folder = f"{tmp_path}/"
    pausable_training(folder, touch_at=704)
    assert reasons(tmp_path)[0] == (705, "saver")
    assert not list(tmp_path.glob("pause"))
    seen = pausable_training(folder, touch_at=250)
    assert seen[0] in (705, 706)
    assert reasons(tmp_path)[0] == (705 + 251, "saver")
    assert tf1_or_2.train.load_checkpoint(str(tmp_path)).get_tensor("tf_p") == 2.0 * (705 + 251)


@pytest.mark.usefixtures("_kind")
def test_the_notebook_of_monitored_sessions(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, said: pytest.LogCaptureFixture
) -> None:
    monkeypatch.chdir(tmp_path)
    with tf.Graph().as_default():
        v = tf.constant(1)
        message = "Global step should be created to use StepCounterHook."
        with (
            pytest.raises(RuntimeError, match=message),
            trainerd.MonitoredTrainingSession(checkpoint_dir="log") as sess,
        ):
            sess.run(v)

        tf.Variable(3, trainable=False, name="global_step")
        with trainerd.MonitoredTrainingSession(
            checkpoint_dir="log", hooks=[tf.train.StopAtStepHook(last_step=10)], save_checkpoint_secs=2
        ) as sess:
            pass
        assert "Create CheckpointSaverHook." in said.text and "Saving checkpoints for 3 into" in said.text
        assert reasons(tmp_path / "log") == [(3, "start")]
        for name in ("checkpoint", "model.ckpt-3.index", "model.ckpt-3.meta", "model.ckpt-3.data-00000-of-00001"):
            assert (tmp_path / "log" / name).exists()

        said.clear()
        v = tf.constant(1, name="v")
        hooks: list[Any] = [tf.train.LoggingTensorHook([v], every_n_iter=1)]
        with trainerd.MonitoredTrainingSession(checkpoint_dir="log", hooks=hooks) as sess:
            for _ in range(10):
                sess.run(v)
        assert re.search(r"Restoring parameters from .*log/model.ckpt-3", said.text)
        lines = re.findall(r"Tensor\(\"v:0\", shape=\(\), dtype=int32\) = 1( \(\d\.\d{3} sec\))?", said.text)
        assert len(lines) == 10 and lines[0] == "" and all(lines[1:])
