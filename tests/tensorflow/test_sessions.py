"""What every session does, and the exactness of a resume: one suite over all of them."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf

import trainerd
from tests.fake import FakeSession
from trainerd.checkpoints.snapshot import UnsoundError
from trainerd.config.schema import CheckpointConfig, Config
from trainerd.errors import ConfigError, DataError, EntryError, JobError
from trainerd.loop.contract import Session
from trainerd.loop.flag import Flag, Request
from trainerd.proof.check import rehearse
from trainerd.sessions.input import iterators
from trainerd.sessions.input.iterators import begin
from trainerd.sessions.tf2.job_session import FunctionSession

CONFIG = Config(entry="a:b", logdir="r")


def counter() -> FunctionSession:
    """p goes up by 2; the loss is 1/step."""
    p = tf.Variable(0.0, dtype=tf.float64)

    def train_step() -> dict[str, tf.Tensor]:
        now = p.assign_add(2.0)
        return {"loss": 2.0 / now, "p": now}

    return FunctionSession(trainerd.Job(train_step, state={"p": p}))


SESSIONS: list[Callable[[], Session]] = [FakeSession, counter]


@pytest.fixture(params=SESSIONS, ids=["fake", "function"])
def make(request: pytest.FixtureRequest) -> Callable[[], Session]:
    """Makes new sessions of one kind, all alike."""
    return request.param  # type: ignore[no-any-return]


def bound(session: Session) -> Flag:
    flag = Flag()
    session.bind(flag)
    return flag


# ---------------------------------------------------------------------- the contract


def test_steps_are_run_to_the_limit_with_a_row_each(make: Callable[[], Session]) -> None:
    session = make()
    bound(session)
    steps = session.run_until(5)
    assert (steps.first, list(steps.names), session.step) == (1, ["loss", "p"], 5)
    assert np.allclose(steps.rows, [[1 / n, 2.0 * n] for n in range(1, 6)])
    assert steps.rows.dtype == np.float64 and not steps.ended
    assert steps.last() == {"loss": 0.2, "p": 10.0}
    again = session.run_until(7)
    assert again.first == 6 and len(again.rows) == 2
    assert len(session.run_until(7).rows) == 0


def test_a_raised_flag_stops_it_at_once_and_before(make: Callable[[], Session]) -> None:
    session = make()
    flag = bound(session)
    flag.raise_for(Request.SAVE)
    assert len(session.run_until(10).rows) == 0
    flag.take()
    timer = threading.Timer(0.2, lambda: flag.raise_for(Request.PAUSE))
    timer.start()
    while not flag.is_raised:
        session.run_until(2**62)
    timer.join()
    stopped = session.step
    assert stopped > 0
    session.run_until(2**62)
    assert session.step == stopped


def test_a_flag_raised_before_it_is_bound_counts(make: Callable[[], Session]) -> None:
    session, flag = make(), Flag()
    flag.raise_for(Request.PAUSE)
    session.bind(flag)
    assert len(session.run_until(10).rows) == 0


def test_a_snapshot_restores_into_another(make: Callable[[], Session], tmp_path: Path) -> None:
    first, second = make(), make()
    bound(first), bound(second)
    first.run_until(30)
    first.snapshot().write(tmp_path / "model.ckpt-30", lambda size: None)
    second.run_until(3)
    second.restore(tmp_path / "model.ckpt-30")
    assert second.step == 30
    assert np.array_equal(first.run_until(60).rows, second.run_until(60).rows)


def test_a_snapshot_is_of_its_boundary_though_it_is_written_later(make: Callable[[], Session], tmp_path: Path) -> None:
    first, second = make(), make()
    bound(first), bound(second)
    first.run_until(30)
    snapshot = first.snapshot()
    expected = first.run_until(60).rows
    snapshot.write(tmp_path / "model.ckpt-30", lambda size: None)
    second.restore(tmp_path / "model.ckpt-30")
    assert second.step == 30 == snapshot.step
    assert np.array_equal(second.run_until(60).rows, expected)


def test_what_does_not_fit_is_reported(make: Callable[[], Session], tmp_path: Path) -> None:
    session = make()
    with pytest.raises(DataError, match="does not fit the job"):
        session.restore(tmp_path / "nothing-1")


def test_a_rehearsal_goes_through(make: Callable[[], Session]) -> None:
    lines = list(rehearse(make(), CONFIG))
    assert any(line.startswith("save: ") for line in lines) and any("verified" in line for line in lines)


def test_a_rehearsal_finds_a_target_that_is_never_reached() -> None:
    session = FakeSession(figures=lambda step: {"loss": 0.5})
    with pytest.raises(ConfigError, match=r"no metric 'val_los'.*Did you mean 'val_loss'"):
        list(rehearse(session, replace(CONFIG, target="val_los <= 1")))
    with pytest.raises(ConfigError, match=r"checkpoint\.best: .* Did you mean 'val_loss'"):
        list(rehearse(session, replace(CONFIG, checkpoint=CheckpointConfig(best="min val_los"))))
    both = replace(CONFIG, target="val_loss <= 0.1", checkpoint=CheckpointConfig(best="min val_loss"))
    assert list(rehearse(session, both))


# ---------------------------------------------------------------------- TensorFlow 2 functions


def test_checkpoints_are_tensorflows_own(tmp_path: Path) -> None:
    session = counter()
    bound(session)
    session.run_until(30)
    prefix = str(tmp_path / "model.ckpt-30")
    session.snapshot().write(Path(prefix), lambda size: None)
    assert tf.train.load_checkpoint(prefix).get_tensor("p/.ATTRIBUTES/VARIABLE_VALUE") == 60.0
    p, step = tf.Variable(0.0, dtype=tf.float64), tf.Variable(0, dtype=tf.int64)
    tf.train.Checkpoint(p=p, global_step=step).read(prefix).assert_consumed()
    assert (p.numpy(), step.numpy()) == (60.0, 30)


def learners_job() -> trainerd.Job:
    """All that a resume must not lose."""
    keras.utils.set_random_seed(3)
    x = tf.random.stateless_normal([100, 4], [1, 2])
    y = tf.reduce_sum(x, axis=1, keepdims=True)
    dataset = tf.data.Dataset.from_tensor_slices((x, y)).shuffle(50, seed=5).repeat().batch(8)
    model = keras.Sequential([keras.layers.Input((4,)), keras.layers.Dropout(0.3, seed=9), keras.layers.Dense(1)])
    optimizer = keras.optimizers.Adam(0.01)
    random = tf.random.Generator.from_seed(4)

    def train_step(batch: tuple[tf.Tensor, tf.Tensor]) -> dict[str, tf.Tensor]:
        inputs, targets = batch
        noisy = inputs + random.normal(tf.shape(inputs))
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean((model(noisy, training=True) - targets) ** 2)
        optimizer.apply(tape.gradient(loss, model.trainable_variables), model.trainable_variables)
        return {"loss": loss}

    return trainerd.Job(train_step, dataset=dataset, state={"m": model, "o": optimizer, "r": random})


def learner() -> FunctionSession:
    return FunctionSession(learners_job())


def test_a_resumed_run_is_the_run_that_was_never_interrupted(tmp_path: Path) -> None:
    calm = learner()
    bound(calm)
    expected = calm.run_until(60).rows
    done = []
    for start, stop in ((0, 7), (7, 8), (8, 33), (33, 60)):
        session = learner()
        bound(session)
        if start:
            session.restore(tmp_path / f"model.ckpt-{start}")
        done.append(session.run_until(stop).rows)
        session.snapshot().write(tmp_path / f"model.ckpt-{stop}", lambda size: None)
    assert np.array_equal(np.concatenate(done), expected)


def test_a_run_goes_back_while_tensorflow_ends_what_it_has_read_with(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """TensorFlow may take a minute for that. The steps are those of a session that was made anew."""
    may_end = threading.Event()

    def slowly(dataset: tf.data.Dataset, iterator: Any) -> None:
        may_end.wait(60)
        begin(dataset, iterator)

    monkeypatch.setattr(iterators, "begin", slowly)
    session = learner()
    flag = bound(session)
    session.run_until(3)
    session.snapshot().write(tmp_path / "model.ckpt-3", lambda size: None)
    first = session.run_until(8).rows
    session.restore(tmp_path / "model.ckpt-3")
    again = session.run_until(8).rows
    assert np.array_equal(first, again) and not may_end.is_set()
    flag.raise_for(Request.SAVE)
    assert len(session.run_until(20).rows) == 0, "the flag is still looked at"
    may_end.set()
    [old] = [each for each in threading.enumerate() if each.name == "trainerd-old-input"]
    old.join(60)


def test_tensorflow_alone_reads_all_of_a_keras_job(tmp_path: Path) -> None:
    """Though seed generators are saved beside what its object graph names."""
    session = learner()
    bound(session)
    session.run_until(5)
    session.snapshot().write(tmp_path / "a-5", lambda size: None)
    other = learners_job()
    FunctionSession(other)  # which makes the optimizer's variables
    step = tf.Variable(0, dtype=tf.int64)
    assert other.dataset is not None
    parts = tf.train.Checkpoint(**other.state, global_step=step, iterator=iter(other.dataset))
    parts.read(str(tmp_path / "a-5")).assert_consumed()
    assert step == 5
    keys = [name for name, _ in tf.train.list_variables(str(tmp_path / "a-5"))]
    assert any(key.startswith("hidden/m/") for key in keys)


@pytest.mark.parametrize("kind", ["dense", "scatter", "embedding"])
def test_a_snapshot_of_what_is_written_in_place_keeps_its_values(tmp_path: Path, kind: str) -> None:
    """Sparse updates write into a variable's own memory, where a dense one takes new memory anyway."""
    v = tf.Variable(tf.zeros([1000, 8]))
    optimizer = keras.optimizers.SGD(1.0)
    optimizer.build([v])

    def train_step() -> None:
        if kind == "dense":
            v.assign_add(tf.ones_like(v))
        elif kind == "scatter":
            v.scatter_nd_add([[3]], tf.ones([1, 8]))
        else:
            with tf.GradientTape() as tape:
                loss = -tf.reduce_sum(tf.gather(v, [3, 4]))
            optimizer.apply(tape.gradient([loss], [v]), [v])

    session = FunctionSession(trainerd.Job(train_step, state={"v": v, "optimizer": optimizer}))
    bound(session)
    for stop in (5, 9, 12):  # the first sparse write changes how the variable is read from then on
        session.run_until(stop)
        snapshot = session.snapshot()
        session.run_until(stop + 2)
        snapshot.write(tmp_path / f"a-{stop}", lambda size: None)
        value = tf.train.load_checkpoint(str(tmp_path / f"a-{stop}")).get_tensor("v/.ATTRIBUTES/VARIABLE_VALUE")
        assert value[3].tolist() == [stop] * 8
        assert v[3].numpy().tolist() == [stop + 2] * 8


