"""Step functions, preemptions and threads in MonitoredSessions, and what comes after the end."""

from __future__ import annotations

import gc
import threading
from pathlib import Path
from typing import Any

import pytest
import tensorflow as tf

import trainerd
from tests.tensorflow.graphs import Recorder, counter, saved, train_monitored, value
from tests.tensorflow.noting import instances
from trainerd.loop.flag import Request
from trainerd.run.boundary import Boundary

tf1 = tf.compat.v1


def test_run_step_fn(tmp_path: Path) -> None:
    calls: list[str] = []
    found = counter()
    with found.graph.as_default():

        def step_fn(step_context: Any) -> Any:
            p = step_context.session.run(found.p)[0]
            if p >= 6.0:
                step_context.request_stop()
            return step_context.run_with_hooks(fetches=found.train_op), p

        with trainerd.MonitoredTrainingSession(hooks=[Recorder("one", calls)]) as session:
            seen = []
            while not session.should_stop():
                seen.append(session.run_step_fn(step_fn)[1])
        assert seen == [0.0, 2.0, 4.0] and calls.count("one.before_run") == 3
        with (
            trainerd.MonitoredTrainingSession() as session,
            pytest.raises(ValueError, match="may either have one `step_context` argument"),
        ):
            session.run_step_fn(lambda a, b: None)


@pytest.mark.parametrize("error", [tf.errors.AbortedError, tf.errors.UnavailableError])
def test_a_preempted_session_is_remade_from_the_newest_checkpoint(tmp_path: Path, error: Any) -> None:
    class Preempt(tf.compat.v1.train.SessionRunHook):  # type: ignore[misc]
        def __init__(self) -> None:
            self.created = self.runs = 0

        def after_create_session(self, session: Any, coord: Any) -> None:
            self.created += 1

        def after_run(self, run_context: Any, run_values: Any) -> None:
            self.runs += 1
            if self.runs == 15:
                raise error(None, None, "preempted")

    hook = Preempt()
    train_monitored(tmp_path, 20, hooks=[hook], save_checkpoint_steps=10)
    assert hook.created == 2 and hook.runs == 15 + 10
    assert value(tmp_path) == 40.0
    found = counter()
    with (
        found.graph.as_default(),
        pytest.raises(error),
        trainerd.SingularMonitoredSession(hooks=[Preempt()]) as session,
    ):
        while True:
            session.run(found.train_op)


@pytest.mark.parametrize("error", [tf.errors.AbortedError, tf.errors.UnavailableError])
def test_a_session_that_was_remade_is_saved_though_the_one_before_is_collected(tmp_path: Path, error: Any) -> None:
    class Preempt(tf.compat.v1.train.SessionRunHook):  # type: ignore[misc]
        runs = 0

        def after_run(self, run_context: Any, run_values: Any) -> None:
            gc.collect()
            self.runs += 1
            if self.runs in (4, 6):
                raise error(None, None, "preempted")

    found = counter()
    with (
        found.graph.as_default(),
        trainerd.MonitoredTrainingSession(checkpoint_dir=str(tmp_path), hooks=[Preempt()]) as session,
    ):
        for _ in range(6):
            session.run(found.train_op)
            gc.collect()
            assert session._tf_sess().session_link.callables is not None
    assert saved(tmp_path) == [(2, "finish"), (0, "start")] and value(tmp_path) == 4.0


class Told(tf.compat.v1.train.SessionRunHook):  # type: ignore[misc]
    """Keeps the Coordinator, counts the sessions, and fails while it is told of the first so many."""

    def __init__(self, fails: int = 0) -> None:
        self.coord: Any = None
        self.created, self.fails = 0, fails

    def report(self, error: Exception) -> None:
        """As a thread does: the Coordinator wants it while it is handled."""
        try:
            raise error
        except Exception as raised:
            self.coord.request_stop(raised)

    def after_create_session(self, session: Any, coord: Any) -> None:
        self.coord = coord
        self.created += 1
        if self.created <= self.fails:
            raise tf.errors.UnavailableError(None, None, "preempted")


def test_a_preemption_that_a_thread_reports_is_found_by_should_stop(tmp_path: Path) -> None:
    found, hook = counter(), Told()
    with (
        found.graph.as_default(),
        trainerd.MonitoredTrainingSession(checkpoint_dir=str(tmp_path), hooks=[hook]) as session,
    ):
        session.run(found.train_op)
        hook.report(tf.errors.AbortedError(None, None, "preempted"))
        assert not session.should_stop() and hook.created == 2
        session.run(found.train_op)
        hook.report(tf.errors.AbortedError(None, None, "at the very end"))
    assert saved(tmp_path)[0][1] == "finish"


def test_a_preemption_while_hooks_get_a_session(tmp_path: Path) -> None:
    found, hook = counter(), Told(fails=2)
    with found.graph.as_default(), trainerd.MonitoredSession(hooks=[hook]) as session:
        session.run(found.train_op)
    assert hook.created == 3
    with found.graph.as_default(), pytest.raises(tf.errors.UnavailableError):
        trainerd.SingularMonitoredSession(hooks=[Told(fails=1)])


