"""Graphs that tests train."""

from __future__ import annotations

import contextlib
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import tensorflow as tf

import trainerd
from trainerd.checkpoints import catalogue, manifest
from trainerd.rundir import RunDirectory
from trainerd.state import State, read_state

tf1 = tf.compat.v1


@dataclass
class Counter:
    """The seed's network: a parameter that each step makes larger by 2."""

    graph: Any
    p: Any
    global_step: Any
    train_op: Any

    @property
    def fetches(self) -> list[Any]:
        """What the seed fetches at each step."""
        return [self.train_op, self.p, self.global_step]


def counter(*, summaries: bool = False, use_resource: bool = True, size: int = 1) -> Counter:
    """Build the seed's graph."""
    graph = tf1.Graph()
    with graph.as_default():
        p = tf1.get_variable("tf_p", [size], initializer=tf1.constant_initializer(0.0), use_resource=use_resource)
        step = tf1.Variable(0, name="global_step", trainable=False, use_resource=use_resource)
        optimizer = tf1.train.GradientDescentOptimizer(learning_rate=1.0)
        train_op = optimizer.apply_gradients([(-2 * tf.ones([size]), p)], global_step=step)
        if summaries:
            tf1.summary.scalar("p", p[0])
    return Counter(graph, p, step, train_op)


def events(logdir: Path) -> list[Any]:
    """All events of a folder, in the order of its files."""
    found = []
    for path in sorted(logdir.glob("events.out.tfevents.*")):
        with contextlib.suppress(tf.errors.DataLossError):  # its end is being written
            for record in tf.data.TFRecordDataset(str(path)):
                found.append(tf1.Event.FromString(record.numpy()))
    return found


def scalars(logdir: Path, tag: str) -> list[tuple[int, float]]:
    """The points of a curve."""
    points = []
    for event in events(logdir):
        points += [(event.step, value.simple_value) for value in event.summary.value if value.tag == tag]
    return points


def ending(*, summaries: bool = False) -> tuple[Any, Any]:
    """A graph whose input ends after seven steps, and its train op."""
    graph = tf1.Graph()
    with graph.as_default():
        step = tf1.train.get_or_create_global_step()
        batch = tf1.data.make_one_shot_iterator(tf.data.Dataset.range(7)).get_next()
        if summaries:
            tf1.summary.scalar("batch", batch)
        with tf.control_dependencies([batch]):
            return graph, tf1.assign_add(step, 1)


def supervised(graph: Any, logdir: Path | str | None, **options: Any) -> Any:
    with graph.as_default():
        return trainerd.Supervisor(logdir=None if logdir is None else str(logdir), **options)


def saved(logdir: Path) -> list[tuple[int, str]]:
    rundir = RunDirectory(logdir)
    return [(s, manifest.read(rundir.manifest(s)).reason) for s in catalogue.resume_order(rundir)]


def state(logdir: Path) -> State:
    found = read_state(logdir / "state.json")
    assert found is not None
    return found


def value(logdir: Path, name: str = "tf_p") -> Any:
    return tf.train.load_checkpoint(str(logdir)).get_tensor(name)


def wait_for(happened: Any, sv: Any, seconds: float = 20.0) -> None:
    """Loop as a program does that has no step to run."""
    deadline = time.monotonic() + seconds
    while not happened():
        assert time.monotonic() < deadline
        sv.should_stop()
        time.sleep(0.01)
