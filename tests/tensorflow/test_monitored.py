"""MonitoredSessions: what programs that use TensorFlow's own rely on, and what ours do beyond it."""

from __future__ import annotations

import logging
import os
import signal
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import trainerd
from tests.tensorflow.graphs import Recorder, counter, ending, events, saved, scalars, train_monitored, value
from trainerd.errors import DataError, InUseError
from trainerd.loop.signals import open_sessions
from trainerd.rundir.paths import RunDirectory
from trainerd.rundir.state import Phase, read_state

tf1 = tf.compat.v1
STEPS = tf1.train.StopAtStepHook


# ---------------------------------------------------------------------- the tutorials' loop


def test_it_trains_saves_and_resumes(tmp_path: Path) -> None:
    train_monitored(tmp_path, 250)
    assert saved(tmp_path) == [(250, "finish"), (0, "start")] and value(tmp_path) == 500.0
    train_monitored(tmp_path, 300)
    assert value(tmp_path) == 600.0
    state = read_state(tmp_path / "state.json")
    assert state is not None and state.phase is Phase.FINISHED


def test_summaries_and_the_rate_come_when_tensorflows_come(tmp_path: Path) -> None:
    for name, module in (("ours", trainerd), ("theirs", tf1.train)):
        found = counter(summaries=True)
        with found.graph.as_default():
            tf1.add_to_collection(tf1.GraphKeys.GLOBAL_STEP, found.global_step)
            with module.MonitoredTrainingSession(checkpoint_dir=str(tmp_path / name)) as session:
                for _ in range(350):
                    session.run([found.train_op, found.p])
            tf1.summary.FileWriterCache.clear()
    for tag in ("p", "global_step/sec"):
        ours = [step for step, _ in scalars(tmp_path / "ours", tag)]
        theirs = [step for step, _ in scalars(tmp_path / "theirs", tag)]
        # Theirs look at a step that is one late or not, as the two reads happen to run.
        assert len(theirs) >= 3 and all(abs(o - t) <= 2 for o, t in zip(ours[:3], theirs[:3], strict=True))
    assert (tmp_path / "ours" / "graph.pbtxt").exists()
    assert any(event.graph_def for event in events(tmp_path / "ours"))


