"""The Supervisor as a library: what programs that use TensorFlow's own rely on, and what ours does beyond it."""

from __future__ import annotations

import os
import signal
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import trainerd
from tests.tensorflow.graphs import Counter, counter, ending, events, saved, scalars, state, supervised, value, wait_for
from trainerd.errors import DataError, InUseError
from trainerd.state import Phase

tf1 = tf.compat.v1


def train(logdir: Path, steps: int, **options: Any) -> Counter:
    """As in the very simple scenario."""
    found = counter(summaries=True)
    sv = supervised(found.graph, logdir, **options)
    with sv.managed_session() as sess:
        for _ in range(steps):
            if sv.should_stop():
                break
            sess.run(found.train_op)
    return found


# ---------------------------------------------------------------------- the scenarios of the seeds


def test_the_very_simple_scenario_saves_when_it_ends_and_goes_on(tmp_path: Path) -> None:
    train(tmp_path, 250)
    assert saved(tmp_path)[0] == (250, "finish")
    assert state(tmp_path).phase is Phase.FINISHED
    train(tmp_path, 50)
    assert saved(tmp_path)[0] == (300, "finish")
    assert value(tmp_path) == 600.0


def test_the_seeds_loop_fetches_what_it_fetched(tmp_path: Path) -> None:
    found = counter()
    with found.graph.as_default():
        sv = trainerd.Supervisor(logdir=str(tmp_path))
        with sv.managed_session() as s:
            for _ in range(200):
                _, y, gstep = s.run([found.train_op, found.p, found.global_step])
                assert isinstance(y, np.ndarray) and y.shape == (1,) and gstep.shape == ()
                assert not sv.should_stop()
            assert s.run(found.p)[0] == 400.0 and tf1.train.global_step(s, found.global_step) == 200
            assert tf1.get_default_session() is None
            with s.as_default():
                assert found.p.eval()[0] == 400.0


def test_a_larger_model_runs_its_own_summaries(tmp_path: Path) -> None:
    found = counter(summaries=True)
    with found.graph.as_default():
        my_summary_op = tf1.summary.merge_all()
        sv = trainerd.Supervisor(logdir=str(tmp_path), summary_op=None)
        assert sv.summary_op is None
        with sv.managed_session() as sess:
            for step in range(300):
                if sv.should_stop():
                    break
                if step % 100 == 0:
                    _, summ = sess.run([found.train_op, my_summary_op])
                    sv.summary_computed(sess, summ)
                else:
                    sess.run(found.train_op)
    assert [step for step, _ in scalars(tmp_path, "p")] == [1, 101, 201]
    assert state(tmp_path).metrics["p"] >= 400


def test_a_pretrained_model_is_loaded_only_where_there_is_no_checkpoint(tmp_path: Path) -> None:
    train(tmp_path / "old", 10)
    for first in (True, False):
        found = counter()
        called: list[Any] = []
        with found.graph.as_default():
            extra = tf1.get_variable("extra", [], initializer=tf1.constant_initializer(7.0))
            pre_train_saver = tf1.train.Saver([found.p])

            def load_pretrain(sess: Any, saver: Any = pre_train_saver, called: list[Any] = called) -> None:
                saver.restore(sess, str(tmp_path / "old" / "model.ckpt-10"))
                called.append(sess)

            sv = trainerd.Supervisor(logdir=str(tmp_path / "new"), init_fn=load_pretrain)
            with sv.managed_session() as sess:
                assert sess.run(extra) == 7.0
                assert sess.run(found.p)[0] == (20.0 if first else 22.0)
                sess.run(found.train_op)
        assert called == ([sess] if first else [])


