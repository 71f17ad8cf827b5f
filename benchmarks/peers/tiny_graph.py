"""The tiny job as a TF1 graph: the same parameter, loss and learning rate."""

from __future__ import annotations

from typing import Any

import tensorflow.compat.v1 as tf1

from benchmarks.loss import LEARNING_RATE, TARGET


def build() -> Any:
    """Make the default graph. What one step fetches: the train op, which counts the global step too, and the loss.

    The loss is fetched because both others have it at each step: the bare loop's function returns it, and trainerd
    keeps it. Without it a run can be shorter by up to a third; docs/benchmarks.md says what that does to the figures.
    """
    tf1.disable_v2_behavior()
    step = tf1.train.get_or_create_global_step()
    w = tf1.get_variable("w", initializer=tf1.constant(0.0, tf1.float64), use_resource=True)
    loss = tf1.square(w - TARGET)
    train_op = tf1.train.GradientDescentOptimizer(LEARNING_RATE).minimize(loss, global_step=step)
    return [train_op, loss]
