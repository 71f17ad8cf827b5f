"""Where a graph's inputs are when a session goes on: in mid-epoch, at a new epoch's beginning, or at their end."""

from __future__ import annotations

import contextlib
import itertools
import os
import re
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import trainerd
from tests.cases import every
from tests.tensorflow.graphs import saved, shuffled, supervised
from trainerd.errors import EntryError
from trainerd.sessions.input.saveable import require_saveable
from trainerd.sessions.tf1.input_checks import inexact_inputs
from trainerd.sessions.tf1.positions import IteratorPosition
from trainerd.sessions.tf1.state import GraphState

tf1 = tf.compat.v1
parallel_interleave = tf.data.experimental.parallel_interleave


@pytest.mark.parametrize("kind", ["one-shot", "local init op", "by the program"])
def test_an_input_resumes_in_mid_epoch(tmp_path: Path, kind: str) -> None:
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


def test_an_epoch_that_the_program_begins_later_restarts(tmp_path: Path) -> None:
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


def test_an_iterator_of_two_datasets_resumes_in_the_one_that_it_was_in(tmp_path: Path) -> None:
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


def test_an_input_that_cannot_be_saved_is_reported(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
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


def reshuffled() -> tf.data.Dataset:
    return tf.data.Dataset.range(12).shuffle(12, seed=3)


def add_one(x: tf.Tensor) -> tf.Tensor:
    return x + 1


def filter_odd(dataset: tf.data.Dataset) -> tf.data.Dataset:
    return dataset.filter(lambda x: x % 3 > 0)


def group(dataset: tf.data.Dataset) -> tf.data.Dataset:
    return dataset.group_by_window(lambda x: x % 2, lambda key, window: window.batch(3), window_size=3)


def numbers(x: tf.Tensor) -> tf.data.Dataset:
    return tf.data.Dataset.range(x, x + 3)


LOST: dict[str, Callable[[], tf.data.Dataset]] = {
    "batch(...)": lambda: reshuffled().batch(5).repeat(),
    "prefetch(...)": lambda: reshuffled().batch(4, drop_remainder=True).prefetch(2).repeat(3),
    "padded_batch(...)": lambda: reshuffled().padded_batch(5, padded_shapes=[]).repeat().prefetch(2),
    "map(...)": lambda: reshuffled().batch(5, drop_remainder=True).map(add_one).repeat(),
    "concatenate(...)": lambda: reshuffled().concatenate(tf.data.Dataset.range(3)).repeat(),
    "shuffle(...)": lambda: reshuffled().flat_map(numbers).shuffle(3, seed=1).prefetch(1).repeat(),
    "shuffle_and_repeat(...)": lambda: reshuffled().flat_map(numbers).shuffle(3, seed=1).repeat(2).repeat(),
    "group_by_window(...)": lambda: group(filter_odd(reshuffled())).repeat(),
    "parallel_interleave(...)": lambda: reshuffled().apply(parallel_interleave(numbers, 2)).repeat(),
}
KEPT: list[Callable[[], tf.data.Dataset]] = [
    lambda: reshuffled().repeat().batch(5).prefetch(2),
    lambda: reshuffled().prefetch(2).map(add_one).repeat(),
    lambda: reshuffled().apply(tf.data.experimental.map_and_batch(add_one, 5)).repeat(),
    lambda: reshuffled().map(add_one).batch(5).prefetch(1).repeat(),
    lambda: reshuffled().interleave(numbers, num_parallel_calls=2).shuffle(5, seed=1).repeat().batch(5),
    lambda: reshuffled().batch(5, drop_remainder=True).repeat(),
    lambda: reshuffled().batch(5).repeat(1),
    lambda: reshuffled().batch(5).cache().repeat(),
    lambda: tf.data.Dataset.range(12).shuffle(12, 3, reshuffle_each_iteration=False).batch(5).repeat(),
]


def texts(dataset: Callable[[], tf.data.Dataset], one_shot: bool = False) -> list[str]:
    return [each.text for each in inexact_inputs(Counted(dataset, one_shot=one_shot).graph)]


@pytest.mark.parametrize("one_shot", [False, True])
def test_an_input_whose_next_order_can_be_lost_is_named(one_shot: bool) -> None:
    """TensorFlow does not save how many epochs a shuffle has had if a stage above has released it."""
    kind = "OneShotIterator" if one_shot else "IteratorV2"
    for stage, dataset in LOST.items():
        [text] = texts(dataset, one_shot)
        assert re.search(rf"{kind} in .*{Path(__file__).name}:\d+ has {re.escape(stage)} between shuffle", text), text
    assert [texts(dataset, one_shot) for dataset in KEPT] == [[]] * len(KEPT)


def test_an_input_of_an_imported_graph_is_named() -> None:
    """Its ops know no line that made them."""
    with Counted(LOST["batch(...)"]).graph.as_default():
        saved_graph = tf1.train.export_meta_graph()
    with tf.Graph().as_default() as graph:
        tf1.train.import_meta_graph(saved_graph)
    [found] = inexact_inputs(graph)
    assert "another order: IteratorV2 has batch(...)" in found.text


def differing(dataset: Callable[[], tf.data.Dataset], count: int = 9) -> list[int]:
    """After how many batches a position was saved that other batches follow than without a pause."""

    def read(session: Any, batch: Any) -> Any:
        try:
            return session.run(batch).tolist()
        except tf.errors.OutOfRangeError:
            return "the end"

    found = []
    for place in range(1, count):
        one, other = Counted(dataset), Counted(dataset)
        before, after = GraphState(one.graph, None), GraphState(other.graph, None)
        with tf1.Session(graph=one.graph) as first, tf1.Session(graph=other.graph) as second:
            first.run(one.begin)
            second.run(other.begin)
            for _ in range(place):
                read(first, one.batch)
            [position] = before.take(first, 0, {}, set()).values.values()
            after.move(second, {one.iterator_name: IteratorPosition.of(position).state})
            if [read(first, one.batch) for _ in range(count)] != [read(second, other.batch) for _ in range(count)]:
                found.append(place)
    return found


@pytest.mark.parametrize("stage", ["batch(...)", "padded_batch(...)"])
def test_the_order_of_an_input_that_is_named_is_lost(stage: str) -> None:
    """Where it is lost depends on TensorFlow's threads, so one try may lose nothing."""
    assert any(differing(LOST[stage]) for _ in range(10))


@pytest.mark.parametrize("number", every(8, range(len(KEPT))))
def test_the_order_of_an_input_that_is_not_named_is_kept(number: int) -> None:
    assert differing(KEPT[number]) == []


class Counted:
    """A graph of which each step takes one number of a dataset."""

    def __init__(self, dataset: Callable[[], tf.data.Dataset], one_shot: bool = False, graph: Any = None) -> None:
        self.graph = graph or tf1.Graph()
        with self.graph.as_default():
            if one_shot:
                self.iterator, self.begin = tf1.data.make_one_shot_iterator(dataset()), tf.no_op()
            else:
                self.iterator = tf1.data.make_initializable_iterator(dataset())
                self.begin = self.iterator.initializer
            kinds = ("OneShotIterator", "IteratorV2")
            [self.iterator_name] = [each.name for each in self.graph.get_operations() if each.type in kinds]
            self.batch = self.iterator.get_next()
            self.step = tf1.train.get_or_create_global_step()
            with tf.control_dependencies([self.batch]):
                self.train_op = tf1.assign_add(self.step, 1)

    def epoch(self, session: Any, limit: int = 1000) -> list[int]:
        """Train to the end of the data."""
        seen: list[int] = []
        while len(seen) < limit:
            try:
                seen.append(int(session.run([self.train_op, self.batch])[1]))
            except tf.errors.OutOfRangeError:
                break
        return seen


def beginning(found: Counted) -> Callable[[Any], Any]:
    return lambda step_context: step_context.session.run(found.begin)


def ten() -> tf.data.Dataset:
    return tf.data.Dataset.range(10)


@pytest.mark.parametrize("steps", [10, 20])
@pytest.mark.parametrize("reason", ["pause", "saver", "finish"])
def test_a_run_that_was_saved_at_an_epochs_end_has_epochs_again(tmp_path: Path, steps: int, reason: str) -> None:
    """What was left of that epoch is nothing; the next one is whole."""
    for _ in range(2):
        found = Counted(ten)
        epochs: list[list[int]] = []
        with supervised(found.graph, tmp_path).managed_session() as session:
            while (step := int(session.run(found.step))) < 40 and len(epochs) < 6:
                session.run(found.begin)
                epochs.append(found.epoch(session, steps - step if step < steps else 1000))
                if session.run(found.step) == steps and step < steps:
                    if reason == "pause":
                        os.kill(os.getpid(), signal.SIGTERM)
                    elif reason == "saver":
                        os.kill(os.getpid(), signal.SIGUSR1)
                    break
    assert [len(epoch) for epoch in epochs if epoch] == [10] * ((40 - steps) // 10)


@pytest.mark.parametrize("one_shot", [True, False])
def test_a_run_that_has_ended_with_its_input_begins_it_once_more(tmp_path: Path, one_shot: bool) -> None:
    """As with TensorFlow: each evaluation of a loop, and each further round of training, has all of the data."""
    for total in (10, 20, 30):
        found = Counted(ten, one_shot)
        with supervised(found.graph, tmp_path, save_model_secs=0.01).managed_session() as session:
            session.run(found.begin)
            while True:
                session.run(found.train_op)
        assert saved(tmp_path)[0][0] == total
    for total in (40, 50):
        found = Counted(ten, one_shot)
        with found.graph.as_default(), trainerd.MonitoredTrainingSession(checkpoint_dir=str(tmp_path)) as session:
            session.run_step_fn(beginning(found))
            while not session.should_stop():
                session.run(found.train_op)
        assert saved(tmp_path)[0][0] == total


def test_a_run_that_was_paused_after_its_input_had_ended_trains_no_more(tmp_path: Path) -> None:
    """It was evaluating its model, say: the run that was not paused has read the data once."""
    for trained in (list(range(10)), []):
        found = Counted(ten, one_shot=True)
        sv = supervised(found.graph, tmp_path)
        with sv.managed_session() as session:
            assert found.epoch(session) == trained
            os.kill(os.getpid(), signal.SIGTERM)
            while not sv.should_stop():
                session.run(found.step)
    assert saved(tmp_path)[0] == (10, "pause")


def test_other_data_in_the_same_initializer_begins(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """TensorFlow's guide: one iterator is fed the training data, and then the validation data."""

    def build() -> tuple[Counted, Any]:
        given: list[Any] = []

        def dataset() -> tf.data.Dataset:
            given.append(tf1.placeholder(tf.int64, [None]))
            return tf.data.Dataset.from_tensor_slices(given[0])

        found = Counted(dataset)
        return found, given[0]

    caplog.set_level("INFO", "trainerd")
    train, held_out = np.arange(10), np.arange(100, 110)
    found, given = build()
    with supervised(found.graph, tmp_path).managed_session() as session:
        session.run(found.begin, {given: train})
        assert found.epoch(session) == list(range(10))
        session.run(found.begin, {given: held_out})
        assert [int(session.run(found.batch)) for _ in range(3)] == [100, 101, 102]
    found, given = build()
    with supervised(found.graph, tmp_path).managed_session() as session:
        session.run(found.begin, {given: train})
        assert found.epoch(session, 4) == [0, 1, 2, 3]
    assert "restarts: it was given other data" in caplog.text
    found, given = build()
    with supervised(found.graph, tmp_path).managed_session() as session:
        session.run(found.begin, {given: train})
        assert found.epoch(session) == [4, 5, 6, 7, 8, 9]


@pytest.mark.parametrize("before", ["handle", "tables", "local variables", "feed", "another epoch"])
def test_what_a_program_does_before_it_begins_its_input_does_not_move_it(tmp_path: Path, before: str) -> None:
    """As long as it does not train, nor read it."""

    def build() -> tuple[Counted, Callable[[Any], object]]:
        found = Counted(ten)
        with found.graph.as_default():
            tf1.get_variable("local", [], collections=[tf1.GraphKeys.LOCAL_VARIABLES])
            keys = tf.lookup.KeyValueTensorInitializer(["a"], [1])
            tf.lookup.StaticHashTable(keys, -1)
            fed = tf1.placeholder(tf.float32, [])
            handle, tables = found.iterator.string_handle(), tf1.tables_initializer()
            local, looked = tf1.local_variables_initializer(), fed + 1.0
            other = tf1.data.make_initializable_iterator(ten())
            taken = other.get_next()

        def another(session: Any) -> None:
            session.run(other.initializer)
            session.run(taken)

        acts: dict[str, Callable[[Any], object]] = {
            "handle": lambda session: session.run(handle),
            "tables": lambda session: session.run(tables),
            "local variables": lambda session: session.run(local),
            "feed": lambda session: session.run(looked, {fed: 1.0}),
            "another epoch": another,
        }
        return found, acts[before]

    for expected in ([0, 1, 2, 3], [4, 5, 6, 7, 8, 9]):
        found, act = build()
        with supervised(found.graph, tmp_path).managed_session() as session:
            act(session)
            session.run(found.begin)
            assert found.epoch(session, 4 if expected[0] == 0 else 1000) == expected


def test_an_input_that_the_session_begins_is_begun_by_the_program_after_its_end(tmp_path: Path) -> None:
    """It was saved after its last batch, before the program was told so."""
    for lengths in ([10], [0, 10, 10]):
        found = Counted(ten)
        with found.graph.as_default():
            tf1.add_to_collection(tf1.GraphKeys.TABLE_INITIALIZERS, found.begin)
        with supervised(found.graph, tmp_path).managed_session() as session:
            for number, length in enumerate(lengths):
                if number:
                    session.run(found.begin)
                assert len(found.epoch(session, 10 if lengths == [10] else 1000)) == length


def test_the_end_of_an_input_is_seen_in_a_callable_too(tmp_path: Path) -> None:
    for total in (10, 20):
        found = Counted(ten, one_shot=True)
        with supervised(found.graph, tmp_path).managed_session() as session:
            step = session.make_callable(found.train_op)
            while True:
                step()
        assert saved(tmp_path)[0] == (total, "finish")


@pytest.mark.parametrize("kind", ["run", "callable"])
def test_of_two_inputs_the_one_that_has_ended_begins_once_more(tmp_path: Path, kind: str) -> None:
    for first in ([0, 0, 1], [0, 5, 6], [0, 10, 11]):
        graph = tf1.Graph()
        with graph.as_default():
            inputs = [tf1.data.make_initializable_iterator(tf.data.Dataset.range(size)) for size in (5, 100)]
            fetches = [inputs[0].get_next()]
            with tf.control_dependencies(fetches):
                fetches.append(inputs[1].get_next())
            with tf.control_dependencies(fetches):
                fetches.append(tf1.assign_add(tf1.train.get_or_create_global_step(), 1))
        rows = []
        with supervised(graph, tmp_path).managed_session() as session:
            session.run([iterator.initializer for iterator in inputs])
            step = session.make_callable(fetches)
            while True:
                rows.append([int(value) for value in (step() if kind == "callable" else session.run(fetches))])
        assert len(rows) == 5 and rows[0] == first


def test_an_error_of_a_callable_is_tensorflows(tmp_path: Path) -> None:
    def end(session: Any) -> tuple[str, Any]:
        step = session.make_callable(found.train_op)
        with pytest.raises(tf.errors.OutOfRangeError) as raised:
            while True:
                step()
        return str(raised.value), raised.value.op

    found = Counted(ten, one_shot=True)
    with supervised(found.graph, tmp_path).managed_session() as session:
        ours = end(session)
    with tf1.Session(graph=found.graph) as session:
        session.run(found.step.initializer)
        assert end(session) == ours


def test_a_callable_that_is_fed_is_one_run(tmp_path: Path) -> None:
    graph = tf1.Graph()
    with graph.as_default():
        fed = tf1.placeholder(tf.float32, [])
        add = tf1.assign_add(tf1.Variable(0.0, name="v"), fed)
    with supervised(graph, tmp_path).managed_session() as session:
        step = session.make_callable(add, [fed])
        assert [step(1.0) for _ in range(3)] == [1.0, 2.0, 3.0]
    assert saved(tmp_path)[0][0] == 3


def test_sessions_of_one_supervisor_that_end_with_their_input_are_each_others_next(tmp_path: Path) -> None:
    found = Counted(ten, one_shot=True)
    sv = supervised(found.graph, tmp_path)
    for total in (10, 20, 30):
        with sv.managed_session() as session:
            if total > 10:
                assert saved(tmp_path)[0] == (total - 10, "finish")
            while True:
                session.run(found.train_op)
        assert saved(tmp_path)[0] == (total, "finish")


@pytest.mark.parametrize("one_shot", [True, False])
def test_an_input_beside_one_of_csv_files_resumes(tmp_path: Path, one_shot: bool) -> None:
    path = tmp_path / "rows.csv"
    path.write_text("".join(f"{number}\n" for number in range(10)))

    def read(name: Any) -> tf.data.Dataset:
        return tf.data.experimental.CsvDataset(name, [tf.int32])

    @tf.function
    def same(number: Any) -> Any:
        """With a node of a name that an operation of the graph has too, which it is not."""
        return tf.identity(tf.identity(number, name="MapDataset"))

    for expected in ([0, 1, 2, 3], [4, 5, 6]):
        graph = tf1.Graph()
        with graph.as_default():
            rows = tf.data.Dataset.from_tensors(str(path)).interleave(read).map(lambda *row: row)
        found = Counted(lambda: ten().map(same), one_shot, graph)
        with found.graph.as_default():
            held_out = tf1.data.make_initializable_iterator(rows)
            row = held_out.get_next()
        with supervised(found.graph, tmp_path / "run").managed_session() as session:
            session.run([found.begin, held_out.initializer])
            assert session.run(row)[0] == 0
            assert found.epoch(session, len(expected)) == expected


Dataset = tf.data.Dataset
DRAWN: dict[str, tuple[bool, Callable[[], tf.data.Dataset]]] = {
    "one ends": (False, lambda: Dataset.sample_from_datasets([Dataset.range(2), ten().repeat()], seed=1)),
    "all end": (True, lambda: Dataset.sample_from_datasets([ten().repeat(2), ten().repeat(2)], seed=1)),
    "some are taken": (False, lambda: Dataset.sample_from_datasets([ten().repeat().take(9), ten().repeat()], seed=1)),
    "all are taken": (
        True,
        lambda: Dataset.sample_from_datasets([ten().repeat().take(9), ten().repeat().take(8)], seed=1),
    ),
    "all of them are taken": (False, lambda: Dataset.sample_from_datasets([ten().repeat().take(-1)] * 2, seed=1)),
    "all end, of which some stop with one": (
        True,
        lambda: Dataset.sample_from_datasets(
            [Dataset.sample_from_datasets([ten(), ten()], seed=n, stop_on_empty_dataset=True) for n in range(2)], seed=1
        ),
    ),
    "those within have no end": (
        False,
        lambda: Dataset.sample_from_datasets(
            [Dataset.sample_from_datasets([ten(), ten().repeat()], seed=n) for n in range(2)], seed=1
        ),
    ),
    "shuffled and repeated": (
        False,
        lambda: Dataset.sample_from_datasets(
            [ten().apply(tf.data.experimental.shuffle_and_repeat(5, seed=n)) for n in range(2)], seed=1
        ),
    ),
    "repeated in a function": (
        False,
        lambda: Dataset.sample_from_datasets(
            [Dataset.range(2).interleave(lambda n: ten().repeat(), cycle_length=2)] * 2, seed=1
        ),
    ),
    "counted": (False, lambda: Dataset.sample_from_datasets([Dataset.counter(), Dataset.counter(5)], seed=1)),
    "an endless choice": (
        True,
        lambda: Dataset.choose_from_datasets([ten(), ten()], Dataset.range(2).repeat(), stop_on_empty_dataset=False),
    ),
    "an endless choice, and one ends": (
        False,
        lambda: Dataset.choose_from_datasets(
            [Dataset.range(1), ten().repeat()], Dataset.range(2).repeat(), stop_on_empty_dataset=False
        ),
    ),
    "none ends": (False, lambda: Dataset.sample_from_datasets([Dataset.range(2).repeat(), ten().repeat()], seed=1)),
    "some are left out": (
        False,
        lambda: Dataset.sample_from_datasets([ten().repeat().filter(lambda n: n > 3), ten().repeat()], seed=1),
    ),
    "random numbers": (
        False,
        lambda: Dataset.sample_from_datasets([Dataset.random(1).map(abs), Dataset.random(2).map(abs)], seed=1),
    ),
    "a choice that ends": (
        False,
        lambda: Dataset.choose_from_datasets([ten(), ten()], Dataset.range(2).repeat(9), stop_on_empty_dataset=False),
    ),
    "the first that ends": (
        False,
        lambda: Dataset.sample_from_datasets([ten(), ten().repeat()], seed=1, stop_on_empty_dataset=True),
    ),
}


@pytest.mark.parametrize(("kind", "one_shot"), every(6, zip(DRAWN, itertools.cycle([True, False]), strict=False)))
def test_an_input_that_would_wait_for_ever_is_reported_and_restarts(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, one_shot: bool, kind: str
) -> None:
    is_told, drawn = DRAWN[kind]
    seen = {}
    for start, where, count in (("whole", "other", 10), ("first", "run", 5), ("second", "run", 5)):
        found = Counted(drawn, one_shot)
        with supervised(found.graph, tmp_path / where).managed_session() as session:
            session.run(found.begin)
            seen[start] = found.epoch(session, count)
    assert ("waits forever" in caplog.text) == is_told
    assert seen["second"] == (seen["first"] if is_told else seen["whole"][5:]) and seen["first"] == seen["whole"][:5]


@pytest.mark.parametrize("kind", DRAWN)
def test_an_iterator_that_would_wait_for_ever_is_refused(kind: str) -> None:
    is_refused, drawn = DRAWN[kind]
    with pytest.raises(EntryError, match="wait forever") if is_refused else contextlib.nullcontext():
        require_saveable(iter(drawn()), "leave it")


def test_an_input_that_was_read_before_it_is_begun_restarts(tmp_path: Path) -> None:
    """Its epoch continues without steps, as an evaluation does."""
    for first in ([], [4, 5]):
        found = Counted(ten)
        with found.graph.as_default():
            tf1.add_to_collection(tf1.GraphKeys.TABLE_INITIALIZERS, found.begin)
        with supervised(found.graph, tmp_path).managed_session() as session:
            assert [int(session.run(found.batch)) for _ in first] == first
            session.run(found.begin)
            assert found.epoch(session, 4) == [0, 1, 2, 3]


@pytest.mark.parametrize("kind", ["run", "callable"])
def test_a_hook_may_begin_the_input(tmp_path: Path, kind: str) -> None:
    class Begins(tf1.train.SessionRunHook):  # type: ignore[misc,name-defined]
        def __init__(self, op: Any) -> None:
            self.ops = [op]

        def before_run(self, run_context: Any) -> None:
            session = run_context.session
            while self.ops:
                session.run(self.ops.pop()) if kind == "run" else session.make_callable(self.ops.pop())()

    for expected in ([0, 1, 2, 3], [4, 5, 6]):
        found = Counted(ten)
        hooks = [Begins(found.begin)]
        with (
            found.graph.as_default(),
            trainerd.MonitoredTrainingSession(checkpoint_dir=str(tmp_path), hooks=hooks) as session,
        ):
            assert found.epoch(session, len(expected)) == expected