def test_own_services_are_called_between_two_steps(tmp_path: Path) -> None:
    """Where TensorFlow's own runs them while a step runs: what they fetch may be of two steps."""
    found = counter(size=100_000)
    with found.graph.as_default():
        sv = trainerd.Supervisor(logdir=str(tmp_path))
        seen: list[int] = []
        threads: list[threading.Thread] = []

        def my_additional_summaries(sv: Any, sess: Any, *, tag: str) -> None:
            threads.append(threading.current_thread())
            p, step = sess.run([found.p, found.global_step])
            assert p.min() == p.max() == 2.0 * step
            summary = tf1.Summary(value=[tf1.Summary.Value(tag=tag, simple_value=p[0])])
            sv.summary_computed(sess, summary, global_step=step)
            seen.append(step)

        with sv.managed_session() as sess:
            looper = sv.loop(0.01, my_additional_summaries, args=(sv, sess), kwargs={"tag": "mine"})
            assert isinstance(looper, threading.Thread)
            while len(seen) < 5:
                sess.run(found.train_op)
    assert not looper.is_alive()
    assert set(threads) == {threading.main_thread()}
    assert [step for step, _ in scalars(tmp_path, "mine")] == seen


def test_a_custom_saver_says_what_is_saved_and_how_much_is_kept(tmp_path: Path) -> None:
    found = counter()
    with found.graph.as_default():
        tf1.get_variable("unsaved", [3])
        my_saver = tf1.train.Saver({"renamed": found.p, "global_step": found.global_step}, max_to_keep=2)
        sv = trainerd.Supervisor(logdir=str(tmp_path), saver=my_saver, save_model_secs=30)
        assert sv.saver is my_saver
        with sv.managed_session() as sess:
            for _ in range(4):
                sess.run(found.train_op)
                (tmp_path / "save").touch()
                wait_for(lambda: not (tmp_path / "save").exists(), sv)
    names = {key for key, _ in tf.train.list_variables(str(tmp_path))}
    assert names == {"renamed", "global_step"}
    assert value(tmp_path, "renamed") == 8.0
    assert [step for step, _ in saved(tmp_path)] == [4, 3]


def test_an_edited_checkpoint_file_is_where_it_goes_on(tmp_path: Path) -> None:
    for _ in range(3):
        train(tmp_path, 10)
    lines = (tmp_path / "checkpoint").read_text().splitlines()
    (tmp_path / "checkpoint").write_text("\n".join(['model_checkpoint_path: "model.ckpt-10"', *lines[1:]]) + "\n")
    train(tmp_path, 5)
    assert value(tmp_path) == 30.0 and saved(tmp_path)[0][0] == 15


# ---------------------------------------------------------------------- pauses and requests


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_stops_the_loop_and_the_step_is_saved(tmp_path: Path, number: int) -> None:
    before = signal.getsignal(number)
    found = counter()
    sv = supervised(found.graph, tmp_path)
    with sv.managed_session() as sess:
        while not sv.should_stop():
            _, _, step = sess.run(found.fetches)
            if step == 100:
                os.kill(os.getpid(), number)
        done = int(sess.run(found.global_step))
    assert saved(tmp_path)[0] == (done, "pause")
    assert state(tmp_path).phase is Phase.PAUSED
    assert signal.getsignal(number) is before


def test_a_pause_is_saved_even_where_the_program_does_not_look(tmp_path: Path) -> None:
    """Who asked may kill the process soon."""
    found = counter()
    sv = supervised(found.graph, tmp_path)
    with sv.managed_session() as sess:
        os.kill(os.getpid(), signal.SIGTERM)
        deadline = time.monotonic() + 20
        while not saved(tmp_path) or saved(tmp_path)[0][1] != "pause":
            sess.run(found.train_op)
            assert time.monotonic() < deadline


