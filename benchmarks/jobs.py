"""The jobs that are timed. Each is what its peers run too: the same variables, the same step, the same data."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from typing import Any

import keras
import numpy as np
import tensorflow as tf

import trainerd
from benchmarks.loss import LEARNING_RATE, TARGET
from trainerd.data import shuffled_indices, worker_batches
from trainerd.examples import digits

SIDE = 128
SECONDS = 0.05
EPOCH = 10**8
INVERSIONS = "TRAINERD_BENCH_INVERSIONS"
VARIABLES = "TRAINERD_BENCH_VARIABLES"


def tiny() -> trainerd.Job:
    """One parameter on its way to 3 by gradient descent. float64, so that the loss tells the step; see loss.py."""
    w = tf.Variable(0.0, dtype=tf.float64, name="w")

    def train_step() -> dict[str, tf.Tensor]:
        with tf.GradientTape() as tape:
            loss = tf.square(w - TARGET)
        w.assign_sub(LEARNING_RATE * tape.gradient(loss, w))
        return {"loss": loss}

    return trainerd.Job(train_step, state={"w": w})


def many_variables() -> trainerd.Job:
    """As many small variables as the environment says; a step writes to each."""
    variables = [tf.Variable([float(number)] * 4) for number in range(int(os.environ[VARIABLES]))]

    def train_step() -> dict[str, tf.Tensor]:
        for variable in variables:
            variable.assign_sub(LEARNING_RATE * variable)
        return {"loss": variables[0][0]}

    holder = tf.Module()
    holder.variables_of_it = variables
    return trainerd.Job(train_step, state={"holder": holder})


def tiny_keras_parts() -> tuple[keras.Model, tf.data.Dataset]:
    """A Keras model of one parameter, and its data: the same example for ever."""
    model = keras.Sequential([keras.layers.Input((1,)), keras.layers.Dense(1, use_bias=False)])
    one = tf.ones((1, 1))
    return model, tf.data.Dataset.from_tensors((one, TARGET * one)).repeat()


def tiny_keras() -> trainerd.Job:
    """What `compile("sgd", "mse")` and `fit` train, as a step function."""
    model, dataset = tiny_keras_parts()
    optimizer = keras.optimizers.SGD(LEARNING_RATE)
    optimizer.build(model.trainable_variables)
    loss_of = keras.losses.MeanSquaredError()

    def train_step(batch: tuple[tf.Tensor, tf.Tensor]) -> dict[str, tf.Tensor]:
        with tf.GradientTape() as tape:
            loss = loss_of(batch[1], model(batch[0], training=True))
        gradients = tape.gradient(loss, model.trainable_variables)
        optimizer.apply(gradients, model.trainable_variables)
        return {"loss": loss}

    return trainerd.Job(train_step, dataset=dataset, state={"model": model, "optimizer": optimizer})


def digits_keras_parts() -> tuple[keras.Model, tf.data.Dataset]:
    """The model of the digits job and its data, without the shifts that its own step makes."""
    keras.utils.set_random_seed(1)
    dataset = tf.data.Dataset.from_tensor_slices(digits.load()).shuffle(2000, seed=1).repeat().batch(digits.BATCH)
    return digits.build_model(), dataset


KERAS = {"tiny": tiny_keras_parts, "digits": digits_keras_parts}


def compiled(name: str, **options: Any) -> tuple[keras.Model, tf.data.Dataset]:
    """One of these models, compiled as both sides train it, and its data."""
    model, dataset = KERAS[name]()
    if name == "tiny":
        model.compile(keras.optimizers.SGD(LEARNING_RATE), "mse", **options)
    else:
        loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
        model.compile(keras.optimizers.Adam(2e-3), loss, metrics=["accuracy"], **options)
    return model, dataset


def tiny_keras_job() -> trainerd.KerasJob:
    """The tiny Keras model, as a KerasJob. An epoch is longer than it is looked at."""
    return trainerd.KerasJob(*compiled("tiny"), steps_per_epoch=EPOCH)


def digits_keras_job() -> trainerd.KerasJob:
    """The model of digits, as a KerasJob."""
    return trainerd.KerasJob(*compiled("digits"), steps_per_epoch=EPOCH)


def fifty_ms() -> trainerd.Job:
    """A step of about 50 ms: a fixed number of inversions of one matrix.

    The work is fixed, not the time: a step that watched the clock would hide whatever the daemon's threads take
    from it. An inversion runs on one core, and so is not at the mercy of whoever else wants the last one. How many
    make 50 ms here is measured once (`calibrated`) and handed to both sides.
    """
    return _inversions(int(os.environ[INVERSIONS]))


def calibrated() -> int:
    """How many inversions take 50 ms on this machine now."""
    count = 50
    for _ in range(3):
        count = max(1, round(count * SECONDS / _fastest(tf.function(_inversions(count).train_step))))
    return count


def _inversions(count: int) -> trainerd.Job:
    # The inverse of an orthogonal matrix is another one: the numbers stay where arithmetic takes its usual time.
    matrix = np.linalg.qr(np.random.default_rng(1).normal(size=(SIDE, SIDE)))[0]
    x = tf.Variable(matrix, dtype=tf.float32, name="x")

    def train_step() -> dict[str, tf.Tensor]:
        value = x.read_value()
        for _ in range(count):
            value = tf.linalg.inv(value)
        x.assign(value)
        return {"loss": value[0, 0]}

    return trainerd.Job(train_step, state={"x": x})


def _fastest(step: Callable[[], object], rounds: int = 8) -> float:
    step()
    times = []
    for _ in range(rounds):
        begun = time.perf_counter()
        step()
        times.append(time.perf_counter() - begun)
    return min(times)


def two_workers() -> trainerd.Job:
    """The tiny Keras model of peers/workers.py."""
    keras.utils.set_random_seed(1)
    layers = [keras.Input((8,)), keras.layers.Dense(16, activation="relu"), keras.layers.Dense(1)]
    model = keras.Sequential(layers)
    optimizer = keras.optimizers.Adam(0.001)
    optimizer.build(model.trainable_variables)
    size = trainerd.cluster().size
    points = tf.random.stateless_normal((640, 9), [1, 2])
    batches = worker_batches(shuffled_indices(640, seed=1, batch_size=64))

    def train_step(chosen: Any) -> dict[str, Any]:
        batch = tf.gather(points, chosen)
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean((model(batch[:, :8], training=True) - batch[:, 8:]) ** 2)
            part = loss / size
        gradients = tape.gradient(part, model.trainable_variables)
        optimizer.apply_gradients(zip(gradients, model.trainable_variables, strict=True))
        return {"loss": loss}

    return trainerd.Job(train_step, dataset=batches, state={"model": model, "optimizer": optimizer})
