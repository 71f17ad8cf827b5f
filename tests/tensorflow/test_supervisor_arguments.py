"""What the arguments of a Supervisor mean, and TensorFlow's own programs beside it."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest
import tensorflow as tf

import trainerd
from tests.tensorflow.chromium import poll
from tests.tensorflow.graphs import (
    counter,
    events,
    saved,
    scalars,
    state,
    supervised,
    train_supervised,
    train_to_pause_file,
    value,
)
from tests.tensorflow.noting import instances
from trainerd.errors import DataError, InUseError
from trainerd.run.boundary import Boundary
from trainerd.run.host import ProcessHost
from trainerd.run.run import Run
from trainerd.rundir.state import Phase

tf1 = tf.compat.v1


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
    train_supervised(tmp_path, 20, save_model_secs=0)
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


def test_summaries_are_on_disk_before_their_checkpoint_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    synced: list[tuple[list[tuple[int, str]], int]] = []

    def note(path: Path) -> None:
        synced.append((saved(tmp_path), len(scalars(tmp_path, "p"))))

    monkeypatch.setattr("trainerd.sessions.tf1.events.fsync_file", note)
    found = counter(summaries=True)
    with found.graph.as_default():
        summaries = tf1.summary.merge_all()
    sv = supervised(found.graph, tmp_path, summary_op=None, save_model_secs=0)
    with sv.managed_session() as session:
        session.run(found.train_op)
        sv.summary_computed(session, session.run(summaries))
        os.kill(os.getpid(), signal.SIGTERM)
        while not sv.should_stop():
            session.run(found.train_op)
    assert synced == [([], 1)] and saved(tmp_path)


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


def test_supervisors_of_one_graph_may_follow_one_another(tmp_path: Path) -> None:
    """The first has finalized it."""
    found = counter(summaries=True)
    for expected in (1, 2, 3):
        with supervised(found.graph, tmp_path).managed_session() as session:
            session.run(found.train_op)
            assert session.run(found.global_step) == expected
        assert found.graph.finalized and saved(tmp_path)[0][0] == expected


def test_ops_of_the_collections_are_taken(tmp_path: Path) -> None:
    found = counter(summaries=True)
    with found.graph.as_default():
        mine = tf1.summary.scalar("mine", 1.0)
        tf1.add_to_collection(tf1.GraphKeys.SUMMARY_OP, mine)
        ready = tf1.report_uninitialized_variables([found.p])
        tf1.add_to_collection(tf1.GraphKeys.READY_OP, ready)
        sv = trainerd.Supervisor(logdir=str(tmp_path))
    assert sv.summary_op is mine and sv.ready_op is ready


def test_init_ops_are_fed_and_what_is_left_uninitialized_is_reported() -> None:
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


@pytest.mark.parametrize("starts_them", ["the supervisor", "the program", "a thread of its own"])
def test_a_summary_may_read_what_fills_later(tmp_path: Path, starts_them: str) -> None:
    """The first summary is no part of starting the services: what fills the queue is started after them."""
    graph = tf1.Graph()
    with graph.as_default():
        queue = tf1.FIFOQueue(5, tf.float32, shapes=[[]])
        enqueue, x = queue.enqueue(1.0), queue.dequeue()
        if starts_them != "a thread of its own":
            tf1.train.add_queue_runner(tf1.train.QueueRunner(queue, [enqueue]))
        tf1.summary.scalar("x", x)
        train_op = tf.group(tf1.assign_add(tf1.train.get_or_create_global_step(), 1), x)
    sv = supervised(graph, tmp_path)
    with sv.managed_session(start_standard_services=starts_them == "the supervisor") as sess:
        if starts_them == "the program":
            sv.start_standard_services(sess)
            sv.start_queue_runners(sess)
        if starts_them == "a thread of its own":
            sv.start_standard_services(sess)
            sv.coord.register_thread(thread := threading.Thread(target=lambda: [sess.run(enqueue) for _ in range(15)]))
            thread.start()
        for _ in range(10):
            sess.run(train_op)
    assert [e.step for e in events(tmp_path) if any(v.tag == "x" for v in e.summary.value)]


# ---------------------------------------------------------------------- TensorFlow's own beside ours


def test_tensorflows_own_programs_resume_from_our_checkpoints_and_we_from_theirs(tmp_path: Path) -> None:
    train_supervised(tmp_path, 10)
    found = counter()
    with found.graph.as_default():
        saver = tf1.train.Saver()
        with tf1.Session() as sess:
            saver.restore(sess, tf.train.latest_checkpoint(str(tmp_path)))
            for _ in range(5):
                sess.run(found.train_op)
            saver.save(sess, str(tmp_path / "model.ckpt"), global_step=found.global_step)
    train_supervised(tmp_path, 1)
    assert value(tmp_path) == 32.0 and saved(tmp_path)[:2] == [(16, "finish"), (15, "adopted")]


def test_a_saver_of_the_programs_own_keeps_no_more_with_each_start(tmp_path: Path) -> None:
    for start in range(4):
        found = counter()
        with found.graph.as_default():
            sv = trainerd.Supervisor(logdir=str(tmp_path), save_model_secs=0, saver=tf1.train.Saver(max_to_keep=2))
            with sv.managed_session() as sess:
                assert sess.run(found.global_step) == 6 * start
                for _ in range(6):
                    sess.run(found.train_op)
                    sv.saver.save(sess, str(tmp_path / "own"), global_step=sv.global_step)
        assert len(list(tmp_path.glob("*.index"))) == 2


def test_a_session_that_saves_nothing_deletes_nothing(tmp_path: Path) -> None:
    """Of a run that kept more than this program's Saver would, which it may only look at."""
    found = counter()
    with found.graph.as_default(), tf1.Session() as sess:
        saver = tf1.train.Saver(max_to_keep=100)
        sess.run(tf1.global_variables_initializer())
        for _ in range(10):
            sess.run(found.train_op)
            saver.save(sess, str(tmp_path / "model.ckpt"), global_step=found.global_step)
    for _ in range(2):
        found = counter()
        with supervised(found.graph, tmp_path, save_model_secs=0).managed_session() as sess:
            assert sess.run(found.global_step) == 10
        assert len(list(tmp_path.glob("*.index"))) == 10


