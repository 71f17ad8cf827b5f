"""Graphs that tests train."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import tensorflow as tf

import trainerd
from tests import waiting
from trainerd.checkpoints import catalogue, manifest
from trainerd.rundir.paths import RunDirectory
from trainerd.rundir.state import State, read_state

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

    def look() -> bool:
        sv.should_stop()
        return bool(happened())

    waiting.wait_for(look, "what the program waits for", seconds)


def once(happened: Callable[[], Any], act: Callable[[], Any], seconds: float = 20.0) -> threading.Thread:
    """Do this in a thread, begun here, when that has happened; after so many seconds anyway, that nothing waits on."""

    def wait() -> None:
        with contextlib.suppress(AssertionError):
            waiting.wait_for(lambda: bool(happened()), "what comes before it", seconds)
        act()

    thread = threading.Thread(target=wait)
    thread.start()
    return thread


def train_supervised(logdir: Path, steps: int, **options: Any) -> Counter:
    """As in the very simple scenario."""
    found = counter(summaries=True)
    sv = supervised(found.graph, logdir, **options)
    with sv.managed_session() as sess:
        for _ in range(steps):
            if sv.should_stop():
                break
            sess.run(found.train_op)
    return found


def train_monitored(logdir: Path, last_step: int, **options: Any) -> Counter:
    """The loop that every tutorial has."""
    found = counter(summaries=True)
    with found.graph.as_default():
        hooks = [tf1.train.StopAtStepHook(last_step=last_step), *options.pop("hooks", [])]
        with trainerd.MonitoredTrainingSession(checkpoint_dir=str(logdir), hooks=hooks, **options) as session:
            while not session.should_stop():
                session.run(found.train_op)
    return found


class Recorder(tf.compat.v1.train.SessionRunHook):  # type: ignore[misc]
    """Writes down what is called."""

    def __init__(self, name: str, calls: list[str], *, fails_in: str = "", fetches: Any = None) -> None:
        self.name = name
        self.calls = calls
        self.fails_in = fails_in
        self.fetches = fetches
        self.results: list[Any] = []

    def _call(self, method: str) -> None:
        self.calls.append(f"{self.name}.{method}")
        if self.fails_in == method:
            raise ZeroDivisionError(self.name)

    def begin(self) -> None:
        assert not tf1.get_default_graph().finalized
        self._call("begin")

    def after_create_session(self, session: Any, coord: Any) -> None:
        assert callable(session.run) and isinstance(coord, tf1.train.Coordinator)
        self._call("after_create_session")

    def before_run(self, run_context: Any) -> Any:
        self._call("before_run")
        return tf1.train.SessionRunArgs(self.fetches) if self.fetches is not None else None

    def after_run(self, run_context: Any, run_values: Any) -> None:
        self.results.append(run_values.results)
        assert isinstance(run_values.run_metadata, tf1.RunMetadata)
        self._call("after_run")

    def end(self, session: Any) -> None:
        assert callable(session.run)
        self._call("end")


def shuffled(kind: str) -> tuple[Any, Any, Any, Any]:
    """A graph whose steps add what comes from a shuffled dataset; with what initializes its iterator."""
    graph = tf1.Graph()
    with graph.as_default():
        dataset = tf.data.Dataset.range(1000).shuffle(100, seed=3).repeat()
        if kind == "one-shot":
            iterator, init = tf1.data.make_one_shot_iterator(dataset), tf.no_op()
        else:
            iterator = tf1.data.make_initializable_iterator(dataset)
            init = iterator.initializer
        if kind == "local init op":
            tf1.add_to_collection(tf1.GraphKeys.TABLE_INITIALIZERS, init)
        batch = iterator.get_next()
        step = tf1.train.get_or_create_global_step()
        with tf.control_dependencies([tf1.assign_add(step, 1)]):
            fetch = tf.identity(batch)
    return graph, fetch, step, init


def train_to_pause_file(logdir: Path) -> None:
    """A run that is paused by a file."""
    found = counter()
    sv = supervised(found.graph, logdir)
    with sv.managed_session() as session:
        (logdir / "pause").touch()
        while not sv.should_stop():
            session.run(found.train_op)