def test_sigusr1_saves_and_training_goes_on(tmp_path: Path) -> None:
    found = counter()
    sv = supervised(found.graph, tmp_path, save_model_secs=0)
    with sv.managed_session() as sess:
        for _ in range(50):
            sess.run(found.train_op)
        os.kill(os.getpid(), signal.SIGUSR1)
        deadline = time.monotonic() + 20
        while not saved(tmp_path):
            sess.run(found.train_op)
            assert time.monotonic() < deadline
        assert not sv.should_stop()
    [(step, reason)] = saved(tmp_path)
    assert step >= 50 and reason == "request"
    assert value(tmp_path) == 2.0 * step


def test_the_pause_file_is_consumed(tmp_path: Path) -> None:
    found = counter()
    sv = supervised(found.graph, tmp_path)
    with sv.managed_session() as sess:
        (tmp_path / "pause").touch()
        while not sv.should_stop():
            sess.run(found.train_op)
    assert not (tmp_path / "pause").exists()
    assert saved(tmp_path)[0][1] == "pause"


def test_what_is_due_is_done_while_the_loop_waits(tmp_path: Path) -> None:
    """Its thread may wait for others that train."""
    found = counter()
    sv = supervised(found.graph, tmp_path, save_model_secs=0)
    with sv.managed_session() as sess:
        sess.run(found.train_op)
        (tmp_path / "save").touch()
        deadline = time.monotonic() + 20
        while not saved(tmp_path):
            time.sleep(0.01)
            assert time.monotonic() < deadline
    assert saved(tmp_path) == [(1, "request")]


def test_wait_for_stop_hears_a_signal(tmp_path: Path) -> None:
    found = counter()
    sv = supervised(found.graph, tmp_path)
    with sv.managed_session():
        threading.Timer(0.2, os.kill, (os.getpid(), signal.SIGTERM)).start()
        sv.wait_for_stop()
    assert state(tmp_path).phase is Phase.PAUSED


# ---------------------------------------------------------------------- errors


def test_an_error_of_the_loop_is_raised_and_its_last_step_saved(tmp_path: Path) -> None:
    found = counter()
    sv = supervised(found.graph, tmp_path)
    with pytest.raises(ZeroDivisionError), sv.managed_session() as sess:
        for step in range(10):
            sess.run(found.train_op)
            if step == 6:
                raise ZeroDivisionError("mine")
    assert saved(tmp_path)[0] == (7, "failure")
    assert state(tmp_path).phase is Phase.FAILED and "mine" in (state(tmp_path).error or "")


def test_a_step_that_fails_is_not_saved(tmp_path: Path) -> None:
    found = counter()
    with found.graph.as_default(), tf.control_dependencies([found.train_op]):
        bad = tf.debugging.Assert(tf.less(found.global_step.read_value(), 5), ["too far"])
    sv = supervised(found.graph, tmp_path)
    with pytest.raises(tf.errors.InvalidArgumentError, match="too far") as raised, sv.managed_session() as sess:
        while not sv.should_stop():
            sess.run(bad)
    assert raised.value.op is not None and "Assert" in raised.value.op.name
    assert saved(tmp_path) == [(0, "start")]


def test_the_end_of_the_input_is_a_clean_end(tmp_path: Path) -> None:
    graph, train_op = ending()
    sv = supervised(graph, tmp_path)
    with sv.managed_session() as sess:
        while True:
            sess.run(train_op)
    assert saved(tmp_path)[0] == (7, "finish")
    assert state(tmp_path).phase is Phase.FINISHED


def test_summaries_that_need_the_input_do_not_keep_the_end_from_being_saved(tmp_path: Path) -> None:
    graph, train_op = ending(summaries=True)
    sv = supervised(graph, tmp_path)
    with sv.managed_session() as sess:
        while not sv.should_stop():
            sess.run(train_op)
    assert saved(tmp_path)[0] == (6, "finish")  # the first summary took a batch too