def test_paths_begin_as_the_program_names_the_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.chdir(tmp_path)
    found = counter()
    with found.graph.as_default():
        sv = trainerd.Supervisor(logdir="./run")
        with sv.managed_session() as sess:
            sess.run(found.train_op)
            path = sv.saver.save(sess, sv.save_path, global_step=sv.global_step)
            assert path == "./run/model.ckpt-1" == sv.saver.last_checkpoints[-1]
    found = counter()
    with (
        found.graph.as_default(),
        caplog.at_level("INFO", logger="tensorflow"),
        trainerd.MonitoredTrainingSession(checkpoint_dir="./monitored") as session,
    ):
        session.run(found.train_op)
    assert "Saving checkpoints for 0 into ./monitored/model.ckpt." in caplog.text


def test_the_graph_is_beside_the_checkpoint(tmp_path: Path) -> None:
    train_supervised(tmp_path, 10)
    with tf1.Graph().as_default(), tf1.Session() as sess:
        tf1.train.import_meta_graph(str(tmp_path / "model.ckpt-10.meta")).restore(sess, str(tmp_path / "model.ckpt-10"))
        assert sess.run("tf_p/Read/ReadVariableOp:0")[0] == 20.0


def test_a_checkpoint_of_theirs_that_is_damaged_is_left_alone(tmp_path: Path) -> None:
    train_supervised(tmp_path, 10)
    for suffix in ("index", "data-00000-of-00001"):
        content = (tmp_path / f"model.ckpt-10.{suffix}").read_bytes()
        (tmp_path / f"model.ckpt-20.{suffix}").write_bytes(content[:-5])
    train_supervised(tmp_path, 1)
    assert saved(tmp_path)[0][0] == 11 and (tmp_path / "model.ckpt-20.index").exists()


def test_a_damaged_checkpoint_is_not_believed(tmp_path: Path) -> None:
    train_supervised(tmp_path, 10)
    train_supervised(tmp_path, 10)
    data = tmp_path / "model.ckpt-20.data-00000-of-00001"
    data.write_bytes(bytes(reversed(data.read_bytes())))
    train_supervised(tmp_path, 1)
    assert value(tmp_path) == 22.0 and (tmp_path / "quarantine").exists()
    for path in tmp_path.glob("model.ckpt-*.data*"):
        path.write_bytes(b"nothing")
    with pytest.raises(DataError, match="none of the"):
        train_supervised(tmp_path, 1)


def test_one_program_at_a_time(tmp_path: Path) -> None:
    found, other = counter(), counter()
    first, second = supervised(found.graph, tmp_path), supervised(other.graph, tmp_path)
    with first.managed_session(), pytest.raises(InUseError), second.managed_session():
        pass
    train_supervised(tmp_path, 1)


