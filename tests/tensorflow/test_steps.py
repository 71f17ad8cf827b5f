"""The Supervisor over TensorFlow 2 functions: what it promises of graphs, for programs that have none."""

from __future__ import annotations

import json
import os
import signal
import threading
import time
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf

import trainerd
from tests.cases import every
from tests.tensorflow.chromium import poll
from tests.tensorflow.graphs import counter, events, once, saved, scalars, state, wait_for
from tests.tensorflow.noting import instances
from tests.tensorflow.programs import Count, Program, program
from trainerd.errors import DataError, EntryError, InUseError, StorageError
from trainerd.loop.flag import Request
from trainerd.run.boundary import Boundary
from trainerd.rundir.state import Phase


def run(sv: Any, step: Any, count: int, *, at_once: bool = False) -> Any:
    """So many steps of a program, or fewer where it is asked to stop. The last figures."""
    with sv.managed_session() as session:
        if at_once:
            return session.run(step, steps=count)
        last = None
        while not sv.should_stop() and count:
            last, count = session.run(step), count - 1
    return last


def weights(found: Program) -> list[Any]:
    return [v.numpy() for v in [*found.model.variables, *found.optimizer.variables]]


# ---------------------------------------------------------------------- steps


@pytest.mark.parametrize("at_once", [False, True])
def test_it_saves_when_it_ends_and_resumes(tmp_path: Path, at_once: bool) -> None:
    first = Count()
    last = run(first.supervised(tmp_path), first.step, 250, at_once=at_once)
    assert last["p"] == 500.0 and last["p"].dtype == np.float32 and isinstance(last["loss"], np.float32)
    assert saved(tmp_path) == [(250, "finish")] and state(tmp_path).phase is Phase.FINISHED
    assert state(tmp_path).metrics["p"] == 500.0
    second = Count()
    run(second.supervised(tmp_path), second.step, 50, at_once=at_once)
    assert saved(tmp_path)[0] == (300, "finish") and second.p.numpy() == 600.0


def test_a_plain_function_becomes_a_tf_function_once() -> None:
    traced = []
    p = tf.Variable(0)

    def step(by: tf.Tensor | int = 1) -> tf.Tensor:
        traced.append(by)
        return p.assign_add(by)

    sv = trainerd.Supervisor(checkpoint=tf.train.Checkpoint(p=p))
    with sv.managed_session() as session:
        assert [session.run(step) for _ in range(5)] == [1, 2, 3, 4, 5]
        assert session.run(step, steps=10) == 15 and session.step == 15
        assert session.run(step, feed_dict={"by": tf.constant(5)}) == 20
        with pytest.raises(ValueError, match="without a feed_dict"):
            session.run(step, feed_dict={"by": 5}, steps=2)
        for wrong in (0, -1, 1.5, "3"):
            with pytest.raises(ValueError, match="steps must be a whole number, 1 or more"):
                session.run(step, steps=wrong)
        with pytest.raises(TypeError, match="takes a step function"):
            session.run(p)
    assert len(traced) == 2


@pytest.mark.parametrize("kind", ["supervisor", "monitored"])
@pytest.mark.parametrize("steps", [None, 100])
def test_a_step_is_run_in_any_case(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str, steps: int | None
) -> None:
    """A pause may come between `should_stop` and `run`, whose result the program takes for one."""
    boundaries = instances(monkeypatch, Boundary)
    p, found = tf.Variable(0.0), list[float]()
    checkpoint = tf.train.Checkpoint(p=p)
    options: dict[str, Any] = {} if steps is None else {"steps": steps}
    if kind == "supervisor":
        sv = trainerd.Supervisor(checkpoint=checkpoint, logdir=str(tmp_path))
        opened: Any = sv.managed_session()
    else:
        opened = trainerd.MonitoredTrainingSession(checkpoint=checkpoint, checkpoint_dir=str(tmp_path))
    with opened as session:
        asks = sv if kind == "supervisor" else session
        while not asks.should_stop():
            if len(found) == 1:
                (tmp_path / "pause").touch()
                poll(lambda: boundaries[-1].flag.wants(Request.PAUSE), "the request file to be seen")
            found.append(session.run(lambda: {"p": p.assign_add(2.0)}, **options)["p"])
    done = steps or 1
    assert found == [2.0 * done, 2.0 * done + 2.0] and state(tmp_path).phase is Phase.PAUSED
    assert saved(tmp_path)[0] == (done + 1, "pause")


