"""Jobs that misbehave when they are told to. They are put in /etc/trainerd of the machine, beside the config.

They are told by files in the run directory, the only place where a test outside and a job inside both see them.
"""

from __future__ import annotations

import contextlib
import json
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

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


def evaluated() -> trainerd.Job:
    """A counter that can be evaluated."""
    p = tf.Variable([0.0])
    return trainerd.Job(lambda: _count(p), state={"p": p}, evaluate=lambda: {"p": float(p[0])})


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


def probing() -> trainerd.Job:
    """Writes down where it may write, and whether it may signal the process whose number is in the file `victim`."""
    memory = os.statvfs("/dev/shm")
    found: dict[str, Any] = {"writable": sorted(_writable("/")), "shm": memory.f_blocks * memory.f_frsize}
    found["seen"] = sorted(os.listdir("/dev/shm"))
    Path(f"/dev/shm/of-{STATE.name}").write_text("mine")
    try:
        os.kill(int((STATE / "victim").read_text()), 0)
        found["signal"] = "heard"
    except OSError as error:
        found["signal"] = type(error).__name__
    (STATE / "found.json").write_text(json.dumps(found))
    p = tf.Variable([0.0])
    return trainerd.Job(lambda: _count(p), state={"p": p})


def _writable(root: str) -> Iterator[str]:
    for folder, below, _ in os.walk(root):
        probe = Path(folder, f".probe-{os.getpid()}")
        with contextlib.suppress(OSError):
            probe.touch(exist_ok=False)
            probe.unlink()
            below.clear()
            yield folder
        if folder == "/":
            below[:] = [name for name in below if name not in ("proc", "sys")]


def greedy() -> trainerd.Job:
    """Takes more memory than it may have, once, in its first evaluation."""
    p = tf.Variable([0.0])
    found: list[bytearray] = []

    def evaluate() -> dict[str, float]:
        if not (STATE / "taken").exists():
            (STATE / "taken").touch()
            while True:
                found.append(bytearray(os.urandom(1 << 20) * 64))
        return {"taken": 1.0}

    return trainerd.Job(lambda: _count(p), state={"p": p}, evaluate=evaluate)


def evaluates_for_long() -> trainerd.Job:
    """Its evaluation takes a minute."""
    p = tf.Variable([0.0])

    def evaluate() -> dict[str, float]:
        time.sleep(60)
        return {"p": float(p[0])}

    return trainerd.Job(lambda: _count(p), state={"p": p}, evaluate=evaluate)


def fails() -> trainerd.Job:
    """Raises in its fifth step."""
    p = tf.Variable([0.0])

    def look(now: tf.Tensor) -> None:
        if now[0] >= 5:
            raise ValueError("my own mistake")

    def train_step() -> dict[str, tf.Tensor]:
        tf.py_function(look, [p.assign_add([1.0])], [])
        return {"p": p[0]}

    return trainerd.Job(train_step, state={"p": p})