class Counted(tf.train.experimental.PythonState):  # type: ignore[misc]
    """A part of a state that is Python's."""

    def __init__(self) -> None:
        self.count = 0

    def serialize(self) -> str:
        return str(self.count)

    def deserialize(self, string_value: bytes) -> None:
        self.count = int(string_value)


def test_python_state_and_tables_are_saved_as_they_are_then(tmp_path: Path) -> None:
    def make() -> tuple[FunctionSession, Counted, Any]:
        counted, table = Counted(), tf.lookup.experimental.MutableHashTable(tf.string, tf.int64, -1)
        job = trainerd.Job(lambda: None, state={"counted": counted, "table": table})
        return FunctionSession(job), counted, table

    session, counted, table = make()
    counted.count = 5
    table.insert("a", 7)
    snapshot = session.snapshot()
    counted.count = 6
    table.insert("a", 8)
    snapshot.write(tmp_path / "a-0", lambda size: None)
    other, counted, table = make()
    other.restore(tmp_path / "a-0")
    assert counted.count == 5 and table.lookup(tf.constant("a")) == 7


def test_a_table_that_writes_in_place_is_saved_as_it_was_then(tmp_path: Path) -> None:
    def make() -> tuple[FunctionSession, Any]:
        table = tf.lookup.experimental.DenseHashTable(tf.int64, tf.int64, -1, -1, -2, initial_num_buckets=64)
        return FunctionSession(trainerd.Job(lambda: None, state={"table": table})), table

    session, table = make()
    one, two = tf.constant([1], tf.int64), tf.constant([2], tf.int64)
    table.insert(one, one)
    snapshot = session.snapshot()
    table.insert(one, two)
    table.insert(two, two)
    snapshot.write(tmp_path / "a-0", lambda size: None)
    other, table = make()
    other.restore(tmp_path / "a-0")
    assert table.lookup(one) == 1 and table.lookup(two) == -1


