"""What a program forgets to have saved: inputs, variables, tables. Told at the start, or refused."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf

import trainerd
from tests.tensorflow.models import X
from trainerd.errors import DataError, EntryError
from trainerd.sessions.tf2.job_session import FunctionSession

# ---------------------------------------------------------------------- inputs of a program


def supervised(logdir: Path, dataset: tf.data.Dataset) -> list[int]:
    count, iterator = tf.Variable(0, dtype=tf.int64), iter(dataset)

    def step() -> tf.Tensor:
        return count.assign(tf.size(next(iterator), tf.int64))

    saveable = tf.train.Checkpoint(count=count, iterator=iterator)
    with trainerd.Supervisor(checkpoint=saveable, logdir=str(logdir)).managed_session() as session:
        return [int(session.run(step)) for _ in range(2)]


def test_an_input_that_cannot_be_saved_is_refused_at_the_start(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    def elements() -> Any:
        yield from range(100)

    spec = tf.TensorSpec([], tf.int64)
    with pytest.raises(EntryError, match="leave its iterator out"):
        supervised(tmp_path, tf.data.Dataset.from_generator(elements, output_signature=spec).batch(2))
    with pytest.raises(EntryError, match=r"Shuffle what comes out of it, or leave its iterator out"):
        supervised(tmp_path, tf.data.Dataset.range(9).flat_map(lambda n: tf.data.Dataset.range(n).shuffle(3)))
    drawn = tf.data.Dataset.range(9).map(lambda n: n + tf.random.uniform([], maxval=9, dtype=tf.int64))
    for each in (drawn.shuffle(5).repeat(), tf.data.Dataset.range(9).concatenate(drawn), drawn.shuffle(3).shuffle(5)):
        with pytest.raises(EntryError, match=r"tf.random.stateless_"):
            supervised(tmp_path, each.batch(2))
    supervised(tmp_path, tf.data.Dataset.range(9).snapshot(str(tmp_path / "kept")).batch(2))
    assert "the dataset has a `snapshot`" in caplog.text and "leave its iterator out" in caplog.text


def test_what_is_read_later_is_tried_at_once_and_with_the_options_of_the_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    options = tf.data.Options()
    options.experimental_external_state_policy = tf.data.experimental.ExternalStatePolicy.IGNORE
    drawn = tf.data.Dataset.range(9).map(lambda n: n + tf.random.uniform([], maxval=9, dtype=tf.int64))
    assert supervised(tmp_path / "ignored", drawn.shuffle(5).batch(2).with_options(options)) == [2, 2]

    many = tf.data.Dataset.range(2)
    for _ in range(100):
        many = many.concatenate(tf.data.Dataset.range(2))
    tries, write = list[Path](), tf.train.Checkpoint.write

    def noted(checkpoint: Any, path: str, *arguments: Any, **options: Any) -> Any:
        tries.append(Path(path))
        return write(checkpoint, path, *arguments, **options)

    monkeypatch.setattr(tf.train.Checkpoint, "write", noted)
    assert supervised(tmp_path / "many", many.batch(2)) == [2, 2]
    assert [path.name for path in tries] == ["input", "input"]


def test_a_choice_among_datasets_that_end_is_refused_where_it_would_wait_for_ever(tmp_path: Path) -> None:
    dataset = tf.data.Dataset
    few, many, odd = dataset.range(9), dataset.range(9).repeat(), dataset.range(9).repeat().filter(lambda n: n % 2 > 0)
    for refused in ([few, few], [few, many.take(30)], [few, odd.take(3)]):
        with pytest.raises(EntryError, match="wait forever"):
            supervised(tmp_path / "refused", dataset.sample_from_datasets(refused, seed=1).batch(2))
    chosen = dataset.range(2).repeat(5)
    sound = [
        dataset.sample_from_datasets([many, odd], seed=1),
        dataset.sample_from_datasets([many, few], seed=1),
        dataset.sample_from_datasets([few, many], seed=1, stop_on_empty_dataset=True),
        dataset.choose_from_datasets([few, few], chosen, stop_on_empty_dataset=False),
    ]
    for number, each in enumerate(sound):
        assert supervised(tmp_path / str(number), each.batch(2)) == [2, 2]


def test_another_input_behind_a_saved_position_is_refused_unless_accepted(tmp_path: Path) -> None:
    options = tf.data.Options()
    options.autotune.enabled = False  # which prefetches: on a busy machine several batches of the old size are held
    dataset = tf.data.Dataset.range(1000).with_options(options)
    assert supervised(tmp_path, dataset.batch(5)) == [5, 5]
    with pytest.raises(DataError, match="the dataset has changed since step") as refused:
        supervised(tmp_path, dataset.batch(7))
    assert "batch_size 5 → 7" in str(refused.value)
    (tmp_path / "accept-changes").touch()
    assert supervised(tmp_path, dataset.batch(7))[-1] == 7
    assert supervised(tmp_path, dataset.batch(7))[-1] == 7


def test_another_program_is_refused_unless_accepted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def run_as(file: str | None) -> list[int]:
        with monkeypatch.context() as changed:
            changed.setattr(sys.modules["__main__"], "__file__", file, raising=False)
            changed.setattr(sys, "argv", [file or "/kernel_launcher.py"])
            return supervised(tmp_path, tf.data.Dataset.range(1000).batch(5))

    assert run_as("/first/train.py") == run_as("/moved/train.py") == run_as(None) == [5, 5]
    assert run_as("train.py") == [5, 5]
    before = (tmp_path / "state.json").read_bytes()
    with pytest.raises(DataError, match=r"the program train\.py, not of the program other\.py"):
        run_as("/first/other.py")
    assert (tmp_path / "state.json").read_bytes() == before
    (tmp_path / "accept-job").touch()
    assert run_as("/first/other.py") == run_as("other.py") == [5, 5]


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


def test_random_ops_whose_place_is_lost_are_reported(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
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
def test_a_variable_that_the_step_changes_and_no_checkpoint_holds_is_reported(
    kind: str, caplog: pytest.LogCaptureFixture
) -> None:
    FunctionSession(forgetful(kind))
    if kind in ("read", "kept table"):
        assert not caplog.records
        FunctionSession(forgetful(kind), repeats=True)
    else:
        name = "a lookup table" if "table" in kind else "the variable 'lost'"
        assert f": {name} (" in caplog.text and "'kept' (" not in caplog.text and "'read" not in caplog.text
        with pytest.raises(EntryError, match=name):
            FunctionSession(forgetful(kind), repeats=True)


def test_a_whole_job_is_not_reported(caplog: pytest.LogCaptureFixture) -> None:
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


# ---------------------------------------------------------------------- CSV files, queues, Python


def rows(folder: Path, kind: str) -> tf.data.Dataset:
    path = str(folder / "rows.csv")
    Path(path).write_text("a,b\n" + "".join(f"{number},{number}\n" for number in range(40)))
    if kind == "make":
        options = {"batch_size": 4, "label_name": "b", "shuffle": False, "num_epochs": 1}
        made = tf.data.experimental.make_csv_dataset(path, **options)
        return made.map(lambda features, label: features["a"])

    def read(name: Any) -> tf.data.Dataset:
        return tf.data.experimental.CsvDataset(name, [tf.int32, tf.int32], header=True).map(lambda a, b: a).batch(4)

    return read(path) if kind == "csv" else tf.data.Dataset.from_tensors(path).interleave(read)


@pytest.mark.parametrize("kind", ["csv", "make", "interleave"])
def test_a_csv_dataset_is_refused_since_its_position_leaves_rows_out(
    tmp_path: Path, kind: str, caplog: pytest.LogCaptureFixture
) -> None:
    total = tf.Variable(0)

    def step(batch: tf.Tensor) -> tf.Tensor:
        return total.assign_add(tf.reduce_sum(batch))

    job = trainerd.Job(step, dataset=rows(tmp_path, kind), state={"total": total})
    with pytest.raises(EntryError, match=r"CsvDataset.*leaves rows out.*TextLineDataset"):
        FunctionSession(job)
    FunctionSession(job, exact_input=False)
    with pytest.raises(EntryError, match="leaves rows out"):
        supervised(tmp_path / "run", rows(tmp_path, kind))
    with tf.Graph().as_default() as graph:
        tf.compat.v1.data.make_one_shot_iterator(rows(tmp_path, kind)).get_next()
        tf.compat.v1.train.get_or_create_global_step()
        with trainerd.Supervisor(graph=graph, logdir=str(tmp_path / "graph")).managed_session():
            assert "whose saved position leaves rows out" in caplog.text


def test_a_queue_that_a_step_changes_is_reported(caplog: pytest.LogCaptureFixture) -> None:
    queue, total = tf.queue.FIFOQueue(20, [tf.float32], shapes=[[]]), tf.Variable(0.0)

    def step() -> tf.Tensor:
        queue.enqueue(total + 1.0)
        return total.assign_add(queue.dequeue())

    job = trainerd.Job(step, state={"total": total})
    FunctionSession(job)
    assert "the step changes what is not in the state: a queue (" in caplog.text
    with pytest.raises(EntryError, match=r"deterministic = true.*a queue"):
        FunctionSession(job, repeats=True)


def test_python_in_a_step_is_reported(caplog: pytest.LogCaptureFixture) -> None:
    def step() -> tf.Tensor:
        return tf.ensure_shape(tf.numpy_function(lambda: np.float32(1.0), [], tf.float32), [])

    FunctionSession(trainerd.Job(step, state={"v": tf.Variable(0.0)}))
    assert "the step calls Python" in caplog.text


def test_what_a_program_changes_and_does_not_save_is_reported(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    kept, mean = tf.Variable(0.0), keras.metrics.Mean(name="lost")

    def step() -> tf.Tensor:
        mean.update_state(kept.assign_add(1.0))
        return mean.result()

    with trainerd.Supervisor(checkpoint=tf.train.Checkpoint(kept=kept), logdir=str(tmp_path)).managed_session() as run:
        run.run(step)
        run.run(step, steps=3)
    reported = [each.getMessage() for each in caplog.records if getattr(each, "event", "") == "forgotten"]
    assert (
        len(reported) == 1
        and "what is not in the checkpoint: the variable 'lost/count' (" in reported[0]
        and ", the variable 'lost/total' (" in reported[0]
    )
