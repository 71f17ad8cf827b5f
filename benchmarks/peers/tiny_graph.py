"""The tiny job as a TF1 graph: the same parameter, loss and learning rate."""

from __future__ import annotations

from typing import Any

import tensorflow.compat.v1 as tf1

from benchmarks.loss import LEARNING_RATE, TARGET


def build() -> Any:
    """Make the default graph. The train op, which counts the global step too."""
    tf1.disable_v2_behavior()
    step = tf1.train.get_or_create_global_step()
    w = tf1.get_variable("w", initializer=tf1.constant(0.0, tf1.float64), use_resource=True)
    loss = tf1.square(w - TARGET)
    return tf1.train.GradientDescentOptimizer(LEARNING_RATE).minimize(loss, global_step=step)