def test_the_end_of_the_data_is_reported_with_the_last_rows() -> None:
    session = FunctionSession(trainerd.Job(lambda x: {"x": x}, dataset=tf.data.Dataset.range(5), state={}))
    bound(session)
    steps = session.run_until(100)
    assert steps.ended and session.step == 5
    assert steps.rows[:, 0].tolist() == [0, 1, 2, 3, 4]
    assert session.run_until(100).ended


def test_an_out_of_range_of_the_step_itself_is_a_failure() -> None:
    inner = iter(tf.data.Dataset.range(3))
    session = FunctionSession(trainerd.Job(lambda x: {"x": next(inner)}, dataset=tf.data.Dataset.range(100), state={}))
    bound(session)
    with pytest.raises(JobError, match="the job failed in step 4") as caught:
        session.run_until(100)
    assert not caught.value.sound and caught.value.step == 3


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_the_loop_ends_with_the_step_whose_loss_is_no_number(bad: float) -> None:
    n = tf.Variable(0.0)

    def train_step() -> dict[str, tf.Tensor]:
        return {"other": tf.constant(bad), "loss": tf.where(n.assign_add(1.0) == 7.0, bad, 1.0)}

    session = FunctionSession(trainerd.Job(train_step, state={"n": n}))
    bound(session)
    steps = session.run_until(100)
    assert session.step == 7 and not np.isfinite(steps.rows[-1][1])
    lenient = FunctionSession(trainerd.Job(train_step, state={"n": n}), stop_on_nan=False)
    bound(lenient)
    lenient.run_until(100)
    assert lenient.step == 100


