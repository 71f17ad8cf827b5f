"""The graph of the seed, run by sessions of TensorFlow's and of trainerd's: `python -m benchmarks.peers.graph KIND`."""

from __future__ import annotations

import contextlib
import sys
import tempfile
from collections.abc import Callable, Iterator
from typing import Any

import tensorflow.compat.v1 as tf1

import trainerd
from benchmarks.peers.contract import serve, stepping

Step = Callable[[], object]


def build() -> list[Any]:
    """A parameter that grows by 2 at each step; what the seed's loop fetches."""
    tf1.disable_v2_behavior()
    p = tf1.get_variable("tf_p", [1], tf1.float32, tf1.constant_initializer(0))
    global_step = tf1.Variable(0, name="global_step", trainable=False)
    optimizer = tf1.train.GradientDescentOptimizer(learning_rate=1.0)
    train_op = optimizer.apply_gradients([(-2 * tf1.ones([1]), p)], global_step=global_step)
    return [train_op, p, global_step]


@contextlib.contextmanager
def session(fetches: list[Any], folder: str) -> Iterator[Step]:
    """Bare `Session.run`."""
    with tf1.Session() as found:
        found.run(tf1.global_variables_initializer())
        yield lambda: found.run(fetches)


@contextlib.contextmanager
def supervisor(fetches: list[Any], folder: str) -> Iterator[Step]:
    """TensorFlow's Supervisor."""
    sv = tf1.train.Supervisor(logdir=folder)
    with sv.managed_session() as found:
        yield lambda: sv.should_stop() or found.run(fetches)


@contextlib.contextmanager
def monitored(fetches: list[Any], folder: str) -> Iterator[Step]:
    """TensorFlow's MonitoredTrainingSession, with its default hooks."""
    with tf1.train.MonitoredTrainingSession(checkpoint_dir=folder) as found:
        yield lambda: found.should_stop() or found.run(fetches)


@contextlib.contextmanager
def our_supervisor(fetches: list[Any], folder: str) -> Iterator[Step]:
    """trainerd's Supervisor."""
    sv = trainerd.Supervisor(logdir=folder)
    with sv.managed_session() as found:
        yield lambda: sv.should_stop() or found.run(fetches)


@contextlib.contextmanager
def our_monitored(fetches: list[Any], folder: str) -> Iterator[Step]:
    """trainerd's MonitoredTrainingSession, which does by default what TensorFlow's does."""
    with trainerd.MonitoredTrainingSession(checkpoint_dir=folder) as found:
        yield lambda: found.should_stop() or found.run(fetches)


KINDS = {kind.__name__: kind for kind in (session, supervisor, monitored, our_supervisor, our_monitored)}


def main(kind: str) -> None:
    """Serve it."""
    with tempfile.TemporaryDirectory() as folder, KINDS[kind](build(), folder) as step:
        serve(stepping(step))


if __name__ == "__main__":
    main(sys.argv[1])
