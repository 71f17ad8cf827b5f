"""What a Supervisor saves of a graph: its variables at one step, and what the program saves beside it."""

from __future__ import annotations

import contextlib
import os
import signal
import threading
import time
from pathlib import Path
from typing import Any

import pytest
import tensorflow as tf

import trainerd
from tests.tensorflow.graphs import counter, saved, shuffled, supervised, value, wait_for
from trainerd.loop.signals.handlers import HANDLED
from trainerd.sessions.tf1.state import Effects, GraphState

tf1 = tf.compat.v1


# ---------------------------------------------------------------------- snapshots


@pytest.mark.parametrize("use_resource", [True, False])
def test_a_checkpoint_is_of_one_step_whatever_comes_after_it(tmp_path: Path, use_resource: bool) -> None:
    found = counter(use_resource=use_resource, size=1_000_000)
    sv = supervised(found.graph, tmp_path, save_model_secs=0)
    with sv.managed_session() as sess:
        for _ in range(5):
            sess.run(found.train_op)
        os.kill(os.getpid(), signal.SIGUSR1)
        deadline = time.monotonic() + 20
        while not saved(tmp_path):
            sess.run(found.train_op)
            assert time.monotonic() < deadline
    [(step, _)] = saved(tmp_path)
    content = value(tmp_path)
    assert content.min() == content.max() == 2.0 * step


def test_a_snapshot_that_is_never_written_does_not_keep_its_memory() -> None:
    """As where there is no room for a checkpoint, and it is tried again and again."""
    found = counter()
    with found.graph.as_default():
        state = GraphState(found.graph, tf1.train.Saver())
        with tf1.Session() as session:
            session.run(tf1.global_variables_initializer())
            first = state.take(session, 0, {}, set())
            handles = dict(first.handles)
            read = found.graph.get_operation_by_name("trainerd/GetSessionTensor").outputs[0]
            assert session.run(read, handles) is not None
            del first
            state.take(session, 0, {}, set())
            with pytest.raises(tf.errors.InvalidArgumentError, match="not in the session store"):
                session.run(read, handles)


@pytest.mark.parametrize("use_resource", [True, False])
def test_training_that_no_step_counts_is_saved_all_the_same(tmp_path: Path, use_resource: bool) -> None:
    for total in (5, 10):
        graph = tf1.Graph()
        with graph.as_default():
            tf1.train.get_or_create_global_step()
            v = tf1.Variable(0.0, name="v", use_resource=use_resource)
            add = tf1.assign_add(v, 1.0)
        with supervised(graph, tmp_path).managed_session() as sess:
            for _ in range(5):
                sess.run(add)
            assert sess.run(v) == total
        assert value(tmp_path, "v") == total


