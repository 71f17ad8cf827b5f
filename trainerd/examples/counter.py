"""The smallest job there is: one parameter, p, that goes up by 2 at each step.

It is the "network" of the notebook that trainerd's idea comes from: f(x) = p, with a made-up gradient of -2 that
gradient descent with a learning rate of 1 turns into +2.
"""

from __future__ import annotations

import tensorflow as tf

import trainerd


def job() -> trainerd.Job:
    """Count up in twos."""
    p = tf.Variable([0.0], name="p")

    def train_step() -> dict[str, tf.Tensor]:
        p.assign_sub(1.0 * tf.constant([-2.0]))
        return {"p": p[0]}

    return trainerd.Job(train_step, state={"p": p})
