"""The picture of a run that gets better: it goes back to its minimum, and trains on with another learning rate."""

from __future__ import annotations

import time

from tools.recording.studio import IMAGES, Studio, studio
from trainerd.rundir.paths import RunDirectory
from trainerd.rundir.state import State, read_state

CONFIG = """\
entry = "job:job"
logdir = "run"
[checkpoint]
save_model_secs = 0
save_model_steps = 500
keep_last = 20
best = "min val_loss"
[summary]
metrics_secs = 0
metrics_steps = 5
save_summaries_secs = 0
[evaluate]
evaluate_secs = 0
evaluate_steps = 250
"""
# The digits, with a learning rate that grows by a factor at each step until the loss turns up.
JOB = """\
import dataclasses

import keras
import tensorflow as tf

from trainerd.examples import digits


def job():
    made = digits.job()
    model, growth = made.state["model"], tf.Variable(1.0019)
    optimizer = keras.optimizers.Adam(3e-4)
    optimizer.build(model.trainable_variables)
    loss_of = keras.losses.SparseCategoricalCrossentropy(from_logits=True)

    def train_step(batch):
        optimizer.learning_rate.assign(optimizer.learning_rate * growth)
        with tf.GradientTape() as tape:
            loss = loss_of(batch[1], model(batch[0], training=True))
        optimizer.apply(tape.gradient(loss, model.trainable_variables), model.trainable_variables)
        return {"loss": loss}

    state = {**made.state, "optimizer": optimizer, "growth": growth}
    return dataclasses.replace(made, train_step=train_step, state=state, settable={"growth": growth})
"""
TURNED_UP, PAUSED, LAST = 2500, 2500, 3500


def history() -> None:
    """Train beyond the minimum, go back to it, train with a rate that falls, and draw what became of it."""
    with studio("digits") as made:
        made.write("trainerd.toml", CONFIG)
        made.write("job.py", JOB)
        made.trainerd("start", "--max-steps", str(LAST))
        _wait_for(made, TURNED_UP)
        made.trainerd("rollback", "minimum")
        made.trainerd("set", "growth=0.9988")
        _wait_for(made, PAUSED)
        made.trainerd("pause", "--wait")
        made.trainerd("run", "--max-steps", str(LAST))
        made.trainerd("history", "--log", "--smooth", "40", "--image", str(IMAGES / "history.png"))


def _wait_for(made: Studio, step: int) -> None:
    """Wait until the run has reached this step."""
    state = RunDirectory(made.folder / "run").state
    while (read_state(state) or State()).step < step:
        time.sleep(0.05)