def test_a_supervisor_may_be_used_again(tmp_path: Path) -> None:
    found = counter()
    sv = supervised(found.graph, tmp_path)
    for _ in range(2):
        with sv.managed_session() as sess:
            assert not sv.should_stop()
            for _ in range(10):
                sess.run(found.train_op)
    assert value(tmp_path) == 40.0


def test_a_global_step_may_have_the_shape_of_a_vector(tmp_path: Path) -> None:
    with tf1.Graph().as_default():
        global_step = tf1.Variable([123], name="global_step", use_resource=True)
        train_op = tf1.assign_add(global_step, [1])
        sv = trainerd.Supervisor(logdir=str(tmp_path), global_step=global_step)
        with sv.managed_session() as session:
            for _ in range(2):
                session.run(train_op)
    assert saved(tmp_path)[0] == (125, "finish")


@pytest.mark.parametrize("kind", ["supervisor", "monitored"])
def test_a_session_that_failed_and_was_not_closed_makes_way(
    tmp_path: Path, kind: str, caplog: pytest.LogCaptureFixture
) -> None:
    """A notebook's cell, run again. What failed in its middle is not saved."""
    ends = list[Callable[[], object]]()  # a notebook holds on to what it has made

    def cell(fails: bool) -> int:
        found = counter()
        with found.graph.as_default():
            torn = tf1.group(found.train_op, tf.debugging.Assert(False, ["no"]))
            if kind == "supervisor":
                sv = trainerd.Supervisor(graph=found.graph, logdir=str(tmp_path))
                session = sv.prepare_or_wait_for_session()
                ends.append(sv.stop)
            else:
                session = trainerd.MonitoredTrainingSession(checkpoint_dir=str(tmp_path))
                ends.append(session.close)
        begun = int(session.run(found.global_step))
        for _ in range(3):
            session.run(found.train_op)
        if fails:
            with pytest.raises(tf.errors.InvalidArgumentError):
                session.run(torn)
        return begun

    assert [cell(True), cell(False)] == [0, 0]
    assert "has failed and was not closed. It is closed now" in caplog.text
    with pytest.raises(InUseError, match="That is this process"):  # it may train on
        cell(False)
    for end in ends[:2]:
        end()
    assert saved(tmp_path)[0] == (3, "finish")


@pytest.mark.parametrize("kind", ["supervisor", "monitored"])
def test_a_session_that_was_paused_and_not_closed_makes_way_for_the_next(
    tmp_path: Path, kind: str, caplog: pytest.LogCaptureFixture
) -> None:
    """A notebook's cell, interrupted and run again."""

    def cell() -> tuple[int, Callable[[], object]]:
        found = counter()
        sv = trainerd.Supervisor(graph=found.graph, logdir=str(tmp_path)) if kind == "supervisor" else None
        with found.graph.as_default():
            made = trainerd.MonitoredTrainingSession(checkpoint_dir=str(tmp_path)) if sv is None else None
            session = made or sv.prepare_or_wait_for_session()  # type: ignore[union-attr]
        begun = int(session.run(found.global_step))
        (tmp_path / "pause").touch()
        while not (sv or session).should_stop():
            session.run(found.train_op)
        return begun, sv.stop if sv is not None else session.close

    begun, ends = zip(*(cell() for _ in range(2)), strict=True)
    assert begun[0] == 0 < begun[1]
    assert "was asked to stop and was not closed. It is closed now" in caplog.text
    ends[1]()
    newest, reason = saved(tmp_path)[0]
    assert newest > begun[1] and reason == "pause"


def test_who_watches_sees_a_checkpoint_get_written(tmp_path: Path) -> None:
    watched = list[Callable[[], object]]()

    class Watching(ProcessHost):
        def guarded(self, run: Run, *, is_driven: bool) -> contextlib.AbstractContextManager[None]:
            watched.append(run.store.progress)
            return super().guarded(run, is_driven=is_driven)

    found = counter()
    sv = trainerd.Supervisor(graph=found.graph, logdir=str(tmp_path), save_model_secs=0, host=Watching())
    with sv.managed_session() as session:
        session.run(found.train_op)
        before = watched[0]()
        (tmp_path / "pause").touch()
        sv.wait_for_stop()
    assert len(watched) == 1 and watched[0]() != before


def as_a_script(monkeypatch: pytest.MonkeyPatch) -> None:
    """No person is at a prompt; and what earlier tests were asked, a session of a person has taken."""
    with counter().graph.as_default(), trainerd.MonitoredSession():
        pass
    monkeypatch.delattr(sys, "ps1")


