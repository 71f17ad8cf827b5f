"""TensorFlow 2 programs that tests train."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import keras
import tensorflow as tf

import trainerd


@dataclass
class Program:
    """A model with dropout that learns a line, from data that is shuffled."""

    model: Any
    optimizer: Any
    batches: Any
    called: list[int] = field(default_factory=list)

    @property
    def checkpoint(self) -> tf.train.Checkpoint:
        """What there is to save."""
        return tf.train.Checkpoint(model=self.model, optimizer=self.optimizer, batches=self.batches)

    def step(self) -> dict[str, tf.Tensor]:
        """One step."""
        batch = next(self.batches)
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(tf.square(self.model(batch, training=True) - 3.0 * batch))
        gradients = tape.gradient(loss, self.model.trainable_variables)
        self.optimizer.apply(gradients, self.model.trainable_variables)
        return {"loss": loss, "batch": tf.reduce_sum(batch)}

    def supervised(self, logdir: Path | None, **options: Any) -> Any:
        """A Supervisor for it."""
        return trainerd.Supervisor(
            checkpoint=self.checkpoint, logdir=None if logdir is None else str(logdir), **options
        )


def program(*, repeats: bool = True) -> Program:
    """A new one; two of them are the same to the bit."""
    keras.utils.set_random_seed(1)
    data = tf.data.Dataset.range(60).map(lambda n: tf.reshape(tf.cast(n, tf.float32) / 60.0, [1]))
    data = data.shuffle(60, seed=2).batch(4)
    model = keras.Sequential([keras.layers.Dense(8, "relu"), keras.layers.Dropout(0.3), keras.layers.Dense(1)])
    return Program(model, keras.optimizers.Adam(0.01), iter(data.repeat() if repeats else data))


@dataclass
class Count:
    """A variable that each step makes larger by 2."""

    p: tf.Variable = field(default_factory=lambda: tf.Variable(0.0, name="p"))

    def __post_init__(self) -> None:
        self.step = tf.function(lambda: {"p": self.p.assign_add(2.0), "loss": 1.0 / self.p})

    def supervised(self, logdir: Path | None, **options: Any) -> Any:
        """A Supervisor for it."""
        folder = None if logdir is None else str(logdir)
        return trainerd.Supervisor(checkpoint=tf.train.Checkpoint(p=self.p), logdir=folder, **options)
