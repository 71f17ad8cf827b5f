"""Jobs that misbehave when they are told to. They are put in /etc/trainerd of the machine, beside the config.

They are told by files in the run directory, the only place where a test outside and a job inside both see them.
"""

from __future__ import annotations

import os
import time
from pathlib import Path

import tensorflow as tf

import trainerd

STATE = Path(os.environ.get("STATE_DIRECTORY", "."))
FOR_EVER = 10_000.0


def _count(p: tf.Variable) -> dict[str, tf.Tensor]:
    p.assign_add([1.0])
    return {"p": p[0]}


def hangs() -> trainerd.Job:
    """A step that never ends, once, where there is a file `hang`."""
    p = tf.Variable([0.0])

    def look() -> None:
        if (STATE / "hang").exists():
            (STATE / "hang").unlink()
            time.sleep(FOR_EVER)

    def train_step() -> dict[str, tf.Tensor]:
        tf.py_function(look, [], [])
        return _count(p)

    return trainerd.Job(train_step, state={"p": p})


def slow() -> trainerd.Job:
    """Slow where a job may be: building it takes 6 s, its first step 7, and its evaluation 8."""
    p = tf.Variable([0.0])
    time.sleep(6)

    def wait_once() -> None:
        if p[0] == 0:
            time.sleep(7)

    def train_step() -> dict[str, tf.Tensor]:
        tf.py_function(wait_once, [], [])
        return _count(p)

    def evaluate() -> dict[str, float]:
        time.sleep(8)
        return {"p": float(p[0])}

    return trainerd.Job(train_step, state={"p": p}, evaluate=evaluate)


def big() -> trainerd.Job:
    """A state of 64 MiB, which TensorFlow writes in pieces of some MiB."""
    p = tf.Variable([0.0])
    weights = tf.Variable(tf.ones([16, 1024, 1024]))
    return trainerd.Job(lambda: _count(p), state={"p": p, "weights": weights})


class _Hanging(tf.train.experimental.PythonState):  # type: ignore[misc]
    """A part of the state that is never done being saved where there is a file `hang`."""

    def serialize(self) -> str:
        while (STATE / "hang").exists():
            time.sleep(0.1)
        return ""

    def deserialize(self, string_value: str) -> None:
        """Nothing to take back."""


def hangs_in_save() -> trainerd.Job:
    """A save in which no byte gets written."""
    p = tf.Variable([0.0])
    return trainerd.Job(lambda: _count(p), state={"p": p, "hanging": _Hanging()})
