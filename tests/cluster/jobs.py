"""Jobs for several workers. Copied beside each test's config."""

from __future__ import annotations

import dataclasses
import os
import time
from pathlib import Path
from typing import Any

import keras
import numpy as np
import tensorflow as tf

import trainerd
import trainerd.data

HERE = Path(__file__).parent
DATA = np.random.default_rng(1).normal(size=(60, 5)).astype(np.float32)
tf.config.threading.set_inter_op_parallelism_threads(2)  # it raises an error once TensorFlow is used


def net() -> tuple[Any, Any]:
    keras.utils.set_random_seed(1)
    layers = [keras.Input((4,)), keras.layers.Dense(8, activation="relu"), keras.layers.Dropout(0.2)]
    model = keras.Sequential([*layers, keras.layers.Dense(1)])
    optimizer = keras.optimizers.Adam(0.01)
    optimizer.build(model.trainable_variables)
    return model, optimizer


def job_on(dataset: Any, **more: Any) -> trainerd.Job:
    model, optimizer = net()
    size = trainerd.strategy().num_replicas_in_sync

    def train_step(index: Any) -> Any:
        rows = tf.gather(tf.constant(DATA), index)
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean((model(rows[:, :4], training=True) - rows[:, 4:]) ** 2)
            part = loss / size
        gradients = tape.gradient(part, model.trainable_variables)
        optimizer.apply_gradients(zip(gradients, model.trainable_variables, strict=True))
        return {"loss": loss, "read": tf.reduce_sum(tf.cast(index, tf.float32)) * size}

    return trainerd.Job(train_step, dataset=dataset, state={"model": model, "optimizer": optimizer}, **more)


def shared() -> trainerd.Job:
    """Each worker takes its part of one batch."""
    return job_on(trainerd.data.worker_batches(trainerd.data.shuffled_indices(60, seed=3, batch_size=12)))


def measured() -> trainerd.Job:
    """It is evaluated with a metric of Keras, and can be exported."""
    made = shared()
    model = made.state["model"]
    error = keras.metrics.MeanSquaredError()

    def evaluate() -> dict[str, float]:
        error.reset_state()
        error.update_state(DATA[:, 4:], model(DATA[:, :4]))
        return {"error": float(error.result())}

    return dataclasses.replace(made, evaluate=evaluate, export=lambda folder: model.export(str(folder), verbose=False))


def shuffled() -> trainerd.Job:
    """The same over a shuffle, whose seed is the config's."""
    indices = tf.data.Dataset.range(60).shuffle(60).repeat().batch(12, drop_remainder=True)
    return job_on(trainerd.data.worker_batches(indices))


unseeded = shuffled


def ahead() -> trainerd.Job:
    """Each worker takes its part of one batch, and fetches ahead."""
    indices = trainerd.data.shuffled_indices(60, seed=3, batch_size=12)
    parts = trainerd.data.worker_batches(indices).map(lambda index: index, num_parallel_calls=2).prefetch(3)
    return job_on(parts)


def own() -> trainerd.Job:
    """Each worker has data of its own, and shuffles them."""
    place = trainerd.cluster()
    mine = tf.data.Dataset.range(60).shard(place.size, place.rank)
    return job_on(mine.shuffle(30, seed=place.rank + 1).repeat().batch(6, drop_remainder=True))


def keras_model() -> trainerd.KerasJob:
    """With metrics, averages of batches, a validation, and a callback that changes the learning rate."""
    keras.utils.set_random_seed(1)
    layers: list[Any] = [keras.Input((4,)), keras.layers.Dense(8), keras.layers.BatchNormalization()]
    layers += [keras.layers.Dropout(0.2), keras.layers.Dense(3, activation="softmax")]
    model = keras.Sequential(layers)
    model.compile("adam", "sparse_categorical_crossentropy", metrics=["accuracy"])
    x, y = DATA[:, :4], (DATA[:, 4] > 0).astype("int64")
    falls = keras.callbacks.ReduceLROnPlateau(monitor="loss", factor=0.7, patience=1, min_delta=0.05)
    return trainerd.KerasJob(
        model, (x, y), batch_size=12, steps_per_epoch=17, epochs=1000, validation_data=(x, y), callbacks=[falls]
    )


