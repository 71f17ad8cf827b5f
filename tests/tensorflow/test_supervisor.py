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
from tests.tensorflow.graphs import Counter, counter, events, scalars
from trainerd.checkpoints import catalogue, manifest
from trainerd.errors import DataError, InUseError
from trainerd.rundir import RunDirectory
from trainerd.sessions.graphstate import GraphState
from trainerd.state import Phase, State, read_state

tf1 = tf.compat.v1


def supervised(graph: Any, logdir: Path | None, **options: Any) -> Any:
    with graph.as_default():
        return trainerd.Supervisor(logdir=None if logdir is None else str(logdir), **options)


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


def saved(logdir: Path) -> list[tuple[int, str]]:
    rundir = RunDirectory(logdir)
    return [(s, manifest.read(rundir.manifest(s)).reason) for s in catalogue.resume_order(rundir)]


def state(logdir: Path) -> State:
    found = read_state(logdir / "state.json")
    assert found is not None
    return found


def value(logdir: Path, name: str = "tf_p") -> Any:
    return tf.train.load_checkpoint(str(logdir)).get_tensor(name)


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


def wait_for(happened: Any, sv: Any, seconds: float = 20.0) -> None:
    """Loop as a program does that has no step to run."""
    deadline = time.monotonic() + seconds
    while not happened():
        assert time.monotonic() < deadline
        sv.should_stop()
        time.sleep(0.01)


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
    graph = tf1.Graph()
    with graph.as_default():
        step = tf1.train.get_or_create_global_step()
        batch = tf1.data.make_one_shot_iterator(tf.data.Dataset.range(7)).get_next()
        with tf.control_dependencies([batch]):
            train_op = tf1.assign_add(step, 1)
    sv = supervised(graph, tmp_path)
    with sv.managed_session() as sess:
        while True:
            sess.run(train_op)
    assert saved(tmp_path)[0] == (7, "finish")
    assert state(tmp_path).phase is Phase.FINISHED


def test_summaries_that_need_the_input_do_not_keep_the_end_from_being_saved(tmp_path: Path) -> None:
    graph = tf1.Graph()
    with graph.as_default():
        step = tf1.train.get_or_create_global_step()
        batch = tf1.data.make_one_shot_iterator(tf.data.Dataset.range(7)).get_next()
        tf1.summary.scalar("batch", batch)
        with tf.control_dependencies([batch]):
            train_op = tf1.assign_add(step, 1)
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


# ---------------------------------------------------------------------- snapshots, and inputs


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
            first = state.take(session, 0, {})
            handles = dict(first.handles)
            read = found.graph.get_operation_by_name("trainerd/GetSessionTensor").outputs[0]
            assert session.run(read, handles) is not None
            del first
            state.take(session, 0, {})
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
    real = GraphState.initializes

    def looking(state: GraphState, fetches: Any) -> dict[str, str]:
        looks.append(fetches)
        return real(state, fetches)

    monkeypatch.setattr(GraphState, "initializes", looking)
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


@pytest.mark.parametrize("kind", ["one-shot", "local init op", "by the program"])
def test_an_input_goes_on_in_mid_epoch(tmp_path: Path, kind: str) -> None:
    def batches(logdir: Path, counts: list[int]) -> list[int]:
        seen = []
        for count in counts:
            graph, fetch, _, init = shuffled(kind)
            sv = supervised(graph, logdir)
            with sv.managed_session() as sess:
                if kind == "by the program":
                    sess.run(init)
                seen += [int(sess.run(fetch)) for _ in range(count)]
        return seen

    whole = batches(tmp_path / "whole", [300])
    assert batches(tmp_path / "parts", [1, 99, 150, 50]) == whole


def test_an_epoch_that_the_program_begins_later_begins_anew(tmp_path: Path) -> None:
    """The first initialization after a resume is the one that the run was in."""
    graph, fetch, _, init = shuffled("by the program")
    with supervised(graph, tmp_path).managed_session() as sess:
        sess.run(init)
        first = [int(sess.run(fetch)) for _ in range(10)]
    graph, fetch, _, init = shuffled("by the program")
    with supervised(graph, tmp_path).managed_session() as sess:
        sess.run(init)
        assert int(sess.run(fetch)) not in first
        sess.run(init)
        assert int(sess.run(fetch)) == first[0]


def test_an_iterator_of_two_datasets_goes_on_in_the_one_that_it_was_in(tmp_path: Path) -> None:
    """A run that was paused in the middle of a validation trains on training data when it is started again."""

    def build() -> tuple[Any, ...]:
        graph = tf1.Graph()
        with graph.as_default():
            train_data = tf.data.Dataset.range(100).shuffle(50, seed=1)
            held_out = tf.data.Dataset.range(1000, 1100).shuffle(50, seed=1)
            iterator = tf1.data.Iterator.from_structure(tf.int64, [])
            inits = iterator.make_initializer(train_data), iterator.make_initializer(held_out)
            batch = iterator.get_next()
            step = tf1.train.get_or_create_global_step()
            with tf.control_dependencies([batch]):
                return graph, tf.group(tf1.assign_add(step, 1)), batch, *inits

    graph, train_op, batch, begin_training, begin_validation = build()
    with supervised(graph, tmp_path).managed_session() as sess:
        sess.run(begin_training)
        for _ in range(20):
            sess.run(train_op)
        sess.run(begin_validation)
        assert sess.run(batch) >= 1000 and sess.run(batch) >= 1000
    graph, train_op, batch, begin_training, begin_validation = build()
    with supervised(graph, tmp_path).managed_session() as sess:
        sess.run(begin_training)
        seen = [sess.run([train_op, batch])[1] for _ in range(20)]
    assert max(seen) < 100


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
    monkeypatch.setattr("trainerd.supervisor.boundary.STUCK_SECS", 0.3)
    graph = tf1.Graph()
    with graph.as_default():
        queue = tf1.FIFOQueue(5, tf.float32, shapes=[[]])
        enqueue, dequeue = queue.enqueue(1.0), queue.dequeue()
        tf1.train.get_or_create_global_step()
    sv = supervised(graph, tmp_path)
    with sv.managed_session() as sess:
        sv.loop(0.01, sess.run, args=(enqueue,))
        assert [sess.run(dequeue) for _ in range(3)] == [1.0] * 3


def test_it_may_be_stopped_by_another_thread(tmp_path: Path) -> None:
    found = counter()
    sv = supervised(found.graph, tmp_path)
    before = signal.getsignal(signal.SIGTERM)
    sess = sv.prepare_or_wait_for_session()
    sess.run(found.train_op)
    thread = threading.Thread(target=sv.stop)
    thread.start()
    thread.join()
    sess.close()
    signal.signal(signal.SIGTERM, before)
    assert saved(tmp_path)[0] == (1, "finish")


def test_an_input_that_cannot_be_saved_is_told(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    graph = tf1.Graph()
    with graph.as_default():
        dataset = tf.data.Dataset.from_generator(lambda: iter(range(100)), tf.int64)
        batch = tf1.data.make_one_shot_iterator(dataset.repeat()).get_next()
        step = tf1.train.get_or_create_global_step()
        with tf.control_dependencies([batch]):
            train_op = tf1.assign_add(step, 1)
    with supervised(graph, tmp_path).managed_session() as sess:
        for _ in range(3):
            sess.run(train_op)
    assert "position of an input is not saved" in caplog.text
    assert saved(tmp_path)[0][0] == 3


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