def test_what_is_fetched_is_looked_at_once_whether_it_is_fed_or_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A walk through a large graph takes longer than a step."""
    found = counter()
    with found.graph.as_default():
        fed = tf1.placeholder(tf.float32, [])
    looks = []
    real = GraphState.effects

    def looking(state: GraphState, fetches: Any) -> Effects:
        looks.append(fetches)
        return real(state, fetches)

    monkeypatch.setattr(GraphState, "effects", looking)
    with supervised(found.graph, tmp_path).managed_session() as sess:
        for number in range(20):
            assert sess.run([found.train_op, fed], feed_dict={fed: number})[1] == number
            sess.run([found.train_op, found.p])
    assert len(looks) == 2


def test_looking_at_a_variable_does_not_make_another_checkpoint(tmp_path: Path) -> None:
    found = counter()
    with supervised(found.graph, tmp_path).managed_session() as sess:
        sess.run(found.train_op)
        sess.run(found.p)
    at = (tmp_path / "model.ckpt-1.json").stat().st_mtime_ns
    with supervised(counter().graph, tmp_path).managed_session() as sess:
        sess.run("tf_p/Read/ReadVariableOp:0")
    assert (tmp_path / "model.ckpt-1.json").stat().st_mtime_ns == at


def test_what_a_program_saves_over_a_checkpoint_counts(tmp_path: Path) -> None:
    """The files are then others than the manifest tells of, and sound."""
    for total in (20, 40):
        graph, _, step, _ = shuffled("one-shot")
        with graph.as_default():
            count = tf1.assign_add(step, 1)
            own = tf1.train.Saver(max_to_keep=3)
            sv = trainerd.Supervisor(logdir=str(tmp_path), saver=own)
            with sv.managed_session() as sess:
                for _ in range(20):
                    sess.run(count)
                (tmp_path / "save").touch()
                wait_for(lambda total=total: total in [step for step, _ in saved(tmp_path)], sv)
                own.save(sess, sv.save_path, global_step=step)
        assert not (tmp_path / "quarantine").exists()
    train_from = tf.train.load_checkpoint(str(tmp_path)).get_tensor("global_step")
    assert train_from == 40


def test_a_program_may_save_under_names_of_its_own(tmp_path: Path) -> None:
    for number in range(3):
        found = counter()
        with found.graph.as_default():
            sv = trainerd.Supervisor(logdir=str(tmp_path), save_model_secs=0)
            with sv.managed_session() as sess:
                assert sess.run(found.p)[0] == 20.0 * number
                for _ in range(10):
                    sess.run(found.train_op)
                sv.saver.save(sess, str(tmp_path / "my-model"), global_step=found.global_step)


def test_a_step_given_to_the_saver_is_the_name_that_it_gets(tmp_path: Path) -> None:
    found = counter()
    with found.graph.as_default():
        sv = trainerd.Supervisor(logdir=str(tmp_path))
        with sv.managed_session() as sess:
            for epoch in (1, 2):
                for _ in range(5):
                    sess.run(found.train_op)
                assert sv.saver.save(sess, sv.save_path, global_step=epoch) == f"{sv.save_path}-{epoch}"
            assert sv.saver.save(sess, sv.save_path, global_step=found.global_step) == f"{sv.save_path}-10"
            assert sv.saver.last_checkpoints[-1] == f"{sv.save_path}-10"


def test_a_session_that_the_program_closes_is_saved_before(tmp_path: Path) -> None:
    found = counter()
    sv = supervised(found.graph, tmp_path)
    with sv.prepare_or_wait_for_session() as sess:
        for _ in range(5):
            sess.run(found.train_op)
    sv.stop()
    assert saved(tmp_path)[0] == (5, "finish")


def test_callables_of_the_programs_own_are_steps_too(tmp_path: Path) -> None:
    found = counter()
    sv = supervised(found.graph, tmp_path)
    with sv.managed_session() as sess:
        step = sess.make_callable(found.fetches)
        os.kill(os.getpid(), signal.SIGTERM)
        deadline = time.monotonic() + 20
        while not sv.coord.should_stop():
            step()
            assert time.monotonic() < deadline
        done = int(sess.run(found.global_step))
    assert saved(tmp_path)[0] == (done, "pause") and value(tmp_path) == 2.0 * done


def test_a_failed_step_is_not_saved_where_the_program_raises_an_error_of_its_own(tmp_path: Path) -> None:
    found = counter()
    with found.graph.as_default(), tf.control_dependencies([found.train_op]):
        bad = tf.debugging.Assert(False, ["broken"])
    sv = supervised(found.graph, tmp_path)
    with pytest.raises(ValueError, match="mine"), sv.managed_session() as sess:
        try:
            sess.run(bad)
        except tf.errors.InvalidArgumentError as error:
            raise ValueError("mine") from error
    assert saved(tmp_path) == [(0, "start")]


def test_a_session_over_the_network_is_saved_too(tmp_path: Path) -> None:
    """It keeps no tensors; they are fetched at the boundary."""
    server = tf1.train.Server.create_local_server()
    for total in (5, 10):
        found = counter()
        sv = supervised(found.graph, tmp_path)
        with sv.managed_session(server.target) as sess:
            for _ in range(5):
                sess.run(found.train_op)
        assert saved(tmp_path)[0] == (total, "finish") and value(tmp_path) == 2.0 * total


def test_a_service_that_the_step_waits_for_is_called_all_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("trainerd.run.boundary.STUCK_SECS", 0.3)
    graph = tf1.Graph()
    with graph.as_default():
        queue = tf1.FIFOQueue(5, tf.float32, shapes=[[]])
        enqueue, dequeue = queue.enqueue(1.0), queue.dequeue()
        close = queue.close(cancel_pending_enqueues=True)
        tf1.train.get_or_create_global_step()
    sv = supervised(graph, tmp_path)
    with sv.managed_session() as sess:
        sv.loop(0.01, unless_closed, args=(sess, enqueue))
        assert [sess.run(dequeue) for _ in range(10)] == [1.0] * 10
        sv.request_stop()
        sess.run(close)


def unless_closed(sess: Any, enqueue: Any) -> None:
    with contextlib.suppress(tf.errors.CancelledError):
        sess.run(enqueue)


def test_a_service_that_waits_for_steps_runs_beside_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("trainerd.run.boundary.STUCK_SECS", 0.3)
    graph = tf1.Graph()
    with graph.as_default():
        queue = tf1.FIFOQueue(8, tf.float32, shapes=[[]])
        enqueue, close = queue.enqueue_many([tf.ones([4])]), queue.close(cancel_pending_enqueues=True)
        step = tf1.train.get_or_create_global_step()
        train_op = tf.group(tf1.assign_add(step, 1), queue.dequeue())
    sv = supervised(graph, tmp_path)
    with sv.managed_session() as sess:
        sv.loop(None, unless_closed, args=(sess, enqueue))
        for _ in range(100):
            sess.run(train_op)
        assert sess.run(step) == 100
        sv.request_stop()
        sess.run(close)
    assert "beside the steps" in caplog.text


def test_a_service_has_all_that_the_loop_has(tmp_path: Path) -> None:
    """It runs on a thread of its own while the loop waits: what it saves is of one step."""
    found = counter()
    sv = supervised(found.graph, tmp_path)
    seen: list[tuple[int, float]] = []

    def save(sess: Any) -> None:
        path = sv.saver.save(sess, sv.save_path, global_step=sv.global_step)
        step, p = sess.run([found.global_step, found.p])
        assert path == f"{sv.save_path}-{step}"
        seen.append((int(step), float(p[0])))

    with sv.managed_session() as sess:
        sv.loop(0.01, save, args=(sess,))
        while len(seen) < 5 and not sv.should_stop():
            sess.run(found.train_op)
    assert all(p == 2.0 * step for step, p in seen)
    steps = {step for step, _ in saved(tmp_path)}
    assert {step for step, _ in seen[-3:]} <= steps | {0}


def test_it_may_be_stopped_by_another_thread(tmp_path: Path) -> None:
    found = counter()
    sv = supervised(found.graph, tmp_path)
    before = {number: signal.getsignal(number) for number in HANDLED}
    sess = sv.prepare_or_wait_for_session()
    sess.run(found.train_op)
    thread = threading.Thread(target=sv.stop)
    thread.start()
    thread.join()
    sess.close()
    signal.set_wakeup_fd(-1)  # what the main thread alone can put back
    for number, handler in before.items():
        signal.signal(number, handler)
    assert saved(tmp_path)[0] == (1, "finish")


def test_a_graph_without_a_global_step_counts_its_runs(tmp_path: Path) -> None:
    for total in (5, 10):
        graph = tf1.Graph()
        with graph.as_default():
            v = tf1.Variable(0.0, name="v")
            add = tf1.assign_add(v, 1.0)
        with supervised(graph, tmp_path).managed_session() as sess:
            for _ in range(5):
                sess.run(add)
        assert saved(tmp_path)[0][0] == total and value(tmp_path, "v") == total