def test_a_nan_is_not_saved_unless_it_may_be(tmp_path: Path) -> None:
    v = tf.Variable([1.0, float("nan")])
    job = trainerd.Job(lambda: None, state={"part": {"v": v}})
    with pytest.raises(UnsoundError, match="'part/v' holds a NaN"):
        FunctionSession(job).snapshot().write(tmp_path / "a-1", lambda size: None)
    FunctionSession(job, stop_on_nan=False).snapshot().write(tmp_path / "b-1", lambda size: None)


@pytest.mark.parametrize("value", [tf.zeros([0, 3]), tf.zeros([], tf.complex64), tf.ones([2], tf.bfloat16), "text"])
def test_what_can_hold_no_nan_or_holds_none_is_saved(tmp_path: Path, value: Any) -> None:
    job = trainerd.Job(lambda: None, state={"v": tf.Variable(value)})
    FunctionSession(job).snapshot().write(tmp_path / "a-1", lambda size: None)
    assert "v/.ATTRIBUTES/VARIABLE_VALUE" in dict(tf.train.list_variables(str(tmp_path / "a-1")))


@pytest.mark.parametrize("dtype", [tf.complex64, tf.bfloat16, tf.float16, tf.float64])
def test_a_nan_of_any_type_is_found(tmp_path: Path, dtype: tf.DType) -> None:
    job = trainerd.Job(lambda: None, state={"v": tf.Variable(tf.cast([1.0, float("nan")], dtype))})
    with pytest.raises(UnsoundError, match="holds a NaN"):
        FunctionSession(job).snapshot().write(tmp_path / "a-1", lambda size: None)


def test_a_job_that_exits_is_a_job_that_failed() -> None:
    def evaluate() -> dict[str, float]:
        sys.exit(0)

    job = trainerd.Job(lambda: tf.constant(1.0), state={"v": tf.Variable(1.0)}, evaluate=evaluate)
    session = FunctionSession(job)
    bound(session)
    with pytest.raises(JobError, match="evaluate failed") as caught:
        session.evaluate()
    assert caught.value.sound


