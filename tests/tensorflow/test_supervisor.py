"""The Supervisor as a library: what programs that use TensorFlow's own rely on, and what ours does beyond it."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import trainerd
from tests import waiting
from tests.cases import every
from tests.conftest import Fork
from tests.tensorflow.graphs import (
    counter,
    ending,
    saved,
    scalars,
    state,
    supervised,
    train_supervised,
    train_to_pause_file,
    value,
    wait_for,
)
from tests.waiting import require_for
from trainerd.rundir import run_events
from trainerd.rundir.paths import RunDirectory
from trainerd.rundir.state import Phase

tf1 = tf.compat.v1


# ---------------------------------------------------------------------- the scenarios of the seeds


def test_the_very_simple_scenario_saves_when_it_ends_and_resumes(tmp_path: Path) -> None:
    train_supervised(tmp_path, 250)
    assert saved(tmp_path)[0] == (250, "finish")
    assert state(tmp_path).phase is Phase.FINISHED
    train_supervised(tmp_path, 50)
    assert saved(tmp_path)[0] == (300, "finish")
    assert value(tmp_path) == 600.0
    events = run_events.read(RunDirectory(tmp_path))
    assert [str(each.kind) for each in events] == ["start", "finish", "start", "resume", "finish"]


def test_threads_that_end_after_the_last_step_have_the_time_of_a_start(tmp_path: Path) -> None:
    """systemd's watchdog waits for no step then."""
    phases: list[Phase] = []

    def put_away() -> None:
        sv.wait_for_stop()
        wait_for(lambda: state(tmp_path).phase is not Phase.TRAINING, sv)
        phases.append(state(tmp_path).phase)

    with counter().graph.as_default():
        sv = trainerd.Supervisor(logdir=str(tmp_path))
        with sv.managed_session():
            assert state(tmp_path).phase is Phase.TRAINING
            thread = threading.Thread(target=put_away)
            sv.coord.register_thread(thread)
            thread.start()
    assert phases == [Phase.FINISHING] and state(tmp_path).phase is Phase.FINISHED


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
    train_supervised(tmp_path / "old", 10)
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
    assert set(threads) == {looper}
    assert [step for step, _ in scalars(tmp_path, "mine")] == seen


def test_a_custom_saver_says_what_is_saved_and_how_much_is_kept(tmp_path: Path) -> None:
    found = counter()
    with found.graph.as_default():
        tf1.get_variable("unsaved", [3])
        my_saver = tf1.train.Saver({"renamed": found.p, "global_step": found.global_step}, max_to_keep=2)
        sv = trainerd.Supervisor(logdir=str(tmp_path), saver=my_saver, save_model_secs=30)
        assert sv.saver is my_saver
        with sv.managed_session() as sess:
            for step in range(1, 5):
                sess.run(found.train_op)
                (tmp_path / "save").touch()
                wait_for(RunDirectory(tmp_path).manifest(step).exists, sv)
    names = {key for key, _ in tf.train.list_variables(str(tmp_path))}
    assert names == {"renamed", "global_step"}
    assert value(tmp_path, "renamed") == 8.0
    assert [step for step, _ in saved(tmp_path)] == [4, 3]


def test_an_edited_checkpoint_file_is_where_it_resumes(tmp_path: Path) -> None:
    for _ in range(3):
        train_supervised(tmp_path, 10)
    lines = (tmp_path / "checkpoint").read_text().splitlines()
    (tmp_path / "checkpoint").write_text("\n".join(['model_checkpoint_path: "model.ckpt-10"', *lines[1:]]) + "\n")
    train_supervised(tmp_path, 5)
    assert value(tmp_path) == 30.0 and saved(tmp_path)[0][0] == 15


# ---------------------------------------------------------------------- pauses and requests


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_stops_the_loop_and_the_step_is_saved(tmp_path: Path, number: int) -> None:
    before = signal.getsignal(number)
    found = counter()
    sv, runs = supervised(found.graph, tmp_path), 0
    with sv.managed_session() as sess:
        while not sv.should_stop():
            sess.run(found.fetches)
            runs += 1  # the step that is fetched beside the train op is that before it, or that after it
            if runs == 100:
                os.kill(os.getpid(), number)
        done = int(sess.run(found.global_step))
    assert saved(tmp_path)[0] == (done, "pause")
    assert state(tmp_path).phase is Phase.PAUSED
    assert signal.getsignal(number) is before