@pytest.mark.parametrize("kind", ["supervisor", "monitored"])
def test_a_program_of_several_sessions_ends_where_it_was_asked_to_pause(
    tmp_path: Path, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A loop of trainings and evaluations does not outlive SIGTERM; a person at a prompt goes on, see conftest.py."""

    def train(logdir: Path) -> int:
        found = counter()
        sv = trainerd.Supervisor(graph=found.graph, logdir=str(logdir)) if kind == "supervisor" else None
        with found.graph.as_default():
            made = sv.managed_session() if sv else trainerd.MonitoredTrainingSession(checkpoint_dir=str(logdir))
            with made as session:
                for _ in range(3):
                    if not (sv or session).should_stop():
                        session.run(found.train_op)
                os.kill(os.getpid(), signal.SIGTERM)
                while not (sv or session).should_stop():
                    pass
        return saved(logdir)[0][0]

    as_a_script(monkeypatch)
    assert train(tmp_path / "run") == 3
    with pytest.raises(SystemExit) as ended:
        train(tmp_path / "run")
    assert ended.value.code == 0 and saved(tmp_path / "run")[0] == (3, "pause")
    assert train(tmp_path / "run") == 6  # it has caught that, and goes on
    with pytest.raises(SystemExit):
        train(tmp_path / "another")  # the signal was the process's
    monkeypatch.setattr(sys, "ps1", ">>> ", raising=False)
    assert train(tmp_path / "run") == 9


def test_a_signal_in_a_session_without_a_run_directory_ends_the_program_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    as_a_script(monkeypatch)
    found = counter()
    with found.graph.as_default(), trainerd.MonitoredSession() as session:
        os.kill(os.getpid(), signal.SIGTERM)
        while not session.should_stop():
            session.run(found.train_op)
    with pytest.raises(SystemExit):
        supervised(counter().graph, tmp_path).prepare_or_wait_for_session()
    train_to_pause_file(tmp_path)
    with pytest.raises(SystemExit):
        supervised(counter().graph, tmp_path).prepare_or_wait_for_session()


@pytest.mark.parametrize("kind", ["supervisor", "monitored"])
@pytest.mark.parametrize("is_there", [False, True])
def test_a_session_whose_folder_was_removed_makes_way(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str, is_there: bool
) -> None:
    """A notebook's cell, run again for a new beginning; what the old session still does is not the new one's."""
    folder, boundaries = tmp_path / "run", instances(monkeypatch, Boundary)

    def cell(steps: int) -> tuple[Callable[[], object], Callable[[], object]]:
        found = counter()
        with found.graph.as_default():
            if kind == "supervisor":
                sv = trainerd.Supervisor(graph=found.graph, logdir=str(folder), save_model_secs=0.2)
                session, end = sv.prepare_or_wait_for_session(), sv.stop
            else:
                session = trainerd.MonitoredTrainingSession(checkpoint_dir=str(folder), save_checkpoint_secs=0.2)
                end = session.close
        assert session.run(found.global_step) == 0
        for _ in range(steps):
            session.run(found.train_op)
        return end, lambda: session.run(found.train_op)

    old_end, old_step = cell(5)
    poll(lambda: saved(folder), "the first checkpoint, which would go into the new folder")
    while folder.exists():  # and one may begin meanwhile
        shutil.rmtree(folder, ignore_errors=True)
    if is_there:
        folder.mkdir()
    end, step = cell(2)
    poll(lambda: saved(folder), "the first checkpoint of the new session")
    poll(lambda: boundaries[-1].flag.is_raised or len(saved(folder)) > 1, "a save to be due, in the old session too")
    old_step()
    assert max(step for step, _ in saved(folder)) <= 2
    old_end()
    step()
    end()
    assert saved(folder)[0][0] == 3 and state(folder).phase is Phase.FINISHED


def test_a_session_within_another_one_of_its_run_directory_is_shown_which_one_is_in_its_way(tmp_path: Path) -> None:
    found = counter()
    sv = trainerd.Supervisor(graph=found.graph, logdir=str(tmp_path))
    with sv.managed_session() as session:
        session.run(found.train_op)
        other = trainerd.Supervisor(graph=counter().graph, logdir=str(tmp_path))
        with pytest.raises(InUseError, match="That is this process"):
            other.prepare_or_wait_for_session()
        session.run(found.train_op)
    assert saved(tmp_path)[0] == (2, "finish")