def test_a_signal_while_the_session_is_made_is_heard(tmp_path: Path) -> None:
    """It takes long to restore a large model."""
    found = counter()

    def slow(sess: Any) -> None:
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(1.6)  # longer than the loop may keep others waiting

    with found.graph.as_default():
        sv = trainerd.Supervisor(logdir=str(tmp_path), init_fn=slow)
        with sv.managed_session() as sess:
            assert sv.should_stop()
            sess.run(found.train_op)
    assert state(tmp_path).phase is Phase.PAUSED and saved(tmp_path)[0] == (1, "pause")


def test_an_error_in_a_service_stops_the_loop_and_is_raised(tmp_path: Path) -> None:
    found = counter()
    sv = supervised(found.graph, tmp_path)

    def bad() -> None:
        raise KeyError("of the service")

    with pytest.raises(KeyError, match="of the service"), sv.managed_session() as sess:
        sv.loop(0.01, bad)
        deadline = time.monotonic() + 20
        while not sv.should_stop():
            sess.run(found.train_op)
            assert time.monotonic() < deadline


def test_a_summary_that_fails_stops_the_loop(tmp_path: Path) -> None:
    found = counter()
    with found.graph.as_default():
        tf1.summary.scalar("bad", tf.debugging.check_numerics(found.p[0] / 0.0, "not a number"))
        sv = trainerd.Supervisor(logdir=str(tmp_path), save_summaries_secs=0.05)
        with pytest.raises(tf.errors.InvalidArgumentError, match="not a number"), sv.managed_session() as sess:
            while not sv.should_stop():
                sess.run(found.train_op)


def test_stop_on_exception(tmp_path: Path) -> None:
    sv = supervised(counter().graph, None)
    with sv.stop_on_exception():
        raise ValueError("reported")
    assert sv.should_stop()
    with pytest.raises(ValueError, match="reported"):
        sv.stop()


# ---------------------------------------------------------------------- what None and 0 mean


def test_without_a_logdir_nothing_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    found = counter(summaries=True)
    sv = supervised(found.graph, None)
    assert sv.summary_writer is None and sv.save_path is None
    with sv.managed_session() as sess:
        assert sv.start_standard_services(sess) is None
        sess.run(found.train_op)
        with pytest.raises(RuntimeError, match="requires a summary writer"):
            sv.summary_computed(sess, tf1.Summary())
        os.kill(os.getpid(), signal.SIGTERM)
        while not sv.should_stop():
            sess.run(found.train_op)
    assert list(tmp_path.iterdir()) == []


def test_save_model_secs_0_saves_only_what_is_asked_for(tmp_path: Path) -> None:
    train(tmp_path, 20, save_model_secs=0)
    assert saved(tmp_path) == []


def test_without_a_saver_nothing_is_saved_and_summaries_are_written(tmp_path: Path) -> None:
    found = counter(summaries=True)
    sv = supervised(found.graph, tmp_path, saver=None, save_summaries_secs=0.05)
    with sv.managed_session() as sess:
        (tmp_path / "save").touch()
        while len(scalars(tmp_path, "p")) < 3:
            sess.run(found.train_op)
            sv.summary_writer.flush()
    assert saved(tmp_path) == []


def test_summaries_and_the_rate_are_written_on_schedule(tmp_path: Path) -> None:
    found = counter(summaries=True)
    sv = supervised(found.graph, tmp_path, save_summaries_secs=0.1)
    with sv.managed_session() as sess:
        deadline = time.monotonic() + 20
        while not scalars(tmp_path, "global_step/sec"):
            sess.run(found.train_op)
            sv.summary_writer.flush()
            assert time.monotonic() < deadline
    assert scalars(tmp_path, "p")[0] == (0, 0.0)
    assert all(p == 2.0 * step for step, p in scalars(tmp_path, "p"))
    logs = [event.session_log.status for event in events(tmp_path) if event.HasField("session_log")]
    assert logs[0] == tf1.SessionLog.START and logs[-1] == tf1.SessionLog.STOP
    assert any(event.graph_def for event in events(tmp_path)) and any(e.meta_graph_def for e in events(tmp_path))
    assert (tmp_path / "graph.pbtxt").exists()


