"""Keras models that train in a moment, and ways to train them."""

from __future__ import annotations

import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import keras
import numpy as np
import tensorflow as tf

import trainerd
from tests.waiting import send_signal
from trainerd.loop.flag import Flag
from trainerd.sessions.keras.job_session import KerasJobSession

RANDOM = np.random.default_rng(1)
X = RANDOM.normal(size=(60, 4)).astype(np.float32)
Y = (X @ RANDOM.normal(size=(4, 1)) + 0.1 * RANDOM.normal(size=(60, 1))).astype(np.float32)


def a_model(optimizer: Any = None, **options: Any) -> keras.Model:
    """It has what a resume must not lose: a random state, an optimizer with slots, and two layers; and not more."""
    keras.utils.set_random_seed(7)
    hidden, last = keras.layers.Dense(8, "relu", use_bias=False), keras.layers.Dense(1, use_bias=False)
    model = keras.Sequential([hidden, keras.layers.Dropout(0.3), last])
    model.compile(optimizer or keras.optimizers.SGD(0.01, momentum=0.9), "mse", metrics=["mae"], **options)
    return model


def with_adam() -> keras.Model:
    """The same with an optimizer whose step depends on how many there were."""
    return a_model(keras.optimizers.Adam(0.01))


def a_line() -> keras.Model:
    """One layer, for a test that would be the same with any model: it is traced sooner than `a_model`."""
    keras.utils.set_random_seed(7)
    model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(1, use_bias=False)])
    model.compile("sgd", "mse")
    return model


def reshuffled() -> tf.data.Dataset:
    """Six batches of ten, in another order each epoch."""
    return tf.data.Dataset.from_tensor_slices((X, Y)).shuffle(60, seed=3).batch(10)


def shuffled() -> tf.data.Dataset:
    """The same in one order: where `fit` knows how many there are, it shuffles twice between two epochs."""
    return tf.data.Dataset.from_tensor_slices((X, Y)).shuffle(60, seed=3, reshuffle_each_iteration=False).batch(10)


def unknown() -> tf.data.Dataset:
    """The same, of a length that nobody knows beforehand."""
    return shuffled().filter(lambda x, y: True)


def endless() -> tf.data.Dataset:
    return reshuffled().repeat()


class Marks(keras.callbacks.Callback):  # type: ignore[misc]
    """Notes what it is called for."""

    def __init__(self, batches: bool = False) -> None:
        super().__init__()
        self.seen: list[Any] = []
        self.count = 0
        if batches:
            self.on_train_batch_begin = lambda batch, logs=None: self.seen.append(f"batch {batch}")
            self.on_train_batch_end = lambda batch, logs=None: self.seen.append(f"end {batch} {sorted(logs)}")

    def on_train_begin(self, logs: Any = None) -> None:
        self.seen.append("train")

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        self.seen.append(f"epoch {epoch}")
        self.count += 1

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        self.seen.append(f"epoch end {epoch} {sorted(logs)}")

    def on_train_end(self, logs: Any = None) -> None:
        self.seen.append("train end")

    def on_test_begin(self, logs: Any = None) -> None:
        self.seen.append("test")


def opened(job: trainerd.KerasJob) -> KerasJobSession:
    session = KerasJobSession(job)
    session.bind(Flag())
    return session


def train(session: KerasJobSession, limit: int = 2**62) -> str:
    """What the loop does. Why it ended."""
    while session.step < limit:
        steps = session.run_until(limit)
        if steps.then is not None:
            steps.then()
        if steps.over:
            session.end(finished=True)
            return steps.over
    return ""


def in_parts(make: Callable[[], trainerd.KerasJob], stops: list[int], folder: Path) -> KerasJobSession:
    """Train a job, saved and restored into a new one at each of these steps."""
    session = opened(make())
    for stop in stops:
        train(session, stop)
        prefix = folder / f"model.ckpt-{stop}"
        session.snapshot().write(prefix, lambda size: None)
        session.end(finished=False)
        session = opened(make())
        session.restore(prefix)
    train(session)
    return session


def values(model: keras.Model) -> list[Any]:
    """Weights, and what the optimizer keeps; not its count of what it did."""
    return [variable.numpy() for variable in [*model.weights, *model.optimizer.variables]]


def assert_same(one: keras.Model, other: keras.Model) -> None:
    for mine, theirs in zip(values(one), values(other), strict=True):
        assert np.array_equal(mine, theirs)


def terminate() -> None:
    send_signal(signal.SIGTERM)


class Heads(keras.Model):  # type: ignore[misc]
    """Heads in a dict, in an order that is not always the same, and perhaps a layer before them."""

    def __init__(self, names: str, more: bool = False) -> None:
        super().__init__()
        if more:
            self.more = keras.layers.ReLU()
        self.heads = {name: keras.layers.Dense(1) for name in names}
        for head in self.heads.values():
            head.build((None, 4))
