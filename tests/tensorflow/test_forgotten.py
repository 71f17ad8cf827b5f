"""What a program forgets to have saved: inputs, variables, tables. Told at the start, or refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import keras
import pytest
import tensorflow as tf

import trainerd
from tests.tensorflow.models import X
from trainerd.errors import DataError, EntryError
from trainerd.sessions.function import FunctionSession

# ---------------------------------------------------------------------- inputs of a program


def supervised(logdir: Path, dataset: tf.data.Dataset) -> list[int]:
    count, iterator = tf.Variable(0, dtype=tf.int64), iter(dataset)

    def step() -> tf.Tensor:
        return count.assign(tf.size(next(iterator), tf.int64))

    checkpoint = tf.train.Checkpoint(count=count, iterator=iterator)
    with trainerd.Supervisor(checkpoint=checkpoint, logdir=str(logdir)).managed_session() as session:
        return [int(session.run(step)) for _ in range(2)]


def test_an_input_that_cannot_be_saved_is_refused_at_the_start(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    def elements() -> Any:
        yield from range(100)

    spec = tf.TensorSpec([], tf.int64)
    with pytest.raises(EntryError, match="leave its iterator out"):
        supervised(tmp_path, tf.data.Dataset.from_generator(elements, output_signature=spec).batch(2))
    supervised(tmp_path, tf.data.Dataset.range(9).snapshot(str(tmp_path / "kept")).batch(2))
    assert "the dataset has a `snapshot`" in caplog.text and "leave its iterator out" in caplog.text


def test_another_input_behind_a_saved_position_is_refused_unless_told_otherwise(tmp_path: Path) -> None:
    dataset = tf.data.Dataset.range(1000)
    assert supervised(tmp_path, dataset.batch(5)) == [5, 5]
    with pytest.raises(DataError, match="the dataset is not the one whose position was saved") as refused:
        supervised(tmp_path, dataset.batch(7))
    assert "batch_size=5" in str(refused.value) and "batch_size=7" in str(refused.value)
    (tmp_path / "accept-changes").touch()
    assert supervised(tmp_path, dataset.batch(7))[-1] == 7
    assert supervised(tmp_path, dataset.batch(7))[-1] == 7


def test_a_program_may_begin_to_keep_its_input_and_leave_it_out_again(tmp_path: Path) -> None:
    dataset = tf.data.Dataset.range(100).batch(5)

    def run(keeps: bool) -> list[int]:
        count, iterator = tf.Variable(0, dtype=tf.int64), iter(dataset)

        def step() -> tf.Tensor:
            return count.assign(next(iterator)[0])

        parts = {"count": count, "iterator": iterator} if keeps else {"count": count}
        sv = trainerd.Supervisor(checkpoint=tf.train.Checkpoint(**parts), logdir=str(tmp_path))
        with sv.managed_session() as session:
            return [int(session.run(step)) for _ in range(2)]

    assert [run(True), run(True), run(False), run(False)] == [[0, 5], [10, 15], [0, 5], [0, 5]]


def test_random_ops_whose_place_is_lost_are_told(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    value = tf.Variable(0.0)
    sv = trainerd.Supervisor(checkpoint=tf.train.Checkpoint(value=value), logdir=str(tmp_path))
    with sv.managed_session() as session:
        session.run(lambda: value.assign(tf.random.uniform([])))
    assert "RandomUniform" in caplog.text


# ---------------------------------------------------------------------- what a job forgets


def forgetful(kind: str) -> trainerd.Job:
    kept, lost, read = tf.Variable(0.0, name="kept"), tf.Variable(0.0, name="lost"), tf.Variable(1.0, name="read")

    def plain() -> None:
        kept.assign_add(lost.assign_add(read))

    def in_a_function() -> None:
        tf.function(plain)()

    def in_a_loop() -> None:
        for _ in tf.range(2):
            if read > 0.0:
                plain()

    @tf.function
    def both() -> tf.Tensor:
        return kept.assign_add(1.0) + lost

    def table() -> None:
        words.insert([1], [2])

    def in_a_table() -> None:
        tf.cond(read > 0.0, lambda: tf.function(table)(), lambda: None)

    def only_read() -> None:
        kept.assign_add(read + tf.function(lambda: lost + 1.0)() + tf.cast(words.lookup([1])[0], tf.float32))
        both()

    words = tf.lookup.experimental.MutableHashTable(tf.int32, tf.int32, 0)
    steps = {"plain": plain, "function": in_a_function, "loop": in_a_loop, "read": only_read}
    steps |= {"table": table, "in a table": in_a_table, "kept table": in_a_table}
    return trainerd.Job(steps[kind], state={"kept": kept} | ({"words": words} if kind == "kept table" else {}))


@pytest.mark.parametrize("kind", ["plain", "function", "loop", "read", "table", "in a table", "kept table"])
def test_a_variable_that_the_step_changes_and_no_checkpoint_holds_is_told(
    kind: str, caplog: pytest.LogCaptureFixture
) -> None:
    FunctionSession(forgetful(kind))
    if kind in ("read", "kept table"):
        assert not caplog.records
        FunctionSession(forgetful(kind), repeats=True)
    else:
        name = "a lookup table" if "table" in kind else "lost"
        assert f": {name}. " in caplog.text and "kept" not in caplog.text and "'read" not in caplog.text
        with pytest.raises(EntryError, match=name):
            FunctionSession(forgetful(kind), repeats=True)


def test_a_whole_job_is_not_told_of(caplog: pytest.LogCaptureFixture) -> None:
    model = keras.Sequential([keras.layers.Dropout(0.3, seed=5), keras.layers.Dense(1)])
    optimizer = keras.optimizers.Adam()
    generator = tf.random.Generator.from_seed(1)

    def step(x: tf.Tensor) -> Any:
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(model(x + generator.normal([4]), training=True) ** 2)
        optimizer.apply(tape.gradient(loss, model.trainable_variables), model.trainable_variables)
        return loss

    state = {"model": model, "optimizer": optimizer, "generator": generator}
    data = tf.data.Dataset.from_tensors(X).repeat()
    FunctionSession(trainerd.Job(step, dataset=data, state=state), repeats=True)
    assert not caplog.records
    del state["optimizer"]
    with pytest.raises(EntryError, match="iteration"):
        FunctionSession(trainerd.Job(step, dataset=data, state=state), repeats=True)