def reasons(logdir: Path) -> list[str]:
    """Why its checkpoints were made, the newest first."""
    return [reason for _, reason in saved(logdir)]


def run_until(session: Any, op: Any, true: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 20
    while not true():
        session.run(op)
        assert time.monotonic() < deadline


def test_a_pause_is_saved_even_where_the_program_does_not_look(tmp_path: Path) -> None:
    """Who asked may kill the process soon."""
    found = counter()
    sv = supervised(found.graph, tmp_path)
    with sv.managed_session() as sess:
        os.kill(os.getpid(), signal.SIGTERM)
        run_until(sess, found.train_op, lambda: "pause" in reasons(tmp_path))


def test_a_pause_is_saved_once_however_many_steps_follow_it(tmp_path: Path) -> None:
    """Else retention would keep none but them."""
    found = counter()
    sv = supervised(found.graph, tmp_path)
    with sv.managed_session() as sess:
        os.kill(os.getpid(), signal.SIGTERM)
        run_until(sess, found.train_op, lambda: "pause" in reasons(tmp_path))
        for _ in range(100):
            sess.run(found.train_op)
            assert reasons(tmp_path) == ["pause", "start"]
        (tmp_path / "pause").touch()  # who asks again is heard again
        run_until(sess, found.train_op, lambda: len(saved(tmp_path)) == 3)
    assert reasons(tmp_path) == ["pause", "pause", "pause", "start"]


UNSTOPPED = """
import os, signal, sys, threading, time
import tensorflow as tf
import trainerd
import trainerd.run.attached
from tests.tensorflow.graphs import counter
from trainerd.errors import StorageError
how, logdir = sys.argv[1:]
found = counter()
save = trainerd.run.attached.AttachedRun.save

def train(sv, session, what=found):
    for _ in range(20):
        session.run(what.train_op)

def fails_once(self, error):
    trainerd.run.attached.AttachedRun.save = save
    raise StorageError("no room")

with found.graph.as_default():
    sv = trainerd.Supervisor(logdir=logdir, save_model_secs=600)
    if how == "thread":
        threading.Thread(target=lambda: train(sv, sv.prepare_or_wait_for_session())).start()
        sys.exit()
    if how == "with":
        entered = sv.managed_session()
        train(sv, entered.__enter__())
        sys.exit()
    session = sv.prepare_or_wait_for_session()
    train(sv, session)
    if how == "service":
        sv.loop(0.1, lambda: 1 / 0)
        while not sv.should_stop():
            session.run(found.train_op)
    if how == "first fails":
        with tf.Graph().as_default():
            other = counter()
        with other.graph.as_default():
            sv2 = trainerd.Supervisor(logdir=logdir + "2", save_model_secs=600)
            train(sv2, sv2.prepare_or_wait_for_session(), other)
        trainerd.run.attached.AttachedRun.save = fails_once
    if how == "pause":
        os.kill(os.getpid(), signal.SIGTERM)
        while not sv.should_stop():
            session.run(found.train_op)
    if how == "failure":
        raise KeyError("my own mistake")
"""


@pytest.mark.parametrize("how", every(6, ["pause", "finish", "failure", "thread", "with", "service"]))
def test_a_program_that_does_not_end_its_session_is_saved_all_the_same(fork: Fork, tmp_path: Path, how: str) -> None:
    (tmp_path / "unstopped.py").write_text(UNSTOPPED)
    program = fork(tmp_path, program="unstopped.py", arguments=[how, "run"])
    assert program.end() == (1 if how == "failure" else 0), program.text
    step, reason = saved(tmp_path / "run")[0]
    expected = {"pause": Phase.PAUSED, "failure": Phase.FAILED, "service": Phase.FAILED}.get(how, Phase.FINISHED)
    why = {Phase.PAUSED: "pause", Phase.FAILED: "failure", Phase.FINISHED: "finish"}[expected]
    assert step >= 20 and reason == why, program.text
    assert state(tmp_path / "run").phase is expected


def test_what_cannot_be_saved_at_the_end_keeps_nothing_else_from_it(fork: Fork, tmp_path: Path) -> None:
    (tmp_path / "unstopped.py").write_text(UNSTOPPED)
    program = fork(tmp_path, program="unstopped.py", arguments=["first fails", str(tmp_path / "run")])
    assert program.end() == 0 and "no room" in program.text, program.text
    found = [state(Path(f"{tmp_path}/run{n}")) for n in ("", "2")]
    assert sorted((each.phase, each.exit_code) for each in found) == [(Phase.FAILED, 74), (Phase.FINISHED, None)]
    assert sorted(saved(Path(f"{tmp_path}/run{n}"))[0][0] for n in ("", "2")) == [0, 20]


STUCK = """
import sys, threading, time
import tensorflow as tf
import trainerd
import trainerd.run.attached
p = tf.Variable(0.0)
began = threading.Event()
sv = trainerd.Supervisor(logdir=sys.argv[1], checkpoint=tf.train.Checkpoint(p=p))
session = sv.prepare_or_wait_for_session()

@tf.function
def step():
    tf.numpy_function(lambda: began.set() or time.sleep(1000), [], [])

threading.Thread(target=session.run, args=(step,), daemon=True).start()
began.wait()
trainerd.run.attached.STUCK_SECS = 0.5
"""


@pytest.mark.long
def test_a_step_that_does_not_end_keeps_no_process_from_ending(fork: Fork, tmp_path: Path) -> None:
    (tmp_path / "stuck.py").write_text(STUCK)
    program = fork(tmp_path, program="stuck.py", arguments=["run"])
    assert program.end() == 0 and "another thread is in the middle of a step" in program.text, program.text


def test_sigusr1_saves_and_training_continues(tmp_path: Path) -> None:
    found = counter()
    sv = supervised(found.graph, tmp_path, save_model_secs=0)
    with sv.managed_session() as sess:
        for _ in range(50):
            sess.run(found.train_op)
        os.kill(os.getpid(), signal.SIGUSR1)
        run_until(sess, found.train_op, lambda: bool(saved(tmp_path)))
        assert not sv.should_stop()
    [(step, reason)] = saved(tmp_path)
    assert step >= 50 and reason == "request"
    assert value(tmp_path) == 2.0 * step


def test_the_pause_file_is_consumed(tmp_path: Path) -> None:
    train_to_pause_file(tmp_path)
    assert not (tmp_path / "pause").exists()
    assert saved(tmp_path)[0][1] == "pause"


def test_what_is_due_is_done_while_the_loop_waits(tmp_path: Path) -> None:
    """Its thread may wait for others that train."""
    found = counter()
    sv = supervised(found.graph, tmp_path, save_model_secs=0)
    with sv.managed_session() as sess:
        sess.run(found.train_op)
        (tmp_path / "save").touch()
        waiting.wait_for(lambda: bool(saved(tmp_path)), "the checkpoint")
    assert saved(tmp_path) == [(1, "request")]


def test_wait_for_stop_receives_a_signal(tmp_path: Path) -> None:
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


EXITS = [
    (SystemExit(3), Phase.FAILED, 3, "SystemExit: 3"),
    (SystemExit("no such data"), Phase.FAILED, 1, "SystemExit: no such data"),
    (KeyboardInterrupt(), Phase.FAILED, 130, "KeyboardInterrupt"),
    (SystemExit(0), Phase.FINISHED, None, None),
    (SystemExit(), Phase.FINISHED, None, None),
]


@pytest.mark.parametrize(("exits", "phase", "code", "said"), EXITS, ids=repr)
@pytest.mark.parametrize("kind", ["run", "monitored"])
def test_an_exit_is_reported_for_what_it_is(
    tmp_path: Path, kind: str, exits: BaseException, phase: Phase, code: int | None, said: str | None
) -> None:
    found = counter()
    with found.graph.as_default(), pytest.raises(type(exits)):
        if kind == "run":
            session = supervised(found.graph, tmp_path).managed_session()
        else:
            session = trainerd.MonitoredTrainingSession(checkpoint_dir=str(tmp_path))
        with session as sess:
            for _ in range(7):
                sess.run(found.train_op)
            raise exits
    assert saved(tmp_path)[0] == (7, "finish" if phase is Phase.FINISHED else "failure")
    left = state(tmp_path)
    assert (left.phase, left.exit_code, left.error) == (phase, code, said)


def test_an_exit_after_a_pause_is_a_pause(tmp_path: Path) -> None:
    found = counter()
    sv = supervised(found.graph, tmp_path)
    with pytest.raises(SystemExit), sv.managed_session() as sess:
        (tmp_path / "pause").touch()
        run_until(sess, found.train_op, sv.should_stop)
        sys.exit(9)
    assert reasons(tmp_path)[0] == "pause" and state(tmp_path).phase is Phase.PAUSED


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


def test_a_signal_while_the_session_is_made_is_received(tmp_path: Path) -> None:
    """It takes long to restore a large model."""
    found = counter()

    def slow(sess: Any) -> None:
        os.kill(os.getpid(), signal.SIGTERM)
        require_for(
            1.6, lambda: not saved(tmp_path), "longer than a loop may keep others waiting, and nothing is saved"
        )

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
        for _ in range(3):
            sess.run(found.train_op)
        sv.loop(0.01, bad)
        run_until(sess, found.train_op, sv.should_stop)
    assert reasons(tmp_path)[0] == "failure" and state(tmp_path).phase is Phase.FAILED
    assert state(tmp_path).step == saved(tmp_path)[0][0]


def test_an_exit_hides_no_error_of_a_service(tmp_path: Path) -> None:
    found = counter()
    sv = supervised(found.graph, tmp_path)
    with pytest.raises(ZeroDivisionError), sv.managed_session() as sess:
        sess.run(found.train_op)
        sv.loop(0.01, lambda: 1 / 0)
        run_until(sess, found.train_op, sv.should_stop)
        sys.exit(0)
    assert reasons(tmp_path)[0] == "failure" and state(tmp_path).phase is Phase.FAILED


def test_an_error_that_a_program_asks_to_stop_with_is_raised_as_it_is(tmp_path: Path) -> None:
    found = counter()
    sv = supervised(found.graph, tmp_path)
    with pytest.raises(ValueError, match="asked for"), sv.managed_session() as sess:
        sess.run(found.train_op)
        sv.request_stop(ValueError("asked for"))
    assert saved(tmp_path)[0] == (1, "failure")


@pytest.mark.parametrize("how", ["service", "block", "request"])
def test_an_exit_on_another_thread_ends_the_session_as_any_error_does(tmp_path: Path, how: str) -> None:
    found = counter()
    sv = supervised(found.graph, tmp_path)
    with pytest.raises(SystemExit) as raised, sv.managed_session() as sess:
        sess.run(found.train_op)
        if how == "service":
            sv.loop(0.01, sys.exit, args=(2,))
        elif how == "block":
            with sv.stop_on_exception():
                sys.exit(2)
        else:
            sv.request_stop(SystemExit(2))
        run_until(sess, found.train_op, sv.should_stop)
    assert raised.value.code == 2 and sv.coord.joined
    assert reasons(tmp_path)[0] == "failure" and state(tmp_path).phase is Phase.FAILED
    train_supervised(tmp_path, 1)


@pytest.mark.parametrize("is_paused", [True, False])
def test_an_error_of_the_program_after_a_pause_is_raised(tmp_path: Path, is_paused: bool) -> None:
    """After a stop of its own a Coordinator takes no more, and what TensorFlow's Supervisor hides then, ours does."""
    found = counter()
    sv = supervised(found.graph, tmp_path)
    raises: Any = pytest.raises(ValueError, match="mine") if is_paused else contextlib.nullcontext()
    with raises, sv.managed_session() as sess:
        sess.run(found.train_op)
        if is_paused:
            (tmp_path / "pause").touch()
        else:
            sv.request_stop()
        run_until(sess, found.train_op, sv.should_stop)
        raise ValueError("mine")
    assert state(tmp_path).phase is Phase.FAILED


def test_queues_that_a_pause_has_closed_are_no_failure(tmp_path: Path) -> None:
    found = counter()
    sv = supervised(found.graph, tmp_path)
    with sv.managed_session() as sess:
        (tmp_path / "pause").touch()
        run_until(sess, found.train_op, sv.should_stop)
        raise tf.errors.CancelledError(None, None, "the queue was closed")
    assert reasons(tmp_path)[0] == "pause"


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
