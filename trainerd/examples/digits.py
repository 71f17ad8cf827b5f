"""A small convolutional network that learns to read handwritten digits. See digits.md for the data."""

from __future__ import annotations

from pathlib import Path

import keras
import numpy as np
import tensorflow as tf

import trainerd

HELD_OUT = 360
BATCH = 32
RESTART = 1500  # steps between two restarts of the learning rate


def load() -> tuple[np.ndarray, np.ndarray]:
    """Return the pixels in 0 to 1, float32, shape [1797, 8, 8, 1], and the digits, int64, shape [1797]."""
    table = np.loadtxt(Path(__file__).with_name("digits.csv.gz"), delimiter=",", dtype=np.float32)
    return table[:, :-1].reshape(-1, 8, 8, 1) / 16.0, table[:, -1].astype(np.int64)


def build_model() -> keras.Model:
    """Three convolutions and a dense layer; 19,000 parameters."""
    return keras.Sequential(
        [
            keras.layers.Input((8, 8, 1)),
            keras.layers.Conv2D(16, 3, padding="same", activation="relu", name="first"),
            keras.layers.Conv2D(32, 3, padding="same", activation="relu", name="second"),
            keras.layers.MaxPooling2D(),
            keras.layers.Dropout(0.25, seed=1),
            keras.layers.Conv2D(32, 3, padding="same", activation="relu", name="third"),
            keras.layers.Flatten(),
            keras.layers.Dropout(0.5, seed=2),
            keras.layers.Dense(10, name="digit"),
        ]
    )


def job() -> trainerd.Job:
    """Train on 1,437 digits; hold out the last 360, which other people wrote."""
    keras.utils.set_random_seed(1)
    images, digits = load()
    train, held_out = (images[:-HELD_OUT], digits[:-HELD_OUT]), (images[-HELD_OUT:], digits[-HELD_OUT:])
    dataset = tf.data.Dataset.from_tensor_slices(train).shuffle(2000, seed=1).repeat().batch(BATCH)

    model = build_model()
    # Warm restarts (Loshchilov and Hutter, 2017): the loss has a minimum each time before the steps are large again.
    rate = keras.optimizers.schedules.CosineDecayRestarts(8e-3, RESTART, t_mul=1.0, alpha=0.01)
    optimizer = keras.optimizers.Adam(rate)
    optimizer.build(model.trainable_variables)
    random = tf.random.Generator.from_seed(1)
    loss_of = keras.losses.SparseCategoricalCrossentropy(from_logits=True)

    def train_step(batch: tuple[tf.Tensor, tf.Tensor]) -> dict[str, tf.Tensor]:
        x, y = _shift(batch[0], random), batch[1]
        with tf.GradientTape() as tape:
            logits = model(x, training=True)
            loss = loss_of(y, logits)
        gradients = tape.gradient(loss, model.trainable_variables)
        optimizer.apply(gradients, model.trainable_variables)
        return {"loss": loss, "accuracy": _accuracy(y, logits)}

    @tf.function
    def measure() -> dict[str, tf.Tensor]:
        x, y = held_out
        logits = model(x, training=False)
        return {"loss": loss_of(y, logits), "accuracy": _accuracy(y, logits)}

    return trainerd.Job(
        train_step,
        dataset=dataset,
        state={"model": model, "optimizer": optimizer, "random": random},
        evaluate=lambda: {name: float(value) for name, value in measure().items()},
        export=lambda directory: model.export(directory, verbose=False),
        predict=lambda: {"id": range(HELD_OUT), "digit": np.argmax(model.predict(held_out[0], verbose=0), axis=1)},
    )


def _shift(images: tf.Tensor, random: tf.random.Generator) -> tf.Tensor:
    """Return a batch moved by up to one pixel in each direction: people do not write all in one place."""
    top, left = tf.unstack(random.uniform([2], 0, 3, tf.int32))
    padded = tf.pad(images, [[0, 0], [1, 1], [1, 1], [0, 0]])
    return tf.ensure_shape(tf.slice(padded, [0, top, left, 0], [-1, 8, 8, -1]), [None, 8, 8, 1])


def _accuracy(digits: tf.Tensor, logits: tf.Tensor) -> tf.Tensor:
    """Return the part of the digits that were read right."""
    return tf.reduce_mean(tf.cast(tf.argmax(logits, axis=1) == digits, tf.float32))
