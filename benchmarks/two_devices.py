"""The jobs of two devices: logical ones on the CPU, each with its part of a batch. Under `devices = 2`."""

from __future__ import annotations

from typing import Any

import keras
import numpy as np
import tensorflow as tf

import trainerd

DEVICES = ("CPU:0", "CPU:1")
EPOCH = 10**8
tf.config.set_logical_device_configuration(
    tf.config.list_physical_devices("CPU")[0], [tf.config.LogicalDeviceConfiguration()] * len(DEVICES)
)


def batches() -> tf.data.Dataset:
    """Return batches of eight points and their sums, without an end."""
    x = np.random.default_rng(1).normal(size=(64, 4)).astype("float32")
    examples = tf.data.Dataset.from_tensor_slices((x, x.sum(axis=1, keepdims=True)))
    return examples.batch(8, drop_remainder=True).repeat()


def job() -> trainerd.Job:
    """Return a small network with Adam, whose step gets a part of a batch. Its parts are made in the scope."""
    model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(16, activation="relu"), keras.layers.Dense(1)])
    optimizer = keras.optimizers.Adam(0.001)
    optimizer.build(model.trainable_variables)

    def train_step(part: Any) -> dict[str, tf.Tensor]:
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean((model(part[0], training=True) - part[1]) ** 2)
            share = loss / len(DEVICES)
        gradients = tape.gradient(share, model.trainable_variables)
        optimizer.apply_gradients(zip(gradients, model.trainable_variables, strict=True))
        return {"loss": loss}

    return trainerd.Job(train_step, dataset=batches(), state={"model": model, "optimizer": optimizer})


def compiled() -> keras.Model:
    """Return a compiled model of one layer."""
    model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(1)])
    model.compile("sgd", "mse")
    return model


def keras_job() -> trainerd.KerasJob:
    """Return the model as a KerasJob. An epoch is longer than it is looked at."""
    return trainerd.KerasJob(compiled(), batches(), steps_per_epoch=EPOCH)
