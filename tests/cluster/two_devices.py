"""The same jobs on two devices in each worker. Copied beside each test's config."""

from __future__ import annotations

import keras
import tensorflow as tf
from jobs import DATA, keras_model, shared  # type: ignore[import-not-found]  # it is in the same folder then

import trainerd

__all__ = ["keras_model", "shared", "steady"]

tf.config.set_logical_device_configuration(
    tf.config.list_physical_devices("CPU")[0], [tf.config.LogicalDeviceConfiguration()] * 2
)


def steady() -> trainerd.KerasJob:
    """No random numbers, and the statistics of all devices: it is the same on any number of them, but for rounding."""
    keras.utils.set_random_seed(1)
    norm = keras.layers.BatchNormalization(synchronized=True)
    model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(8, "relu"), norm, keras.layers.Dense(1)])
    model.compile(keras.optimizers.SGD(0.05), "mse", metrics=["mae"])
    return trainerd.KerasJob(model, (DATA[:, :4], DATA[:, 4:]), batch_size=12, steps_per_epoch=7, epochs=4)
