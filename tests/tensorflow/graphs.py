"""Graphs that tests train."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import tensorflow as tf

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
