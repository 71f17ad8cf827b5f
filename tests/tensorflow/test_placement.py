"""Where ops run is TensorFlow's: soft placement stays as the user's module has set it."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

import keras
import numpy as np
import pytest
import tensorflow as tf

import trainerd
from trainerd.config.parse import parse
from trainerd.errors import JobError
from trainerd.loop.flag import Flag
from trainerd.open_job import open_session

X = np.ones((8, 4), "float32")


class OnGPU(keras.layers.Layer):  # type: ignore[misc]
    """A layer on a GPU, which this machine may not have."""

    def call(self, x: tf.Tensor) -> tf.Tensor:
        with tf.device("/GPU:99"):
            return tf.matmul(x, tf.ones([4, 4]))


def model() -> keras.Model:
    made = keras.Sequential([keras.Input((4,)), OnGPU(), keras.layers.Dense(1)])
    made.compile("sgd", "mse")
    return made


def keras_job() -> trainerd.KerasJob:
    return trainerd.KerasJob(model(), data=(X, X[:, :1]), batch_size=4, epochs=1)


def job() -> trainerd.Job:
    p, layer = tf.Variable(0.0), OnGPU()
    step = lambda x: {"p": p.assign_add(tf.reduce_sum(layer(x)))}  # noqa: E731
    return trainerd.Job(step, dataset=tf.data.Dataset.from_tensor_slices(X).batch(4).repeat(), state={"p": p})


def train(kind: str, logdir: Path) -> None:
    """Train two steps: by a call of `fit`, or by what trainerd makes of the entry of a config."""
    if kind == "fit":
        trainerd.keras.fit(model(), X, X[:, :1], batch_size=4, logdir=logdir, verbose=0)
        return
    with contextlib.closing(open_session(parse({"entry": f"{__name__}:{kind}", "logdir": str(logdir)}))) as session:
        session.bind(Flag())
        assert session.run_until(2).first == 1 and session.step == 2


@pytest.fixture
def soft_placement() -> Iterator[None]:
    """Put back the setting."""
    before = tf.config.get_soft_device_placement()
    yield
    tf.config.set_soft_device_placement(before)


@pytest.mark.usefixtures("soft_placement")
@pytest.mark.parametrize("kind", ["job", "keras_job", "fit"])
def test_soft_placement_is_kept(tmp_path: Path, kind: str) -> None:
    tf.config.set_soft_device_placement(True)
    train(kind, tmp_path / "soft")
    tf.config.set_soft_device_placement(False)
    with pytest.raises(JobError, match="the job failed in step 1") as failed:
        train(kind, tmp_path / "strict")
    assert "explicitly assigned to /device:GPU:99 but available devices are" in failed.value.details
    assert not tf.config.get_soft_device_placement()