def test_an_empty_logdir_is_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    found = counter(summaries=True)
    with found.graph.as_default():
        summaries = tf1.summary.merge_all()
    sv = supervised(found.graph, "", summary_op=None)
    with sv.managed_session() as session, pytest.raises(RuntimeError, match="requires a summary writer"):
        sv.summary_computed(session, session.run(summaries))
    assert not list(tmp_path.iterdir())


def test_a_writer_without_a_logdir_gets_the_graph(tmp_path: Path) -> None:
    found = counter(summaries=True)
    with found.graph.as_default():
        summaries, writer = tf1.summary.merge_all(), tf1.summary.FileWriter(str(tmp_path))
    sv = supervised(found.graph, None, summary_op=None, summary_writer=writer)
    with found.graph.as_default(), sv.managed_session() as session:
        sv.summary_computed(session, session.run(summaries))
    kinds = [event.WhichOneof("what") for event in events(tmp_path)]
    assert kinds == ["file_version", "graph_def", "meta_graph_def", "summary", "session_log"]


def test_the_defaults_are_those_of_the_seeds(tmp_path: Path) -> None:
    found = counter(summaries=True)
    sv = supervised(found.graph, tmp_path)
    assert (sv.save_model_secs, sv.save_summaries_secs, sv.is_chief) == (600, 120, True)
    assert sv.save_path == str(tmp_path / "model.ckpt")
    assert sv.global_step is not None and sv.summary_op is not None and sv.saver is not None
    assert sv.init_op is not None and sv.ready_op is not None and sv.ready_for_local_init_op is None
    assert sv.init_feed_dict is None and sv.session_manager is not None
    assert isinstance(sv.coord, tf1.train.Coordinator)
    assert found.graph.finalized
    with pytest.raises(RuntimeError, match="finalized"), found.graph.as_default():
        tf.constant(1)


def test_ops_of_the_collections_are_taken(tmp_path: Path) -> None:
    found = counter(summaries=True)
    with found.graph.as_default():
        mine = tf1.summary.scalar("mine", 1.0)
        tf1.add_to_collection(tf1.GraphKeys.SUMMARY_OP, mine)
        ready = tf1.report_uninitialized_variables([found.p])
        tf1.add_to_collection(tf1.GraphKeys.READY_OP, ready)
        sv = trainerd.Supervisor(logdir=str(tmp_path))
    assert sv.summary_op is mine and sv.ready_op is ready


def test_init_ops_are_fed_and_what_is_left_uninitialized_is_told() -> None:
    graph = tf1.Graph()
    with graph.as_default():
        fed = tf1.placeholder(tf.float32, [])
        v = tf1.Variable(fed, name="v")
        sv = trainerd.Supervisor(init_feed_dict={fed: 3.0})
        with sv.managed_session() as sess:
            assert sess.run(v) == 3.0
    graph = tf1.Graph()
    with graph.as_default():
        tf1.Variable(1.0, name="forgotten")
        sv = trainerd.Supervisor(init_op=tf.no_op())
        with pytest.raises(RuntimeError, match="Variables not initialized: forgotten"), sv.managed_session():
            pass


def test_no_session_without_a_graph() -> None:
    with pytest.raises(RuntimeError, match="incompatible with eager execution"):
        trainerd.Supervisor()


def test_one_that_is_not_the_chief_starts_no_services(tmp_path: Path) -> None:
    found = counter()
    with found.graph.as_default(), pytest.raises(RuntimeError, match="Only chief supervisor"):
        trainerd.Supervisor(is_chief=False, logdir=str(tmp_path)).start_standard_services(None)
    ref = counter(use_resource=False)
    with ref.graph.as_default(), pytest.raises(ValueError, match="must have their device set"):
        trainerd.Supervisor(is_chief=False)


# ---------------------------------------------------------------------- queues