def keras_files() -> trainerd.KerasJob:
    """Callbacks that write files, one of them at every third batch, and one that stops the training."""
    model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(1)])
    model.compile("sgd", "mse", metrics=["mae"])
    callbacks = [
        keras.callbacks.ModelCheckpoint(str(HERE / "own.keras"), save_freq=3),
        keras.callbacks.CSVLogger(str(HERE / "epochs.csv")),
        keras.callbacks.EarlyStopping(monitor="loss", patience=1, min_delta=100.0),
    ]
    return trainerd.KerasJob(model, (DATA[:, :4], DATA[:, 4]), batch_size=12, epochs=10, callbacks=callbacks)


def fails_on_one() -> trainerd.Job:
    """A step of worker 1 fails."""
    weight = tf.Variable(0.0, aggregation=tf.VariableAggregation.MEAN)
    step = tf.data.Dataset.range(2**50)

    def train_step(number: Any) -> Any:
        if trainerd.cluster().rank == 1:
            tf.debugging.assert_less(number, tf.constant(30, tf.int64), "my own check")
        return {"weight": weight.assign_add(1.0)}

    return trainerd.Job(train_step, dataset=step, state={"weight": weight})


def nan_on_one() -> trainerd.Job:
    """The loss of worker 1 is NaN at step 30."""
    weight = tf.Variable(0.0, aggregation=tf.VariableAggregation.MEAN)

    def train_step(number: Any) -> Any:
        bad = tf.logical_and(number == 29, tf.constant(trainerd.cluster().rank == 1))
        return {"loss": tf.where(bad, np.nan, weight.assign_add(1.0))}

    return trainerd.Job(train_step, dataset=tf.data.Dataset.range(2**50), state={"weight": weight})


def ends() -> trainerd.Job:
    """A dataset with an end."""
    return job_on(tf.data.Dataset.range(60).batch(6))


def stuck_on_one() -> trainerd.Job:
    """The input of worker 1 never gives its 30th batch; the process lives."""

    def read(index: Any, number: Any) -> Any:
        if trainerd.cluster().rank == 1 and int(number) == 29:
            while True:
                time.sleep(1)
        return index

    indices = trainerd.data.worker_batches(trainerd.data.shuffled_indices(60, seed=3, batch_size=12))
    numbered = tf.data.Dataset.zip(indices, tf.data.Dataset.range(2**50))
    slow = numbered.map(lambda index, number: tf.ensure_shape(tf.py_function(read, [index, number], tf.int64), [6]))
    return job_on(slow)


def dies_while_it_is_built() -> trainerd.Job:
    """Worker 1 dies."""
    if trainerd.cluster().rank == 1:
        os._exit(9)
    return shared()


def differs() -> trainerd.Job:
    """Each worker has another model."""
    weight = tf.Variable(tf.zeros([trainerd.cluster().rank + 1]), aggregation=tf.VariableAggregation.MEAN)
    return trainerd.Job(lambda: {"weight": tf.reduce_sum(weight)}, state={"weight": weight})


def assigns() -> trainerd.Job:
    """Assigns in a way that says nothing of how the workers come together."""
    weight = tf.Variable(0.0, name="weight")
    own = float(trainerd.cluster().rank)
    return trainerd.Job(lambda: {"weight": weight.assign_add(own)}, state={"weight": weight})


def counted() -> trainerd.GraphJob:
    """A graph of TensorFlow 1."""
    with tf.Graph().as_default() as graph:
        step = tf.compat.v1.train.get_or_create_global_step()
        return trainerd.GraphJob(graph, tf.compat.v1.assign_add(step, 1))


def heavy() -> trainerd.Job:
    """A state that takes a while to write."""
    made = shared()
    weights = tf.Variable(tf.ones([24, 1024, 1024]), trainable=False, aggregation=tf.VariableAggregation.MEAN)
    return dataclasses.replace(made, state=dict(made.state, weights=weights))


def uneven() -> trainerd.Job:
    """Worker 1 takes 1.5 s to be built, which the file `builds` tells of, and 20 ms longer for each step."""
    made = shared()
    if trainerd.cluster().rank == 0:
        return made
    (HERE / "builds").touch()
    time.sleep(1.5)

    def train_step(index: Any) -> Any:
        tf.py_function(lambda: time.sleep(0.02), [], [])
        return made.train_step(index)

    return dataclasses.replace(made, train_step=train_step)