def test_a_method_is_traced_once() -> None:
    class Trainer(tf.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            self.p, self.traced = tf.Variable(0, dtype=tf.int64), 0

        def step(self) -> Any:
            self.traced += 1
            return self.p.assign_add(1)

    trainers = [Trainer(), Trainer()]
    sv = trainerd.Supervisor(checkpoint=tf.train.Checkpoint(all=trainers))
    with sv.managed_session() as session:
        for trainer in trainers:
            for _ in range(5):
                session.run(trainer.step)
            assert session.run(trainer.step, steps=10) == 15
    assert [trainer.traced for trainer in trainers] == [1, 1]


@pytest.mark.parametrize("returned", [lambda p: None, lambda p: p, lambda p: {"p": p, "twice": 2 * p}])
def test_what_the_step_returns_is_returned_of_the_last_one(returned: Any) -> None:
    p = tf.Variable(0, dtype=tf.int64)
    sv = trainerd.Supervisor(checkpoint=tf.train.Checkpoint(p=p))
    with sv.managed_session() as session:
        one = session.run(lambda: returned(p.assign_add(1)))
        many = session.run(lambda: returned(p.assign_add(1)), steps=7)
    assert (one is None) == (many is None)
    if one is not None:
        assert type(one) is type(many) and tf.nest.flatten(many) == [n * 8 for n in tf.nest.flatten(one)]


def test_the_functions_may_count_the_steps_themselves(tmp_path: Path) -> None:
    found = program()
    sv = found.supervised(tmp_path, global_step=found.optimizer.iterations)
    run(sv, found.step, 5)
    run(sv, found.step, 5, at_once=True)
    assert saved(tmp_path)[0] == (10, "finish") and found.optimizer.iterations.numpy() == 10


def test_several_functions_may_be_run(tmp_path: Path) -> None:
    count = Count()
    with count.supervised(tmp_path).managed_session() as session:
        session.run(count.step, steps=5)
        session.run(lambda: count.p.assign(0.0), steps=2)
        session.run(count.step, steps=3)
    assert saved(tmp_path)[0] == (10, "finish") and count.p.numpy() == 6.0


# ---------------------------------------------------------------------- exactness


@pytest.mark.parametrize(("stops", "at_once"), every(2, [([3, 30], True), ([1], False)]))
def test_in_parts_it_is_what_it_is_in_one(tmp_path: Path, stops: list[int], at_once: bool) -> None:
    """The model is only built by its first step, and the data stands in mid-epoch, or at an epoch's end."""
    whole, last = program(), 0
    run(whole.supervised(None), whole.step, 40)
    for stop in [*stops, 40]:
        part = program()
        run(part.supervised(tmp_path), part.step, stop - last, at_once=at_once)
        last = stop
    for mine, theirs in zip(weights(part), weights(whole), strict=True):
        assert np.array_equal(mine, theirs)


def test_a_checkpoint_is_one_of_tensorflow(tmp_path: Path) -> None:
    first = program()
    run(first.supervised(tmp_path), first.step, 9)
    other = program()
    other.model.build((None, 1))
    other.optimizer.build(other.model.trainable_variables)
    path = tf.train.latest_checkpoint(str(tmp_path))
    other.checkpoint.read(path).assert_consumed()
    for mine, theirs in zip(other.model.weights, first.model.weights, strict=True):
        assert np.array_equal(mine.numpy(), theirs.numpy())


def test_it_resumes_from_a_checkpoint_of_tensorflows(tmp_path: Path) -> None:
    first = Count()
    manager = tf.train.CheckpointManager(tf.train.Checkpoint(p=first.p), str(tmp_path), max_to_keep=2)
    first.p.assign(8.0)
    manager.save()
    second = Count()
    run(second.supervised(tmp_path), second.step, 3)
    assert second.p.numpy() == 14.0 and saved(tmp_path)[0] == (3, "finish")


# ---------------------------------------------------------------------- what is not built yet


def two_parts() -> tuple[Any, Any, Any]:
    one, two = (keras.Sequential([keras.layers.Dense(1)]) for _ in range(2))
    return one, two, tf.train.Checkpoint(one=one, two=two)


def touch(model: Any) -> Any:
    def step() -> tf.Tensor:
        value = tf.reduce_sum(model(tf.ones([1, 1])))
        model.trainable_variables[0].assign_add([[1.0]])
        return value

    return step


def test_nothing_is_saved_while_a_restored_part_is_not_built(tmp_path: Path) -> None:
    one, two, checkpoint = two_parts()
    with trainerd.Supervisor(checkpoint=checkpoint, logdir=str(tmp_path)).managed_session() as session:
        session.run(touch(one))
        session.run(touch(two))
    kernel = two.weights[0].numpy()
    again, never, checkpoint = two_parts()
    sv = trainerd.Supervisor(checkpoint=checkpoint, logdir=str(tmp_path))
    with pytest.raises(StorageError, match="step 3 is not saved"), sv.managed_session() as session:
        session.run(touch(again))
    assert [step for step, _ in saved(tmp_path)] == [2] and not never.weights
    one, late, checkpoint = two_parts()
    sv = trainerd.Supervisor(checkpoint=checkpoint, logdir=str(tmp_path))
    with sv.managed_session() as session:
        session.run(touch(one))
        session.run(touch(late))
    assert saved(tmp_path)[0] == (4, "finish") and np.array_equal(late.weights[0].numpy(), kernel + 1.0)


def test_what_takes_the_place_of_an_object_is_saved(tmp_path: Path) -> None:
    for expected in (3, 3):
        checkpoint, total = tf.train.Checkpoint(), tf.Variable(0, dtype=tf.int64)
        checkpoint.total, checkpoint.batches = total, iter(tf.data.Dataset.range(100))
        sv = trainerd.Supervisor(checkpoint=checkpoint, logdir=str(tmp_path), save_model_secs=0.01)
        with sv.managed_session() as session:
            if session.step:
                assert int(next(checkpoint.batches)) == expected
            session.run(lambda c=checkpoint, t=total: t.assign_add(next(c.batches)))
            wait_for(lambda: saved(tmp_path), sv)
            checkpoint.batches = iter(tf.data.Dataset.range(100))
            for _ in range(3):
                session.run(lambda c=checkpoint, t=total: t.assign_add(next(c.batches)))


def test_an_object_may_be_replaced_right_after_a_resume(tmp_path: Path) -> None:
    """Before anything was saved in this start."""
    for _ in range(2):
        total = tf.Variable(0, dtype=tf.int64)
        checkpoint = tf.train.Checkpoint(total=total, batches=iter(tf.data.Dataset.range(100)))
        with trainerd.Supervisor(checkpoint=checkpoint, logdir=str(tmp_path)).managed_session() as session:
            for _ in range(2):
                session.run(lambda c=checkpoint, t=total: t.assign_add(next(c.batches)))
                checkpoint.batches = iter(tf.data.Dataset.range(100))
    assert saved(tmp_path)[0] == (4, "finish")


def test_steps_are_for_the_loops_thread_and_counted(tmp_path: Path) -> None:
    count, failed = Count(), []

    def other(session: Any) -> None:
        try:
            session.run(count.step, steps=5)
        except RuntimeError as error:
            failed.append(str(error))

    with count.supervised(tmp_path).managed_session() as session:
        thread = threading.Thread(target=other, args=(session,))
        thread.start()
        thread.join()
    assert "steps is for the loop of the thread" in failed[0]
    sv = count.supervised(tmp_path / "own", global_step=tf.Variable(0, dtype=tf.int64))
    with pytest.raises(RuntimeError, match="each run has to add 1"), sv.managed_session() as session:
        session.run(count.step, steps=5)


def test_a_program_that_never_builds_it_is_another_program(tmp_path: Path) -> None:
    one, two, checkpoint = two_parts()
    with trainerd.Supervisor(checkpoint=checkpoint, logdir=str(tmp_path)).managed_session() as session:
        session.run(touch(one))
        session.run(touch(two))
    one, _, checkpoint = two_parts()
    sv = trainerd.Supervisor(checkpoint=checkpoint, logdir=str(tmp_path), save_model_secs=0.05)
    step = tf.function(touch(one))
    with pytest.raises(DataError, match="no variables for two/"), sv.managed_session() as session:
        while not sv.should_stop():
            session.run(step)
    assert [step for step, _ in saved(tmp_path)] == [2]
    one, _, _ = two_parts()  # what is no part any more is gone knowingly
    run(trainerd.Supervisor(checkpoint=tf.train.Checkpoint(one=one), logdir=str(tmp_path)), touch(one), 1)
    assert saved(tmp_path)[0] == (3, "finish")


# ---------------------------------------------------------------------- the flag


@pytest.mark.parametrize("at_once", [False, True])
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_stops_the_loop_and_the_step_is_saved(tmp_path: Path, number: int, at_once: bool) -> None:
    count = Count()
    thread = once(lambda: count.p.numpy() > 0, lambda: os.kill(os.getpid(), number))
    run(count.supervised(tmp_path), count.step, 10**9, at_once=at_once)
    thread.join()
    step, reason = saved(tmp_path)[0]
    assert reason == "pause" and count.p.numpy() == 2.0 * step > 0
    assert state(tmp_path).phase is Phase.PAUSED


@pytest.mark.parametrize("at_once", [False, True])
def test_sigusr1_saves_and_the_loop_continues(tmp_path: Path, at_once: bool) -> None:
    count = Count()
    sv = count.supervised(tmp_path)
    threads = [
        once(lambda: count.p.numpy() > 0, lambda: os.kill(os.getpid(), signal.SIGUSR1)),
        once(lambda: saved(tmp_path), (tmp_path / "pause").touch),
    ]
    run(sv, count.step, 10**9, at_once=at_once)
    for thread in threads:
        thread.join()
    assert [reason for _, reason in saved(tmp_path)] == ["pause", "request"]
    assert not (tmp_path / "pause").exists()


def test_services_are_called_between_steps_that_are_in_the_graph(tmp_path: Path) -> None:
    count, seen = Count(), []
    sv = count.supervised(tmp_path)
    with sv.managed_session() as session:
        sv.loop(0.05, lambda: seen.append((session.step, float(count.p.numpy()))))
        thread = once(lambda: len(seen) > 3 and seen[-1][0] > seen[0][0], sv.request_stop)
        session.run(count.step, steps=10**9)
        thread.join()
    assert len(seen) > 3 and all(p == 2.0 * step for step, p in seen) and seen[-1][0] > seen[0][0]


def test_checkpoints_summaries_and_the_rate_come_on_schedule(tmp_path: Path) -> None:
    found = program()
    sv = found.supervised(
        tmp_path,
        save_model_secs=0.2,
        save_summaries_secs=0.2,
        summary_op=lambda: tf.summary.scalar("own", 7.0),
    )
    with sv.managed_session() as session:
        session.run(found.step)
        wait_for(lambda: len(saved(tmp_path)) >= 2 or not session.run(found.step, steps=20), sv)
        sv.summary_computed(session, {"mine": 5.0})
        session.run(found.step)
    assert "schedule" in {reason for _, reason in saved(tmp_path)}
    tags = {value.tag for event in events(tmp_path) for value in event.summary.value}
    assert {"loss", "own", "global_step/sec", "mine"} <= tags
    assert sv.summary_writer is None and sv.save_path == str(tmp_path / "model.ckpt")


def test_the_metrics_curves_have_points_by_steps(tmp_path: Path) -> None:
    count = Count()
    with count.supervised(tmp_path, metrics_steps=10).managed_session() as session:
        session.run(count.step)
        session.run(count.step, steps=22)  # in the graph, which is not left for a point
    assert scalars(tmp_path, "p") == [(10, 20.0), (20, 40.0), (23, 46.0)]  # the last one is that of the end


def test_the_metrics_curves_have_points_by_seconds(tmp_path: Path) -> None:
    count = Count()
    sv = count.supervised(tmp_path, metrics_secs=0.05, save_summaries_secs=0)
    with sv.managed_session() as session:
        wait_for(lambda: len(scalars(tmp_path, "p")) >= 2 or not session.run(count.step, steps=20), sv)


def test_a_schedule_of_the_curves_that_cannot_be_followed_is_refused() -> None:
    with pytest.raises(ValueError, match="metrics_steps: expected 0 or more, got -5"):
        Count().supervised(None, metrics_steps=-5)
    with pytest.raises(ValueError, match=r"metrics_secs=3 is for functions, .* set `save_summaries_secs`"):
        trainerd.Supervisor(graph=counter().graph, metrics_secs=3)


def test_what_is_due_is_done_while_the_program_waits(tmp_path: Path) -> None:
    count = Count()
    sv = count.supervised(tmp_path)
    with sv.managed_session() as session:
        session.run(count.step)
        (tmp_path / "save").touch()
        wait_for(lambda: saved(tmp_path), sv)
    assert saved(tmp_path) == [(1, "request")]


# ---------------------------------------------------------------------- how it ends


def test_the_end_of_the_data_is_a_clean_end(tmp_path: Path) -> None:
    for at_once in (False, True):
        found, folder = program(repeats=False), tmp_path / str(at_once)
        with found.supervised(folder).managed_session() as session:
            while True:
                session.run(found.step, steps=4) if at_once else session.run(found.step)
        assert saved(folder) == [(15, "finish")]


def test_a_step_that_fails_is_raised_as_it_is_and_not_saved(tmp_path: Path) -> None:
    p = tf.Variable(0)

    def step() -> tf.Tensor:
        tf.debugging.assert_less(p.assign_add(1), 4, "too large")
        return p.read_value()

    for steps in (None, 10):
        p.assign(0)
        sv = trainerd.Supervisor(checkpoint=tf.train.Checkpoint(p=p), logdir=str(tmp_path / str(steps)))
        with pytest.raises(tf.errors.InvalidArgumentError, match="too large"), sv.managed_session() as session:
            while True:
                session.run(step, steps=steps)
        assert not saved(tmp_path / str(steps)) and state(tmp_path / str(steps)).phase is Phase.FAILED


def test_an_error_of_the_loop_is_raised_and_its_last_step_saved(tmp_path: Path) -> None:
    count = Count()
    with pytest.raises(KeyError), count.supervised(tmp_path).managed_session() as session:
        session.run(count.step, steps=3)
        raise KeyError("mine")
    assert saved(tmp_path) == [(3, "failure")]


def test_without_a_logdir_nothing_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    count = Count()
    sv = count.supervised(None)
    with sv.managed_session() as session:
        session.run(count.step, steps=3)
        with pytest.raises(RuntimeError, match="requires a summary writer"):
            sv.summary_computed(session, {"x": 1.0})
    assert not list(tmp_path.iterdir())


def test_init_fn_is_called_where_there_is_no_checkpoint(tmp_path: Path) -> None:
    for expected in (104.0, 108.0):
        count = Count()
        run(count.supervised(tmp_path, init_fn=lambda session, c=count: c.p.assign(100.0)), count.step, 2)
        assert count.p.numpy() == expected


def test_init_fn_is_not_called_for_a_session_that_has_trained(tmp_path: Path) -> None:
    count = Count()
    sv = count.supervised(tmp_path, init_fn=lambda session: count.p.assign(100.0), save_model_secs=0)
    session = sv.prepare_or_wait_for_session()
    session.run(count.step, steps=2)
    sv.stop()
    sv.start_standard_services(session)
    sv.stop()
    assert count.p.numpy() == 104.0


def test_a_supervisor_may_be_used_again(tmp_path: Path) -> None:
    count = Count()
    sv = count.supervised(tmp_path)
    for steps in (3, 6):
        run(sv, count.step, 3)
        assert saved(tmp_path)[0] == (steps, "finish")
    assert len(list(tmp_path.glob("events.out.tfevents.*"))) == 2


# ---------------------------------------------------------------------- what it does not take


@pytest.mark.parametrize(
    ("options", "error", "words"),
    [
        ({"checkpoint": {"p": 1}}, EntryError, "expected a tf.train.Checkpoint, got a dict"),
        ({"init_op": None, "saver": object()}, ValueError, "saver: with `checkpoint` there is no graph"),
        ({"graph": tf.Graph()}, ValueError, "graph: with"),
        ({"is_chief": False}, ValueError, "one process trains by itself"),
    ],
)
def test_what_belongs_to_graphs_is_refused(options: dict[str, Any], error: type[Exception], words: str) -> None:
    with pytest.raises(error, match=words):
        trainerd.Supervisor(**{"checkpoint": tf.train.Checkpoint(p=tf.Variable(1.0)), **options})


def test_another_model_does_not_fit(tmp_path: Path) -> None:
    run(Count().supervised(tmp_path), Count().step, 1)
    wrong = trainerd.Supervisor(checkpoint=tf.train.Checkpoint(p=tf.Variable([1.0, 2.0])), logdir=str(tmp_path))
    with pytest.raises(DataError, match="does not fit the program"), wrong.managed_session():
        pass


def test_one_program_at_a_time(tmp_path: Path) -> None:
    one, two = Count().supervised(tmp_path), Count().supervised(tmp_path)
    with one.managed_session(), pytest.raises(InUseError), two.managed_session():
        pass
    assert json.loads((tmp_path / "state.json").read_text())["phase"] == "finished"


@pytest.mark.parametrize("secs_to_fetch", [0.01, pytest.param(0.0, marks=pytest.mark.long)])
def test_the_order_of_later_epochs_is_that_of_a_run_in_one(tmp_path: Path, secs_to_fetch: float) -> None:
    """It is saved where all of an epoch was fetched, or perhaps not yet."""

    def train(logdir: Path, steps: int) -> int:
        total = tf.Variable(0, dtype=tf.int64)
        batches = tf.data.Dataset.range(11).shuffle(11, seed=4).batch(4).repeat()
        checkpoint = tf.train.Checkpoint(total=total, batches=iter(batches))
        sv = trainerd.Supervisor(checkpoint=checkpoint, logdir=str(logdir))
        with sv.managed_session() as session:
            for _ in range(steps):
                session.run(lambda: total.assign((total * 31 + next(checkpoint.batches)[0]) % 1_000_003))
            time.sleep(secs_to_fetch)
        return int(total)

    whole = train(tmp_path / "whole", 24)
    parts = [train(tmp_path / "parts", steps) for steps in (2, 1, 3, 3, 15)]
    assert parts[-1] == whole


@pytest.mark.parametrize("within", [True, False])
def test_an_order_that_cannot_be_known_is_reported_once(
    tmp_path: Path, within: bool, caplog: pytest.LogCaptureFixture
) -> None:
    total = tf.Variable(0, dtype=tf.int64)
    numbers = tf.data.Dataset.range(10).shuffle(10)
    numbers = (numbers.repeat(2) if within else numbers).batch(3).repeat()
    checkpoint = tf.train.Checkpoint(total=total, numbers=iter(numbers))
    sv = trainerd.Supervisor(checkpoint=checkpoint, logdir=str(tmp_path), save_model_secs=0.01)
    with sv.managed_session() as session:
        for _ in range(3):
            session.run(lambda: total.assign_add(next(checkpoint.numbers)[0]))
            checkpoint.numbers = iter(numbers)
    assert caplog.text.count("the next epochs may have another order") == within