def test_variables_made_in_the_step_are_part_of_it(tmp_path: Path) -> None:
    def make() -> FunctionSession:
        v, optimizer = tf.Variable(1.0), keras.optimizers.Adam(0.1)

        def train_step() -> tf.Tensor:
            with tf.GradientTape() as tape:
                loss = v * v
            optimizer.apply(tape.gradient([loss], [v]), [v])  # builds its slots in the first trace
            return loss

        return FunctionSession(trainerd.Job(train_step, state={"v": v, "o": optimizer}))

    first, second = make(), make()
    bound(first), bound(second)
    assert first.run_until(5).names == ("loss",)
    first.snapshot().write(tmp_path / "a-5", lambda size: None)
    second.restore(tmp_path / "a-5")
    assert np.array_equal(first.run_until(9).rows, second.run_until(9).rows)


@pytest.mark.parametrize(
    ("step", "message"),
    [
        (lambda: [1.0], "returned a value of type list"),
        (lambda: {"a": tf.zeros([2])}, r"a tensor of shape \(2,\) for 'a'; a metric is a scalar. Reduce it"),
        (lambda: {"a": tf.constant("x")}, "a metric is a number"),
        (lambda: {1: tf.constant(1.0)}, "names are strings"),
        (lambda batch: None, "does not trace"),
    ],
)
def test_a_step_that_returns_the_wrong_thing(step: Callable[..., object], message: str) -> None:
    with pytest.raises(EntryError, match=message):
        FunctionSession(trainerd.Job(step))


@pytest.mark.parametrize(
    ("job", "message"),
    [
        (trainerd.Job(lambda b: None, dataset=[1, 2, 3]), "dataset must be a tf.data.Dataset, and is a list"),
        (
            trainerd.Job(lambda: None, state={"global_step": tf.Variable(1)}),
            "'global_step', which is trainerd's own",
        ),
        (trainerd.Job(lambda: None, state={"a": object()}), "that can be saved"),
    ],
)
def test_a_job_that_is_wrong(job: trainerd.Job, message: str) -> None:
    with pytest.raises(EntryError, match=message):
        FunctionSession(job)


@pytest.mark.parametrize("figures", [3.0, {"a": "b"}, None])
def test_an_evaluate_that_returns_the_wrong_thing(figures: object) -> None:
    session = FunctionSession(trainerd.Job(lambda: None, evaluate=lambda: figures))  # type: ignore[arg-type,return-value]
    with pytest.raises(JobError, match="evaluate must return a dict of name to number") as failed:
        session.evaluate()
    assert failed.value.__cause__ is None, "trainerd's own error would be shown as the job's"


def test_an_evaluate_that_raises_leaves_a_sound_state() -> None:
    def evaluate() -> dict[str, float]:
        raise OSError("no test data")

    with pytest.raises(JobError, match="evaluate failed after step 0") as caught:
        FunctionSession(trainerd.Job(lambda: None, evaluate=evaluate)).evaluate()
    assert caught.value.sound and "no test data" in caught.value.details


def test_the_position_of_another_dataset_is_named_as_that(tmp_path: Path) -> None:
    numbers = tf.data.Dataset.range(100).shuffle(100)

    def opened(dataset: tf.data.Dataset) -> FunctionSession:
        total = tf.Variable(0, dtype=tf.int64)
        session = FunctionSession(
            trainerd.Job(
                lambda batch: {"total": total.assign_add(tf.reduce_sum(batch))}, dataset=dataset, state={"t": total}
            )
        )
        session.bind(Flag())
        return session

    session = opened(numbers.batch(10).repeat())
    session.run_until(3)
    prefix = tmp_path / "model.ckpt-3"
    session.snapshot().write(prefix, lambda size: None)
    with pytest.raises(DataError, match=r"holds the position of a dataset with other stages\. Put the dataset back"):
        opened(numbers.repeat().batch(10)).restore(prefix)
