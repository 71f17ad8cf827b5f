"""One job of each kind, paused long ago in the middle of an epoch; see make.py.

Their numbers are whole or halved, so that every machine computes the same bytes.
"""

from __future__ import annotations

from typing import Any

import tensorflow as tf

import trainerd

tf1 = tf.compat.v1


def _data() -> tf.data.Dataset:
    return tf.data.Dataset.range(101).shuffle(10, seed=1).repeat()


class _Memory:
    """What steps change: sums of the data and of random numbers."""

    def __init__(self) -> None:
        self.total = tf.Variable(tf.zeros([3], tf.int64), name="total")
        self.random = tf.random.Generator.from_seed(5)

    def add(self, batch: tf.Tensor) -> dict[str, tf.Tensor]:
        drawn = self.random.uniform([3], maxval=1000, dtype=tf.int64)
        return {"total": tf.reduce_sum(self.total.assign(self.total // 2 + batch * drawn))}


def function() -> trainerd.Job:
    """A function with a dataset."""
    memory = _Memory()
    return trainerd.Job(memory.add, _data(), {"total": memory.total, "random": memory.random})


def linear_model() -> Any:
    """A compiled Keras model whose gradients are exact: a momentum and a dropout of a half, a loss that is linear."""
    import keras

    keras.utils.set_random_seed(3)
    model = keras.Sequential([keras.Input([3]), keras.layers.Dropout(0.5), keras.layers.Dense(1, name="dense")])
    model.compile(keras.optimizers.SGD(1.0, momentum=0.5), loss=lambda y, predicted: y * predicted)
    model.get_layer("dense").kernel.assign(tf.zeros([3, 1]))
    return model


def linear_data() -> tf.data.Dataset:
    """Examples in batches of four, 2000 an epoch."""
    x = tf.reshape(tf.range(6000, dtype=tf.float32) % 5.0, [2000, 3])
    y = tf.reshape(1.0 - 2.0 * (tf.range(2000, dtype=tf.float32) % 2.0), [2000, 1])
    return tf.data.Dataset.from_tensor_slices((x, y)).shuffle(10, seed=1).batch(4)


def keras_model() -> trainerd.KerasJob:
    """A Keras model, and a callback that remembers."""
    import keras

    callbacks = [keras.callbacks.ReduceLROnPlateau("loss", patience=10**9)]
    return trainerd.KerasJob(linear_model(), linear_data(), callbacks=callbacks)


def graph() -> trainerd.GraphJob:
    """A TensorFlow 1 graph with an input and a slot of its optimizer."""
    found = tf1.Graph()
    with found.as_default():
        batch = tf1.data.make_one_shot_iterator(_data()).get_next()
        w = tf1.get_variable("w", initializer=tf.constant(0.0, tf.float64))
        sign = tf.cast(1 - 2 * (batch % 2), tf.float64)
        step = tf1.train.get_or_create_global_step()
        train_op = tf1.train.MomentumOptimizer(1.0, 0.5).minimize(w * sign * tf.cast(batch, tf.float64), step)
        value = w.read_value()
    return trainerd.GraphJob(found, train_op, metrics={"w": value})


def graph_loop(supervisor: Any) -> None:
    """A loop of its own over that graph."""
    job = graph()
    with job.graph.as_default(), supervisor.managed_session() as session:
        while not supervisor.should_stop():
            session.run(job.train_op)


def function_loop(supervisor: Any) -> None:
    """A loop of its own over a function."""
    memory, batches = _Memory(), iter(_data())
    supervisor.configure(
        checkpoint=tf.train.Checkpoint(total=memory.total, random=memory.random, batches=batches),
    )
    with supervisor.managed_session() as session:
        while not supervisor.should_stop():
            session.run(lambda: memory.add(next(batches)), steps=1000)
