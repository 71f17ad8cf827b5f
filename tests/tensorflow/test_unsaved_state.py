"""What a step changes and no checkpoint holds is named, with its line; what holds nothing is not."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf

import trainerd
from trainerd.checkpoints.contents import stateful_ops
from trainerd.checkpoints.contents.unsaved_state import require_saved
from trainerd.errors import EntryError, JobError
from trainerd.loop.recorder import EVALUATION, SUMMARIES
from trainerd.proof.check import measured
from trainerd.sessions.tf1.job_session import GraphJobSession
from trainerd.sessions.tf2.job_session import FunctionSession

tf1 = tf.compat.v1
Step = Callable[[], Any]
KEPT = tf.Variable(0.0, name="kept")
HERE = Path(__file__).name
RANGE = tf.data.Dataset.range(9)


def graph_of(step: Step) -> Any:
    def run() -> None:
        step()

    return tf.function(run).get_concrete_function().graph


def reported(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [each.getMessage() for each in caplog.records if each.name.startswith("trainerd")]


def drawn(dataset: tf.data.Dataset) -> Step:
    """A step that reads a dataset which was made outside of it."""

    def step() -> None:
        for element in dataset:
            KEPT.assign_add(tf.cast(element, tf.float32))

    return step


def in_a_branch(changes: Callable[[], Any]) -> Step:
    def change() -> float:
        @tf.function
        def inner() -> None:
            changes()

        inner()
        return 1.0

    return lambda: tf.cond(KEPT > 0.0, change, lambda: 0.0)


def pulled(iterator: Iterator[Any]) -> Step:
    return lambda: KEPT.assign_add(tf.cast(next(iterator), tf.float32))


def from_a_file(path: str) -> Any:
    return tf.io.write_file(path, tf.io.read_file(path) + "x")


def shared_variable() -> Any:
    handle = tf.raw_ops.VarHandleOp(dtype=tf.float32, shape=[], shared_name="mine")
    return tf.raw_ops.AssignVariableOp(resource=handle, value=KEPT.read_value())


def named_table() -> Any:
    return tf.lookup.experimental.MutableHashTable(tf.int32, tf.float32, 0.0).insert([1], [KEPT])


def accumulated(handle: Any) -> Any:
    return tf.raw_ops.ResourceAccumulatorApplyGradient(handle=handle, local_step=0, gradient=KEPT.read_value())


def lost_steps() -> dict[str, tuple[Step, str]]:
    """Steps, each with the words that the warning must have."""
    queue, table = (
        tf.queue.FIFOQueue(9, [tf.float32], [[]]),
        tf.lookup.experimental.MutableHashTable(tf.int32, tf.int32, 0),
    )
    accumulator = tf.raw_ops.ResourceConditionalAccumulator(dtype=tf.float32, shape=[], shared_name="gradients")
    counter = tf.Variable(0, dtype=tf.int64, name="counter")
    generator = tf.random.Generator.from_seed(1)
    count = "the variable 'counter' (AssignAddVariableOp in "
    nameless = tf.Variable([1.0, 2.0])
    counting = RANGE.map(lambda x: x + counter.assign_add(1))
    shuffled, rerandomized = (
        RANGE.shuffle(9, seed=1),
        tf.data.Dataset.random(1, rerandomize_each_iteration=True).take(2),
    )
    return {
        "another iterator": (pulled(iter(RANGE.repeat())), "an iterator (IteratorGetNext"),
        "an iterator in a branch": (in_a_branch(pulled(iter(RANGE.repeat()))), "an iterator (IteratorGetNext"),
        "a shuffled dataset": (drawn(shuffled), "a dataset ("),
        "a shuffled dataset in a branch": (in_a_branch(drawn(shuffled.batch(2).map(tf.reduce_sum))), "a dataset ("),
        "a random dataset": (drawn(rerandomized), "a dataset ("),
        "a dataset whose function counts": (drawn(counting), "a dataset ("),
        "a function of a dataset of the step": (lambda: drawn(RANGE.map(lambda x: x + counter.assign_add(1)))(), count),
        "a variable that TensorFlow named": (
            lambda: nameless.assign_add([1.0, 1.0]),
            "the variable without a name, float32[2] (AssignAddVariableOp in ",
        ),
        "a variable by its shared name": (shared_variable, "VarHandleOp (AssignVariableOp"),
        "Stage": (lambda: tf.raw_ops.Stage(values=[KEPT.read_value()]), "a staging area (Stage"),
        "Unstage": (lambda: tf.raw_ops.Unstage(dtypes=[tf.float32]), "a staging area (Unstage"),
        "MapStage": (lambda: tf.raw_ops.MapClear(dtypes=[tf.float32]), "what MapClear keeps"),
        "an accumulator": (lambda: accumulated(accumulator), "an accumulator (ResourceAccumulatorApplyGradient"),
        "a queue": (lambda: queue.enqueue(KEPT), "a queue (QueueEnqueueV2"),
        "a queue in a branch": (in_a_branch(lambda: queue.enqueue(KEPT)), "a queue (QueueEnqueueV2"),
        "a table": (lambda: table.insert([1], [2]), "a lookup table (LookupTableInsertV2"),
        "a table that the step makes, and finds again": (named_table, "a lookup table (LookupTableInsertV2"),
        "a file": (lambda: from_a_file("counter.txt"), "a file (WriteFile"),
        "a generator": (lambda: generator.normal([]), "the variable of a tf.random.Generator (RngReadAndSkip"),
        "tf.py_function": (lambda: tf.py_function(lambda: 1.0, [], tf.float32), "Python (EagerPyFunc"),
        "tf.numpy_function": (lambda: tf.numpy_function(lambda: 1.0, [], tf.float32), "Python (PyFunc"),
        "tf.random": (lambda: tf.random.normal([]), "RandomStandardNormal in "),
        "tf.random in a branch": (in_a_branch(lambda: tf.random.shuffle([1, 2])), "RandomShuffle in "),
        "a random crop": (
            lambda: tf.image.sample_distorted_bounding_box([9, 9, 3], tf.zeros([1, 1, 4])),
            "SampleDistortedBoundingBoxV2 in ",
        ),
    }  # fmt: skip


@pytest.mark.parametrize("name", lost_steps())
def test_what_a_step_loses_is_named_with_its_line(name: str, caplog: pytest.LogCaptureFixture) -> None:
    step, words = lost_steps()[name]
    graph = graph_of(step)
    require_saved(graph, [KEPT], refuse=False)
    [text] = reported(caplog)
    assert words in text and f"{HERE}:" in text and "kept (" not in text
    with pytest.raises(EntryError, match="deterministic = true"):
        require_saved(graph, [KEPT], refuse=True)


def harmless_steps() -> dict[str, tuple[Step, list[Any]]]:
    """Steps that lose nothing, each with what is saved beside `KEPT`."""
    table = tf.lookup.experimental.MutableHashTable(tf.int32, tf.float32, 0.0)
    words = tf.lookup.StaticHashTable(tf.lookup.KeyValueTensorInitializer([1], [2.0]), 0.0)
    generator, iterator, section = tf.random.Generator.from_seed(1), iter(RANGE.repeat()), tf.CriticalSection()
    read, writer = tf.Variable(1.0), tf.summary.create_noop_writer()

    def array() -> Any:
        values = tf.TensorArray(tf.float32, 3)
        for n in tf.range(3):
            values = values.write(n, KEPT)
        return KEPT.assign(tf.reduce_sum(values.stack()))

    def own_iterator() -> Any:
        own = iter(RANGE.shuffle(9, seed=1).cache().prefetch(2))
        return KEPT.assign_add(tf.cast(next(own), tf.float32))

    @tf.function
    def handle_and_number() -> Any:
        return KEPT.handle, tf.square(KEPT)

    def returned() -> Any:
        handle, number = handle_and_number()
        return tf.raw_ops.AssignVariableOp(resource=handle, value=number)

    def summaries() -> None:
        with writer.as_default(step=1):
            tf.summary.scalar("loss", KEPT)
            tf.summary.histogram("kept", KEPT)

    def checks() -> None:
        tf.debugging.assert_less(KEPT, 9.0)
        tf.debugging.check_numerics(KEPT, "kept")
        tf.print("kept", KEPT)

    return {
        "tables that it reads": (lambda: KEPT.assign_add(table.lookup([1])[0] * words.lookup(tf.constant(1))), []),
        "a table that is saved": (lambda: table.insert([1], [KEPT]), [table]),
        "a variable that it reads": (in_a_branch(lambda: KEPT.assign_add(read)), []),
        "a generator that is saved": (lambda: KEPT.assign(generator.normal([])), [generator, generator.state]),
        "an iterator that is saved": (in_a_branch(pulled(iterator)), [iterator]),
        "TensorArray": (array, []),
        "a dataset of the step": (lambda: drawn(RANGE.shuffle(9, seed=1).batch(2).map(tf.reduce_sum))(), []),
        "an iterator of the step": (own_iterator, []),
        "a dataset that gives the same": (drawn(RANGE.map(lambda x: x * 2).batch(2).map(tf.reduce_sum).cache()), []),
        "a dataset in one order": (drawn(RANGE.shuffle(9, seed=1, reshuffle_each_iteration=False)), []),
        "a handle that a function returns beside a number": (returned, []),
        "summaries": (summaries, []),
        "checks": (checks, []),
        "a clock": (lambda: KEPT.assign(tf.cast(tf.timestamp(), tf.float32)), []),
        "a critical section": (lambda: section.execute(lambda: KEPT.assign_add(1.0)), []),
        "a file that it writes": (lambda: tf.io.write_file("kept.txt", tf.strings.as_string(KEPT)), []),
        "a file that it reads": (lambda: tf.io.read_file("kept.txt"), []),
        "stateless random numbers": (lambda: KEPT.assign(tf.random.stateless_normal([], [1, 2])), []),
        "Python that keeps nothing": (lambda: tf.numpy_function(lambda: 1.0, [], tf.float32, stateful=False), []),
    }  # fmt: skip


@pytest.mark.parametrize("name", harmless_steps())
def test_what_loses_nothing_is_not_named(name: str, caplog: pytest.LogCaptureFixture) -> None:
    step, held = harmless_steps()[name]
    require_saved(graph_of(step), [KEPT, *held], refuse=True)
    assert not reported(caplog)


def test_ordinary_models_lose_nothing(caplog: pytest.LogCaptureFixture) -> None:
    layers = keras.layers
    model = keras.Sequential(
        [
            keras.Input([8, 8, 1]),
            layers.RandomFlip(),
            layers.Conv2D(2, 3),
            layers.BatchNormalization(),
            layers.Flatten(),
            layers.Dropout(0.3),
            layers.Dense(1),
        ]
    )
    optimizer = keras.optimizers.LossScaleOptimizer(keras.optimizers.Adam(use_ema=True, gradient_accumulation_steps=2))
    optimizer.build(model.trainable_variables)
    mean, area = keras.metrics.Mean(), keras.metrics.AUC()

    @tf.function
    def step(x: tf.Tensor) -> Any:
        with tf.GradientTape() as tape:
            found = model(x, training=True)
            loss = tf.reduce_mean(found**2)
        optimizer.apply(tape.gradient(loss, model.trainable_variables), model.trainable_variables)
        mean.update_state(loss)
        area.update_state(tf.ones([4, 1]), tf.sigmoid(found))
        return {"loss": mean.result(), "auc": area.result()}

    state = {"model": model, "optimizer": optimizer, "metrics": [mean, area]}
    data = tf.data.Dataset.from_tensors(np.ones([4, 8, 8, 1], np.float32)).repeat()
    FunctionSession(trainerd.Job(step, dataset=data, state=state), repeats=True)
    assert not reported(caplog)


# ---------------------------------------------------------------------- graphs of TensorFlow 1


def graph_job(build: Callable[[Any], Any], saves_all: bool = True) -> trainerd.GraphJob:
    with tf1.Graph().as_default() as graph:
        weight, step = tf1.get_variable("weight", initializer=0.0), tf1.train.get_or_create_global_step()
        given = build(weight)
        saver = None if saves_all else tf1.train.Saver([weight, step])
        with tf.control_dependencies([weight.assign_add(tf.cast(given, tf.float32))]):
            return trainerd.GraphJob(graph, tf1.assign_add(step, 1), saver=saver)


def local(weight: Any) -> Any:
    lost = tf1.get_variable("lost", initializer=0.0, collections=[tf1.GraphKeys.LOCAL_VARIABLES], use_resource=False)
    return tf1.assign_add(lost, 1.0)


def beside(weight: Any) -> Any:
    lost = tf1.get_variable("lost", initializer=0.0, use_resource=True)
    tf1.add_to_collection(tf1.GraphKeys.LOCAL_INIT_OP, lost.initializer)
    return lost.assign_add(1.0)


def queued(weight: Any) -> Any:
    return tf1.train.range_input_producer(5, shuffle=False).dequeue()


def accumulating(weight: Any) -> Any:
    accumulator = tf1.ConditionalAccumulator(tf.float32, [])
    with tf.control_dependencies([accumulator.apply_grad(1.0)]):
        return accumulator.num_accumulated()


def looping(weight: Any) -> Any:
    lost = tf1.get_variable("lost", initializer=0.0, collections=[tf1.GraphKeys.LOCAL_VARIABLES], use_resource=True)
    return tf1.while_loop(lambda n: n < 2, lambda n: n + tf.cast(lost.assign_add(1.0), tf.int32), [0])


def read(weight: Any) -> Any:
    dataset = tf.data.Dataset.range(9).shuffle(9, seed=1).repeat()
    average = tf1.train.ExponentialMovingAverage(0.9)
    with tf.control_dependencies([average.apply([weight])]):
        return tf1.data.make_one_shot_iterator(dataset).get_next()


@pytest.mark.parametrize(
    ("build", "words"),
    [
        (local, "lost (AssignAdd in "),
        (beside, "lost (AssignAddVariableOp in "),
        (looping, "lost (AssignAddVariableOp in "),
        (queued, "a queue (QueueDequeueV2 in "),
        (accumulating, "an accumulator (ResourceAccumulatorApplyGradient in "),
        (lambda weight: tf1.py_func(lambda: 1.0, [], tf.float64), "Python (PyFunc in "),
        (read, ""),
    ],
)
def test_what_a_graph_loses_is_named(build: Any, words: str, caplog: pytest.LogCaptureFixture) -> None:
    GraphJobSession(graph_job(build, saves_all=build is not beside))
    if words:
        [text] = reported(caplog)
        assert words in text and f"{HERE}:" in text and "weight (" not in text
        with pytest.raises(EntryError, match="deterministic = true"):
            GraphJobSession(graph_job(build, saves_all=build is not beside), repeats=True)
    else:
        assert not reported(caplog)


# ---------------------------------------------------------------------- evaluations


def job_with(kind: str) -> trainerd.Job:
    rate, table = tf.Variable(1.0, name="rate"), tf.lookup.experimental.MutableHashTable(tf.string, tf.float32, 1.0)
    iterator = iter(RANGE.shuffle(9, seed=1).repeat().prefetch(2))
    key = tf.constant(["rate"])

    def step() -> None:
        if kind == "iterator":
            KEPT.assign_add(tf.cast(next(iterator), tf.float32))
        else:
            KEPT.assign_add(rate * table.lookup(key)[0])

    def change() -> None:
        if kind == "variable":
            rate.assign(rate * 0.5)
        elif kind == "table":
            table.insert(key, table.lookup(key) * 0.5)

    def evaluate() -> dict[str, float]:
        change()
        return {"rate": float(rate)}

    state = {"kept": KEPT} | ({"numbers": iterator} if kind == "iterator" else {})
    return trainerd.Job(step, state=state, evaluate=evaluate, summaries=change)


@pytest.mark.parametrize(
    ("kind", "words"),
    [("variable", "the variable 'rate'"), ("table", "lookup table 1"), ("iterator", ""), ("none", "")],
)
def test_an_evaluation_that_changes_what_the_step_reads_is_named(
    kind: str, words: str, caplog: pytest.LogCaptureFixture
) -> None:
    session = FunctionSession(job_with(kind), repeats=True)
    list(measured(session, refuse=False))
    if not words:
        assert not reported(caplog)
        return
    assert [each.split(".")[0] for each in reported(caplog)] == [
        f"{what} changed what the step reads and no checkpoint holds: {words}" for what in (SUMMARIES, EVALUATION)
    ]
    with pytest.raises(JobError, match="deterministic = true"):
        list(measured(session, refuse=True))


def test_an_iterator_in_the_state_resumes_in_the_middle_of_an_epoch(tmp_path: Path) -> None:
    def session() -> tuple[FunctionSession, tf.Variable]:
        total, iterator = tf.Variable(0.0), iter(RANGE.shuffle(9, seed=1).batch(2).repeat().prefetch(1))

        def step() -> None:
            total.assign(total * 3.0 + tf.cast(tf.reduce_sum(next(iterator)), tf.float32))

        return FunctionSession(trainerd.Job(step, state={"total": total, "numbers": iterator}), repeats=True), total

    whole, expected = session()
    whole.run_until(14)
    for cut in (3, 5, 9):
        before, _ = session()
        before.run_until(cut)
        before.snapshot().write(tmp_path / str(cut), lambda done: None)
        after, total = session()
        after.restore(tmp_path / str(cut))
        after.run_until(14)
        assert float(total) == float(expected), cut


# ---------------------------------------------------------------------- the tables


def test_the_tables_name_stateful_ops_of_tensorflow() -> None:
    """A name that TensorFlow does not have, or need not be there, hides a misspelled one."""
    tables = {
        name: table
        for name, table in vars(stateful_ops).items()
        if isinstance(table, frozenset | dict) and name.isupper() and name != "_HARMLESS_KINDS"
    }
    assert len(tables) == 8
    for table in tables.values():
        assert not [op for op in table if stateful_ops.definition_of(op) is None]
    for op in stateful_ops.HARMLESS:
        definition = stateful_ops.definition_of(op)
        assert definition.is_stateful or any(argument.is_ref for argument in definition.input_arg), op
    for op in stateful_ops.TEMPORARY:
        assert stateful_ops.makes_handle(stateful_ops.definition_of(op)) or op == "TensorArrayV2", op
    assert not stateful_ops.HARMLESS & (stateful_ops.RANDOM | stateful_ops.PYTHON | stateful_ops.TEMPORARY)