def test_queue_runners_feed_the_loop(tmp_path: Path) -> None:
    graph = tf1.Graph()
    with graph.as_default():
        queue = tf1.FIFOQueue(5, tf.int64)
        numbers = tf1.train.limit_epochs(tf.constant([1, 2, 3], tf.int64), num_epochs=2)
        runner = tf1.train.QueueRunner(queue, [queue.enqueue_many([numbers])])
        tf1.train.add_queue_runner(runner)
        total = tf1.Variable(0, dtype=tf.int64, name="total")
        step = tf1.train.get_or_create_global_step()
        with tf.control_dependencies([tf1.assign_add(step, 1)]):
            train_op = tf1.assign_add(total, queue.dequeue())
    sv = supervised(graph, tmp_path)
    with sv.managed_session() as sess:
        while not sv.should_stop():
            sess.run(train_op)
    assert value(tmp_path, "total") == 12


# ---------------------------------------------------------------------- TensorFlow's own beside ours


def test_tensorflows_own_programs_go_on_from_our_checkpoints_and_we_from_theirs(tmp_path: Path) -> None:
    train(tmp_path, 10)
    found = counter()
    with found.graph.as_default():
        saver = tf1.train.Saver()
        with tf1.Session() as sess:
            saver.restore(sess, tf.train.latest_checkpoint(str(tmp_path)))
            for _ in range(5):
                sess.run(found.train_op)
            saver.save(sess, str(tmp_path / "model.ckpt"), global_step=found.global_step)
    train(tmp_path, 1)
    assert value(tmp_path) == 32.0 and saved(tmp_path)[:2] == [(16, "finish"), (15, "adopted")]


def test_the_graph_is_beside_the_checkpoint(tmp_path: Path) -> None:
    train(tmp_path, 10)
    with tf1.Graph().as_default(), tf1.Session() as sess:
        tf1.train.import_meta_graph(str(tmp_path / "model.ckpt-10.meta")).restore(sess, str(tmp_path / "model.ckpt-10"))
        assert sess.run("tf_p/Read/ReadVariableOp:0")[0] == 20.0


def test_a_checkpoint_of_theirs_that_is_damaged_is_left_alone(tmp_path: Path) -> None:
    train(tmp_path, 10)
    for suffix in ("index", "data-00000-of-00001"):
        content = (tmp_path / f"model.ckpt-10.{suffix}").read_bytes()
        (tmp_path / f"model.ckpt-20.{suffix}").write_bytes(content[:-5])
    train(tmp_path, 1)
    assert saved(tmp_path)[0][0] == 11 and (tmp_path / "model.ckpt-20.index").exists()


def test_a_damaged_checkpoint_is_not_believed(tmp_path: Path) -> None:
    train(tmp_path, 10)
    train(tmp_path, 10)
    data = tmp_path / "model.ckpt-20.data-00000-of-00001"
    data.write_bytes(bytes(reversed(data.read_bytes())))
    train(tmp_path, 1)
    assert value(tmp_path) == 22.0 and (tmp_path / "quarantine").exists()
    for path in tmp_path.glob("model.ckpt-*.data*"):
        path.write_bytes(b"nothing")
    with pytest.raises(DataError, match="none of the"):
        train(tmp_path, 1)


def test_one_program_at_a_time(tmp_path: Path) -> None:
    found, other = counter(), counter()
    first, second = supervised(found.graph, tmp_path), supervised(other.graph, tmp_path)
    with first.managed_session(), pytest.raises(InUseError), second.managed_session():
        pass
    train(tmp_path, 1)


def test_a_supervisor_may_be_used_again(tmp_path: Path) -> None:
    found = counter()
    sv = supervised(found.graph, tmp_path)
    for _ in range(2):
        with sv.managed_session() as sess:
            assert not sv.should_stop()
            for _ in range(10):
                sess.run(found.train_op)
    assert value(tmp_path) == 40.0
