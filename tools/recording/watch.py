"""The picture of the dashboard, with real runs of the digits, which train for minutes: starts weigh little then."""

from __future__ import annotations

import contextlib
import io
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from PIL import Image

from tests.process.test_watch_page import COUNT, POINTS, served
from tests.tensorflow.chromium import browser, poll
from tools.recording.studio import HOME, IMAGES, Studio, studio
from trainerd.rundir.paths import RunDirectory
from trainerd.rundir.state import Phase, State, read_state

CONFIG = """\
entry = "{entry}"
logdir = "{name}"
max_steps = {steps}
tags = ["{tag}"]
[checkpoint]
save_model_secs = 10
keep_last = 6
[summary]
metrics_secs = 1
save_summaries_secs = 60
[evaluate]
evaluate_secs = 15
"""
# Large batches: a curve has less noise, and a run takes minutes.
JOB = """\
import dataclasses

import keras
import tensorflow as tf

from trainerd.examples import digits


def job():
    images, labels = digits.load()
    train = images[: -digits.HELD_OUT], labels[: -digits.HELD_OUT]
    dataset = tf.data.Dataset.from_tensor_slices(train).shuffle(2000, seed=1).repeat().batch(512)
    return dataclasses.replace(digits.job(), dataset=dataset)


def rising():
    made = job()
    model, optimizer = made.state["model"], keras.optimizers.Adam(2e-4)
    optimizer.build(model.trainable_variables)
    loss_of = keras.losses.SparseCategoricalCrossentropy(from_logits=True)

    def train_step(batch):
        optimizer.learning_rate.assign(optimizer.learning_rate * 1.002)
        with tf.GradientTape() as tape:
            loss = loss_of(batch[1], model(batch[0], training=True))
        optimizer.apply(tape.gradient(loss, model.trainable_variables), model.trainable_variables)
        return {"loss": loss}

    return dataclasses.replace(made, train_step=train_step, state={**made.state, "optimizer": optimizer})
"""
STARTED_AFTER, KILLED_AFTER, PAUSED_AFTER, SHOWN_AFTER = 30.0, 150.0, 240.0, 560.0  # seconds
HEIGHT = 930


class Run:
    """A run of the digits in the studio's folder."""

    def __init__(self, made: Studio, name: str, steps: int, entry: str = "job:job") -> None:
        self.rundir = RunDirectory(made.folder / name)
        self._made, self._name = made, name
        tag = name.partition("-")[2] or "baseline"
        made.write(f"{name}.toml", CONFIG.format(entry=entry, name=name, steps=steps, tag=tag))
        self.start()

    def start(self) -> None:
        """Start it, or start it again."""
        command = [sys.executable, "-m", "trainerd", "run", "--config", f"{self._name}.toml"]
        made, nowhere = self._made, subprocess.DEVNULL
        self.process = subprocess.Popen(command, cwd=made.folder, env=made.environment, stdout=nowhere, stderr=nowhere)

    def end(self, number: int) -> None:
        """End it."""
        self.process.send_signal(number)
        self.process.wait()

    def is_training(self) -> bool:
        """Whether it trains now."""
        return (read_state(self.rundir.state) or State()).phase is Phase.TRAINING


@contextlib.contextmanager
def three_runs(made: Studio) -> Iterator[list[Run]]:
    """One that was killed, and trains again; one that has come to its end; one that was paused."""
    made.write("job.py", JOB)
    begun = time.monotonic()
    digits = Run(made, "digits", 40_000)
    _wait_until(begun + STARTED_AFTER)
    rising, paused = Run(made, "digits-rising-rate", 2_500, "job:rising"), Run(made, "digits-tuesday", 30_000)
    runs = [digits, rising, paused]
    try:
        _wait_until(begun + KILLED_AFTER)
        digits.end(signal.SIGKILL)
        digits.start()
        _wait_until(begun + PAUSED_AFTER)
        paused.end(signal.SIGTERM)
        rising.process.wait()
        _wait_until(begun + SHOWN_AFTER)
        poll(digits.is_training, "the run")
        yield runs
    finally:
        for run in runs:
            run.end(signal.SIGTERM)


def watch() -> None:
    """Make it."""
    with (
        studio("runs") as made,
        three_runs(made) as runs,
        served([run.rundir.path for run in runs]) as url,
        browser(HOME, height=HEIGHT) as tab,
    ):
        tab.open(url)
        poll(lambda: tab.run(COUNT, ".smooth") >= 2 * len(runs) and tab.run(POINTS) > 50, "the curves")
        _save(tab.screenshot(), IMAGES / "watch.png")


def _save(screenshot: bytes, path: Path) -> None:
    with Image.open(io.BytesIO(screenshot)) as picture:
        few = picture.convert("RGB").quantize(256, method=Image.Quantize.MEDIANCUT, dither=Image.Dither.NONE)
        few.save(path, optimize=True)


def _wait_until(moment: float) -> None:
    time.sleep(max(0.0, moment - time.monotonic()))