def test_the_messages_of_the_notebook(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    logger = tf1.get_logger()
    logger.propagate = True
    try:
        with caplog.at_level(logging.INFO, logger="tensorflow"):
            train_monitored(
                tmp_path, 250, hooks=[tf1.train.LoggingTensorHook({"v": tf1.constant(1)}, every_n_iter=100)][:0]
            )
            train_monitored(tmp_path, 251)
    finally:
        logger.propagate = False
    for message in (
        "Create CheckpointSaverHook.",
        "Graph was finalized.",
        "Calling checkpoint listeners before saving checkpoint 0...",
        f"Saving checkpoints for 0 into {tmp_path}/model.ckpt.",
        "Calling checkpoint listeners after saving checkpoint 0...",
        f"Saving checkpoints for 250 into {tmp_path}/model.ckpt.",
        f"Restoring parameters from {tmp_path}/model.ckpt-250",
        "global_step/sec: ",
    ):
        assert message in caplog.text


@pytest.mark.parametrize(
    ("options", "name"),
    [
        ({}, "StepCounterHook"),
        ({"log_step_count_steps": None}, "SummarySaverHook"),
        ({"log_step_count_steps": None, "save_summaries_steps": None}, "CheckpointSaverHook"),
    ],
)
def test_without_a_global_step_it_says_so(tmp_path: Path, options: dict[str, Any], name: str) -> None:
    with (
        tf1.Graph().as_default(),
        pytest.raises(RuntimeError, match=f"Global step should be created to use {name}"),
        trainerd.MonitoredTrainingSession(checkpoint_dir=str(tmp_path), **options),
    ):
        pass


def test_a_checkpoint_whose_variables_have_other_shapes_is_refused(tmp_path: Path) -> None:
    """TensorFlow 2 restores it, and the model may train on."""

    def train(shape: list[int], last_step: int, **options: Any) -> None:
        with tf1.Graph().as_default():
            p = tf1.get_variable("p", shape, use_resource=True)
            train_op = tf.group(p.assign(p * 2.0), tf1.assign_add(tf1.train.get_or_create_global_step(), 1))
            scaffold = tf1.train.Scaffold(saver=tf1.train.Saver(**options))
            hooks = [STEPS(last_step=last_step)]
            with trainerd.MonitoredTrainingSession(
                checkpoint_dir=str(tmp_path), hooks=hooks, scaffold=scaffold
            ) as session:
                while not session.should_stop():
                    session.run(train_op)

    train([4], 2)
    with pytest.raises(DataError, match=r"the variable p has the shape \[4\] there, and \[2, 2\] in the graph"):
        train([2, 2], 4)
    train([2, 2], 4, reshape=True)
    assert 4 in dict(saved(tmp_path))


def test_a_global_step_that_cannot_count_is_named(tmp_path: Path) -> None:
    with tf1.Graph().as_default(), pytest.raises(TypeError, match='Existing "global_step" does not have integer type'):
        tf1.get_variable("global_step", [], trainable=False)
        with trainerd.MonitoredTrainingSession(checkpoint_dir=str(tmp_path)):
            pass


def test_a_global_step_that_nothing_counts_is_warned_of(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    logger = tf1.get_logger()
    logger.propagate = True
    try:
        with tf1.Graph().as_default():
            tf1.train.create_global_step()
            p = tf1.get_variable("p", [], initializer=tf1.zeros_initializer())
            forgot = p.assign_add(1.0)
            with trainerd.MonitoredTrainingSession(checkpoint_dir=str(tmp_path)) as session:
                for _ in range(20):
                    session.run(forgot)
    finally:
        logger.propagate = False
    reported = [record for record in caplog.records if record.getMessage().startswith("It seems that global step")]
    assert len({id(record) for record in reported}) == 5  # another test may have had each handed on twice
    assert "Current value (could be stable): 0 vs previous value: 0." in reported[0].getMessage()


def test_without_a_checkpoint_dir_nothing_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    graph = tf1.Graph()
    with graph.as_default():
        v = tf1.constant(3)
        with trainerd.MonitoredTrainingSession() as session:
            assert session.run(v) == 3 and session.graph is graph
    assert list(tmp_path.iterdir()) == []


def test_a_graph_of_a_notebook_can_be_added_to_afterwards(tmp_path: Path) -> None:
    """As the notebook of the seeds does: the same default graph, session after session."""
    found = counter()
    with found.graph.as_default():
        for last in (10, 20):
            hooks = [STEPS(last_step=last), tf1.train.LoggingTensorHook([tf.constant(1, name="v")], every_n_iter=1)]
            with trainerd.MonitoredTrainingSession(checkpoint_dir=str(tmp_path), hooks=hooks) as session:
                assert found.graph.finalized
                while not session.should_stop():
                    session.run(found.train_op)
            assert not found.graph.finalized
    assert saved(tmp_path)[0] == (20, "finish")


def test_save_checkpoint_steps(tmp_path: Path) -> None:
    found = counter()
    with found.graph.as_default():
        scaffold = tf1.train.Scaffold(saver=tf1.train.Saver(max_to_keep=3))
        with trainerd.MonitoredTrainingSession(
            checkpoint_dir=str(tmp_path), save_checkpoint_steps=100, scaffold=scaffold
        ) as session:
            for _ in range(450):
                session.run(found.train_op)
    assert [step for step, _ in saved(tmp_path)] == [450, 400, 300]


def test_with_none_for_both_nothing_is_saved_and_others_may_train_there(tmp_path: Path) -> None:
    """An evaluation, beside the training that it evaluates."""
    train_monitored(tmp_path, 10)
    training, evaluation = counter(), counter()
    with training.graph.as_default(), trainerd.MonitoredTrainingSession(checkpoint_dir=str(tmp_path)) as session:
        session.run(training.train_op)
        with (
            evaluation.graph.as_default(),
            trainerd.MonitoredTrainingSession(checkpoint_dir=str(tmp_path), save_checkpoint_secs=None) as other,
        ):
            assert other.run(evaluation.p)[0] == 20.0
        with (
            counter().graph.as_default(),
            trainerd.SingularMonitoredSession(checkpoint_dir=str(tmp_path)) as singular,
        ):
            raw: Any = singular.raw_session()
            assert raw.run("tf_p/Read/ReadVariableOp:0")[0] == 20.0
        with counter().graph.as_default(), pytest.raises(InUseError):
            trainerd.MonitoredTrainingSession(checkpoint_dir=str(tmp_path))
    assert saved(tmp_path)[0] == (11, "finish")


def test_a_program_saves_the_session_within_with_a_saver_of_its_own(tmp_path: Path) -> None:
    with counter().graph.as_default():
        saver = tf1.train.Saver()
        for session in (trainerd.MonitoredTrainingSession(), trainerd.SingularMonitoredSession()):
            with session:
                assert isinstance(session._tf_sess(), tf1.Session)
                assert saver.save(session._tf_sess(), str(tmp_path / "own")) == str(tmp_path / "own")
            assert session._tf_sess() is None


def test_they_are_of_tensorflows_types() -> None:
    with counter().graph.as_default():
        with trainerd.MonitoredSession() as session:
            assert isinstance(session, tf1.train.MonitoredSession)
        with trainerd.SingularMonitoredSession() as session:
            assert isinstance(session, tf1.train.SingularMonitoredSession)
            assert isinstance(trainerd.ChiefSessionCreator(), tf1.train.SessionCreator)
    with tf.Graph().as_default():
        assert isinstance(trainerd.Supervisor(logdir=None), tf1.train.Supervisor)


# ---------------------------------------------------------------------- pauses


def test_a_signal_pauses_it(tmp_path: Path) -> None:
    found, runs = counter(), 0
    with found.graph.as_default(), trainerd.MonitoredTrainingSession(checkpoint_dir=str(tmp_path)) as session:
        while not session.should_stop():
            session.run(found.fetches)
            runs += 1  # the step that is fetched beside the train op is that before it, or that after it
            if runs == 100:
                os.kill(os.getpid(), signal.SIGTERM)
        with pytest.raises(RuntimeError, match="Run called even after should_stop requested"):
            session.run(found.train_op)
    assert saved(tmp_path)[0][1] == "pause" and saved(tmp_path)[0][0] >= 100


def test_a_signal_in_a_session_within_a_session_pauses_both(tmp_path: Path) -> None:
    """An evaluation in the middle of the training."""
    found, other = counter(), counter()
    with found.graph.as_default(), trainerd.MonitoredTrainingSession(checkpoint_dir=str(tmp_path)) as training:
        training.run(found.train_op)
        with other.graph.as_default(), trainerd.MonitoredTrainingSession() as evaluation:
            os.kill(os.getpid(), signal.SIGTERM)
            deadline = time.monotonic() + 20
            while not evaluation.should_stop():
                assert time.monotonic() < deadline
        assert training.should_stop()
    assert saved(tmp_path)[0] == (1, "pause")


def test_summaries_are_of_the_steps_own_run(tmp_path: Path) -> None:
    """They may need what is fed, and they must not take batches of their own."""
    graph = tf1.Graph()
    with graph.as_default():
        fed = tf1.placeholder(tf.float32, [])
        batch = tf1.data.make_one_shot_iterator(tf.data.Dataset.range(10)).get_next()
        tf1.summary.scalar("both", fed * tf.cast(batch, tf.float32))
        count = tf1.assign_add(tf1.train.get_or_create_global_step(), 1)
        seen = []
        with trainerd.MonitoredTrainingSession(checkpoint_dir=str(tmp_path), save_summaries_steps=3) as session:
            while not session.should_stop():
                seen.append(int(session.run([batch, count], feed_dict={fed: 2.0})[0]))
    assert seen == list(range(10))


def test_seconds_and_steps_do_not_go_together(tmp_path: Path) -> None:
    with (
        counter().graph.as_default(),
        pytest.raises(ValueError, match="Can not provide both every_secs and every_steps"),
    ):
        trainerd.MonitoredTrainingSession(checkpoint_dir=str(tmp_path), save_checkpoint_secs=1, save_checkpoint_steps=1)


def test_what_is_not_made_needs_no_schedule(tmp_path: Path) -> None:
    """As TensorFlow's: it is the hooks that refuse, and there are none."""
    both: dict[str, Any] = {"save_checkpoint_secs": 60, "save_checkpoint_steps": 100}
    with counter().graph.as_default(), trainerd.MonitoredTrainingSession(**both):
        pass
    with counter().graph.as_default(), pytest.raises(ValueError, match="Can not provide both every_secs"):
        trainerd.MonitoredTrainingSession(
            checkpoint_dir=str(tmp_path), save_checkpoint_secs=0, save_checkpoint_steps=100
        )
    with counter().graph.as_default(), pytest.raises(ValueError, match="both checkpoint_dir and checkpoint_filename"):
        trainerd.SingularMonitoredSession(
            checkpoint_dir=str(tmp_path), checkpoint_filename_with_path=str(tmp_path / "model.ckpt-1")
        )


def test_the_rate_is_logged_each_time_and_each_checkpoint_is_an_event(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, logger="tensorflow")
    found = counter()
    options: dict[str, Any] = {"log_step_count_steps": 2, "save_checkpoint_steps": 20, "save_checkpoint_secs": None}
    with (
        found.graph.as_default(),
        trainerd.MonitoredTrainingSession(
            checkpoint_dir=str(tmp_path), loss=tf.reduce_sum(found.p), **options
        ) as session,
    ):
        for _ in range(40):
            session.run(found.train_op)
    assert len([line for line in caplog.messages if line.startswith("global_step/sec")]) > 15
    assert not [line for line in caplog.messages if line.startswith("history/")], "a point for TensorBoard alone"
    logs = [e for e in events(tmp_path) if e.session_log.status == tf1.SessionLog.CHECKPOINT]
    assert [e.step for e in logs][-1] == 40
    assert logs[-1].session_log.checkpoint_path == str(tmp_path / "model.ckpt-40")


def test_a_hook_of_tensorflows_deletes_what_it_saved_before(tmp_path: Path) -> None:
    for _ in range(4):
        found = counter()
        hook = tf1.train.CheckpointSaverHook(str(tmp_path), save_steps=5)
        with (
            found.graph.as_default(),
            trainerd.SingularMonitoredSession(checkpoint_dir=str(tmp_path), hooks=[hook]) as session,
        ):
            for _ in range(20):
                session.run(found.train_op)
    assert len(list(tmp_path.glob("*.index"))) == 5


def test_a_save_file_saves(tmp_path: Path) -> None:
    found = counter()
    with found.graph.as_default(), trainerd.MonitoredTrainingSession(checkpoint_dir=str(tmp_path)) as session:
        (tmp_path / "save").touch()
        deadline = time.monotonic() + 20
        while "request" not in [reason for _, reason in saved(tmp_path)]:
            session.run(found.train_op)
            assert time.monotonic() < deadline


# ---------------------------------------------------------------------- hooks: order, and errors


def test_the_order_in_which_hooks_are_called(tmp_path: Path) -> None:
    calls: list[str] = []
    found = counter()
    with found.graph.as_default():
        one, two = Recorder("one", calls, fetches=found.global_step), Recorder("two", calls)
        with trainerd.MonitoredTrainingSession(
            checkpoint_dir=str(tmp_path), hooks=[two], chief_only_hooks=[one]
        ) as session:
            _, p = session.run([found.train_op, found.p])
            session.run(found.train_op)
    methods = ["begin", "after_create_session", "before_run", "after_run", "before_run", "after_run", "end"]
    assert calls == [f"{name}.{method}" for method in methods for name in ("one", "two")]
    assert p.shape == (1,) and all(0 <= int(r) <= 2 for r in one.results) and two.results == [None, None]


def test_end_finds_the_last_checkpoint_and_what_it_changes_is_saved_too(tmp_path: Path) -> None:
    """Programs evaluate, copy or upload there."""

    class Ends(tf1.train.SessionRunHook):  # type: ignore[misc,name-defined]
        def end(self, session: Any) -> None:
            newest = tf.train.latest_checkpoint(str(tmp_path))
            seen.append((Path(newest or "").name, float(tf.train.load_variable(newest, "tf_p")[0])))
            session.run(double)

    seen: list[tuple[str, float]] = []
    found = counter()
    with found.graph.as_default():
        double = found.p.assign(found.p * 2.0)
        hooks = [Ends(), tf1.train.StopAtStepHook(30)]
        with trainerd.MonitoredTrainingSession(checkpoint_dir=str(tmp_path), hooks=hooks) as session:
            while not session.should_stop():
                session.run(found.train_op)
    assert seen == [("model.ckpt-30", 60.0)] and value(tmp_path) == 120.0
    assert saved(tmp_path)[0] == (30, "finish")


def test_hooks_of_functions_are_rejected_and_those_of_graphs_named(tmp_path: Path) -> None:
    class Mine(trainerd.hooks.LoggingTensorHook):
        pass

    for hook in (Mine(["p"], every_n_iter=1), trainerd.hooks.CheckpointSaverHook(str(tmp_path), save_steps=1)):
        with (
            counter().graph.as_default(),
            pytest.raises(TypeError, match=rf"use tf\.compat\.v1\.train\.{type(hook).__name__.replace('Mine', 'Log')}"),
        ):
            trainerd.MonitoredTrainingSession(checkpoint_dir=str(tmp_path), hooks=[hook])
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("method", ["begin", "after_create_session", "before_run", "after_run", "end"])
def test_what_a_hook_raises_ends_the_run(tmp_path: Path, method: str) -> None:
    calls: list[str] = []
    found = counter()
    with found.graph.as_default():
        hooks = [Recorder("one", calls, fails_in=method), Recorder("two", calls)]
        with (
            pytest.raises(ZeroDivisionError),
            trainerd.MonitoredTrainingSession(checkpoint_dir=str(tmp_path), hooks=hooks) as session,
        ):
            session.run(found.train_op)
    assert f"two.{method}" not in calls and (method == "end" or "two.end" not in calls)
    assert "finish" not in [reason for _, reason in saved(tmp_path)], "an `end` that fails is called again"
    train_monitored(tmp_path, 20)  # neither lock nor signals are held
    assert value(tmp_path) == 40.0


def test_the_error_of_a_thread_is_the_end_of_a_session_that_is_not_closed(tmp_path: Path) -> None:
    found = counter()
    with found.graph.as_default():
        queue = tf.queue.FIFOQueue(10, tf.float32, [])
        with tf.control_dependencies([tf.debugging.Assert(False, ["no more of it"])]):
            enqueue = queue.enqueue(1.0)
        tf1.train.add_queue_runner(tf1.train.QueueRunner(queue, [enqueue]))
        with open_sessions.ended():
            session = trainerd.MonitoredTrainingSession(checkpoint_dir=str(tmp_path))
            deadline = time.monotonic() + 20
            while not session.should_stop():
                assert time.monotonic() < deadline
    left = read_state(RunDirectory(tmp_path).state)
    assert left is not None and left.phase is Phase.FAILED and "no more of it" in (left.error or "")
    with pytest.raises(tf.errors.InvalidArgumentError):
        session.close()


def test_a_loss_that_is_nan_ends_the_run_and_is_not_saved(tmp_path: Path) -> None:
    found = counter()
    with found.graph.as_default():
        loss = tf.where(found.p[0] > 100.0, np.float32("nan"), 1.0)
        hooks = [tf1.train.NanTensorHook(loss)]
        with (
            pytest.raises(tf1.train.NanLossDuringTrainingError),
            trainerd.MonitoredTrainingSession(checkpoint_dir=str(tmp_path), hooks=hooks) as session,
        ):
            while not session.should_stop():
                session.run(found.train_op)
    assert saved(tmp_path) == [(0, "start")]


def test_the_end_of_the_input_is_a_clean_end(tmp_path: Path) -> None:
    graph, train_op = ending()
    with graph.as_default():
        ended: list[str] = []
        hooks = [Recorder("one", ended)]
        with trainerd.MonitoredTrainingSession(checkpoint_dir=str(tmp_path), hooks=hooks) as session:
            while not session.should_stop():
                session.run(train_op)
    assert ended[-1] == "one.end" and saved(tmp_path)[0] == (7, "finish")


def test_feeds_of_hooks_and_of_the_program(tmp_path: Path) -> None:
    graph = tf1.Graph()
    with graph.as_default():
        a, b = tf1.placeholder(tf.float32, []), tf1.placeholder(tf.float32, [])
        feeding = tf1.train.FeedFnHook(lambda: {a: 1.0})
        with trainerd.MonitoredSession(hooks=[feeding]) as session:
            assert session.run(a + b if False else [a, b], feed_dict={b: 2.0}) == [1.0, 2.0]
            with pytest.raises(RuntimeError, match="Same tensor is fed by a SessionRunHook and user"):
                session.run(a, feed_dict={a: 3.0})
        both = [feeding, tf1.train.FeedFnHook(lambda: {a: 2.0})]
        with (
            trainerd.MonitoredSession(hooks=both) as session,
            pytest.raises(RuntimeError, match="Same tensor is fed by two hooks"),
        ):
            session.run(a)


def test_tensorflows_own_hooks_are_taken_as_they_are(tmp_path: Path) -> None:
    class Listener(tf.compat.v1.train.CheckpointSaverListener):  # type: ignore[misc]
        def __init__(self) -> None:
            self.seen: list[str] = []

        def begin(self) -> None:
            self.seen.append("begin")

        def before_save(self, session: Any, global_step_value: int) -> None:
            self.seen.append(f"before {global_step_value}")

        def after_save(self, session: Any, global_step_value: int) -> bool:
            self.seen.append(f"after {global_step_value}")
            return bool(global_step_value >= 20)

        def end(self, session: Any, global_step_value: int) -> None:
            self.seen.append(f"end {global_step_value}")

    found = counter(summaries=True)
    listener = Listener()
    with found.graph.as_default():
        final = tf1.train.FinalOpsHook(found.p)
        hooks = [
            tf1.train.CheckpointSaverHook(str(tmp_path), save_steps=10, listeners=[listener]),
            tf1.train.StepCounterHook(every_n_steps=5, output_dir=str(tmp_path)),
            tf1.train.SummarySaverHook(save_steps=5, output_dir=str(tmp_path), summary_op=tf1.summary.merge_all()),
            tf1.train.LoggingTensorHook({"p": found.p}, every_n_iter=5),
            tf1.train.GlobalStepWaiterHook(0),
            tf1.train.ProfilerHook(save_steps=7, output_dir=str(tmp_path)),
            final,
        ]
        with trainerd.MonitoredTrainingSession(
            checkpoint_dir=str(tmp_path), save_checkpoint_secs=None, hooks=hooks, save_summaries_steps=None
        ) as session:
            while not session.should_stop():
                session.run(found.train_op)
    assert listener.seen[0] == "begin" and listener.seen[-1] == "end 20" and "after 20" in listener.seen
    assert final.final_ops_values[0] == 40.0
    assert list(tmp_path.glob("timeline-*.json"))
    train_monitored(tmp_path, 30)  # goes on from what TensorFlow's own hook saved
    assert value(tmp_path) == 60.0 and (20, "adopted") in saved(tmp_path)


class _NeverReady:
    """A SessionManager whose model the chief never makes ready."""

    def __init__(self) -> None:
        self.looks = 0

    def wait_for_session(self, master: str, config: Any = None, max_wait_secs: float = 0) -> Any:
        self.looks += 1
        raise tf.errors.DeadlineExceededError(None, None, f"not ready after {max_wait_secs}")


def test_a_worker_that_waits_for_its_chief_receives_a_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    with tf.Graph().as_default():
        tf.compat.v1.train.get_or_create_global_step()
        creator = trainerd.WorkerSessionCreator(max_wait_secs=60)
        manager = _NeverReady()
        monkeypatch.setattr(tf1.train.SessionManager, "wait_for_session", manager.wait_for_session)
        naps: list[float] = []
        monkeypatch.setattr("trainerd.programs.monitored.session_creators.time.sleep", naps.append)
        monkeypatch.setattr("trainerd.programs.monitored.session_creators.is_pause_pending", lambda: len(naps) == 3)
        with pytest.raises(SystemExit) as caught:
            creator.create_session()
        assert caught.value.code == 0 and manager.looks == 4
        naps.clear()
        late = trainerd.WorkerSessionCreator(max_wait_secs=0)
        with pytest.raises(tf.errors.DeadlineExceededError):
            late.create_session()