@pytest.mark.parametrize("make", [trainerd.MonitoredSession, trainerd.SingularMonitoredSession])
def test_a_thread_that_fails_lets_the_run_under_way_continue_and_is_raised_at_the_end(make: Any) -> None:
    found, hook = counter(), Told()
    with found.graph.as_default(), pytest.raises(ZeroDivisionError, match="in a thread"), make(hooks=[hook]) as session:
        hook.report(ZeroDivisionError("in a thread"))
        assert session.run(found.global_step) == 0
        if make is trainerd.MonitoredSession:
            assert session.should_stop()
        else:
            with pytest.raises(ZeroDivisionError):
                session.should_stop()


@pytest.mark.parametrize("graph", [True, False])
def test_the_graph_goes_with_the_checkpoints_where_it_is_wanted(tmp_path: Path, graph: bool) -> None:
    train_monitored(tmp_path, 3, save_graph_def=graph)
    assert (tmp_path / "graph.pbtxt").exists() == bool(list(tmp_path.glob("*.meta"))) == graph


def test_threads_of_the_program_may_feed_the_loop(tmp_path: Path) -> None:
    graph = tf1.Graph()
    with graph.as_default():
        queue = tf1.FIFOQueue(1, tf.float32, shapes=[[]])
        enqueue, dequeue = queue.enqueue(1.0), queue.dequeue()
        step = tf1.train.get_or_create_global_step()
        count = tf1.assign_add(step, 1)
        with trainerd.MonitoredTrainingSession(checkpoint_dir=str(tmp_path)) as session:

            def feed() -> None:
                for _ in range(5):
                    session.run(enqueue)

            thread = threading.Thread(target=feed, daemon=True)
            thread.start()
            for _ in range(5):
                assert session.run([dequeue, count])[0] == 1.0
            thread.join()
    assert saved(tmp_path)[0] == (5, "finish")


def test_a_creator_may_give_a_session_of_another_kind() -> None:
    class Wrapped:
        """As tfdbg's: it has the session's methods, and is none."""

        def __init__(self, session: Any) -> None:
            self._session = session
            self.graph = session.graph

        def run(self, *args: Any, **options: Any) -> Any:
            return self._session.run(*args, **options)

        def close(self) -> None:
            self._session.close()

    class Creator(tf.compat.v1.train.SessionCreator):  # type: ignore[misc]
        def create_session(self) -> Any:
            return Wrapped(tf1.Session())

    with tf1.Graph().as_default():
        c = tf.constant(2)
        with trainerd.MonitoredSession(Creator(), hooks=[Recorder("one", [])]) as session:
            assert session.run(c) == 2


def test_close_and_what_comes_after_it(tmp_path: Path) -> None:
    found = counter()
    with found.graph.as_default():
        session = trainerd.MonitoredTrainingSession(checkpoint_dir=str(tmp_path))
        session.run(found.train_op)
        session.close()
        assert session.should_stop() and session.graph is None
        for again in (session.close, lambda: session.run(found.train_op)):
            with pytest.raises(RuntimeError, match="Session is already closed"):
                again()
    assert saved(tmp_path)[0] == (1, "finish")


def test_a_creator_of_the_programs_own() -> None:
    class Creator(tf.compat.v1.train.SessionCreator):  # type: ignore[misc]
        def create_session(self) -> Any:
            return tf1.Session()

    with tf1.Graph().as_default():
        c = tf.constant(2)
        with trainerd.MonitoredSession(Creator()) as session:
            assert session.run({"c": c}) == {"c": 2}
        with trainerd.MonitoredSession(tf1.train.ChiefSessionCreator()) as session:
            assert session.run(c) == 2


def test_nothing_is_run_in_a_session_that_is_being_closed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What serves the flag while the loop is busy may come between its end and the next session's beginning."""

    class KeepsCoordinator(tf1.train.SessionRunHook):  # type: ignore[misc,name-defined]
        def after_create_session(self, session: Any, coord: Any) -> None:
            self.coordinator = coord

    boundaries, served, close, hook = (
        instances(monkeypatch, Boundary),
        list[bool](),
        tf1.Session.close,
        KeepsCoordinator(),
    )

    def closing(within: Any) -> None:
        close(within)
        boundaries[-1].flag.raise_for(Request.SAVE)
        boundaries[-1].reached()
        served.append(True)

    found = counter()
    with found.graph.as_default():
        session = trainerd.MonitoredTrainingSession(checkpoint_dir=str(tmp_path), hooks=[hook])
        session.run(found.train_op)
        monkeypatch.setattr(tf1.Session, "close", closing)
        session.close()
    hook.coordinator.raise_requested_exception()
    assert served and saved(tmp_path)[0] == (1, "finish")
