"""The order of a dataset's next epochs is, after a restore, what it would have been."""

from __future__ import annotations

import itertools
import logging
import random
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf

from tests.cases import every
from tests.waiting import wait_for
from trainerd import Job
from trainerd.checkpoints.contents.object_graph import position
from trainerd.errors import EntryError
from trainerd.sessions.input.iterator_state import set_drawn
from trainerd.sessions.input.iterators import begin_again
from trainerd.sessions.input.shuffle_order import begin_order, require_saved_order, require_seeds, restore_order
from trainerd.sessions.input.validation_data import ValidationData
from trainerd.sessions.tf2.job_session import FunctionSession

Dataset = tf.data.Dataset
CHANCE = random.Random(5)


def shuffled(count: int = 12, **options: Any) -> tf.data.Dataset:
    return Dataset.range(count).shuffle(count, seed=3, **options)


def read_files(names: tf.data.Dataset) -> tf.data.Dataset:
    return names.interleave(lambda x: Dataset.range(10 * x, 10 * x + 3), cycle_length=2)


def plus_one(dataset: tf.data.Dataset, num_parallel_calls: int | None = 2) -> tf.data.Dataset:
    return dataset.map(lambda x: x + 1, num_parallel_calls=num_parallel_calls)


def some(dataset: tf.data.Dataset) -> tf.data.Dataset:
    return dataset.filter(lambda x: x % 3 > 0)


def another(count: int = 12) -> tf.data.Dataset:
    return Dataset.range(100, 100 + count).shuffle(count, seed=5)


PIPELINES: dict[str, Callable[[], tf.data.Dataset]] = {
    "a smaller last batch": lambda: shuffled().batch(5),
    "one that is padded": lambda: shuffled().padded_batch(5, padded_shapes=[]),
    "windows that overlap": lambda: shuffled().window(5, shift=3).flat_map(lambda w: w.batch(5)),
    "filtered batches": lambda: some(shuffled()).batch(3),
    "batches ahead": lambda: shuffled().batch(4).prefetch(2),
    "mapped batches": lambda: plus_one(shuffled().batch(4)),
    "some of them": lambda: shuffled().take(7).prefetch(2),
    "files, then records": lambda: read_files(shuffled(4)).shuffle(5, seed=4),
    "files, then batches of records": lambda: read_files(shuffled(4)).shuffle(5, seed=4).batch(5),
    "three shuffles": lambda: shuffled().shuffle(5, seed=8).batch(2).shuffle(3, seed=4).batch(3),
    "shuffled at the end": lambda: Dataset.range(11).shuffle(5, seed=3).batch(2).shuffle(2, seed=8),
    "three shuffles, the last at the end": lambda: (
        Dataset.range(11).shuffle(5, seed=3).shuffle(3, seed=6).batch(2).shuffle(3, seed=8)
    ),
    "some files": lambda: read_files(shuffled(4).take(3)),
    "a mapped second of two": lambda: (
        plus_one(Dataset.range(5).concatenate(shuffled(5)), None).shuffle(2, seed=1).shuffle(2, seed=3)
    ),
    "drawn from two": lambda: Dataset.sample_from_datasets(
        [shuffled(), another()], [0.5, 0.5], seed=1, stop_on_empty_dataset=True
    ).batch(5),
    "with numbers": lambda: shuffled().enumerate().map(lambda i, x: x * 100 + i).batch(5),
    "two side by side": lambda: Dataset.zip((shuffled(), another().take(7))).map(lambda x, y: x + y).batch(5),
    "one after another": lambda: shuffled().concatenate(another(9)).batch(4),
    "files, read ahead": lambda: shuffled(4).apply(
        tf.data.experimental.parallel_interleave(lambda x: Dataset.range(10 * x, 10 * x + 3), cycle_length=2)
    ),
    "filtered groups": lambda: some(shuffled()).group_by_window(
        lambda x: x % 2, lambda key, window: window.batch(3), window_size=3
    ),
    "the second of two": lambda: Dataset.range(5).concatenate(shuffled()).batch(4),
}
ENDS: dict[str, Callable[[tf.data.Dataset], tf.data.Dataset]] = {
    "forever": lambda dataset: dataset.repeat(),
    "forever, ahead": lambda dataset: dataset.repeat().prefetch(3),
    "four times": lambda dataset: dataset.repeat(4),
    "begun again": lambda dataset: dataset,
}


class Reader:
    """Reads a dataset, and begins it again where it ends and that is asked for."""

    def __init__(self, dataset: tf.data.Dataset, *, begins_again: bool) -> None:
        self.dataset, self.iterator = dataset, iter(dataset)
        self.passes = 0 if begins_again else None

    def begin(self) -> None:
        begin_order(self.dataset, self.passes)

    def save(self, folder: Path) -> str:
        time.sleep(CHANCE.uniform(0.0, 0.004))  # threads fetch ahead meanwhile
        return str(tf.train.Checkpoint(iterator=self.iterator).write(str(folder / "position")))

    def restore(self, prefix: str, passes: int | None) -> None:
        tf.train.Checkpoint(iterator=self.iterator).read(prefix).assert_consumed()
        self.passes = passes

    def read(self, count: int) -> list[Any]:
        found: list[Any] = []
        while len(found) < count:
            element = next(self.iterator, None)
            if element is not None:
                found.append(element.numpy().tolist())
            elif self.passes is None:
                found.append("the end")
            else:
                begin_again(self.iterator)
                self.passes += 1
        return found


def differing(folder: Path, make: Callable[[], Reader], epoch: int, *, restores: bool = True) -> list[int]:
    """After how many elements a position was saved with which others came than without."""
    whole = make()
    whole.begin()
    expected, found = whole.read(3 * epoch + 4), []
    for place in [*range(max(epoch - 4, 0), epoch + 2), 2 * epoch]:
        first, second = make(), make()
        first.begin()
        assert first.read(place) == expected[:place]
        next(iter(second.dataset))  # others may read it too, as they like
        second.restore(first.save(folder), first.passes)
        if restores:
            restore_order(second.dataset, second.iterator, second.passes)
        if second.read(len(expected) - place) != expected[place:]:
            found.append(place)
    return found


def reader(pipeline: str, end: str) -> Reader:
    """Each time a dataset of its own, as in another process."""
    return Reader(ENDS[end](PIPELINES[pipeline]()), begins_again=end == "begun again")


CASES = [
    *itertools.product(PIPELINES, ["forever", "begun again"]),
    *itertools.product(["a smaller last batch", "files, then batches of records"], ["forever, ahead", "four times"]),
]


@pytest.mark.parametrize(("pipeline", "end"), every(6, CASES))
def test_the_next_epochs_have_the_order_that_they_would_have_had(tmp_path: Path, pipeline: str, end: str) -> None:
    epoch = len(list(PIPELINES[pipeline]()))
    assert not differing(tmp_path, lambda: reader(pipeline, end), epoch)


def test_without_that_they_would_not(tmp_path: Path) -> None:
    """Where this passes no more, TensorFlow does it by itself."""
    as_written = tf.data.Options()  # no thread fetches ahead: after its third batch an epoch is at its end
    as_written.autotune.enabled = False
    as_written.experimental_optimization.apply_default_optimizations = False

    def make() -> Reader:
        return Reader(shuffled().batch(5).repeat().with_options(as_written), begins_again=False)

    assert differing(tmp_path, make, 3, restores=False) == [3, 6]
    assert differing(tmp_path, make, 3) == []


@pytest.mark.parametrize("stop", every(3, range(1, 9)))
def test_a_job_resumes_in_the_same_order(tmp_path: Path, stop: int) -> None:
    def session() -> FunctionSession:
        total = tf.Variable(0, dtype=tf.int64)

        def step(batch: tf.Tensor) -> dict[str, tf.Tensor]:
            return {"total": total.assign((total * 31 + batch[0]) % 1_000_003)}

        return FunctionSession(Job(step, dataset=shuffled(11).batch(4).repeat(), state={"total": total}))

    def run(of: FunctionSession, until: int) -> list[list[float]]:
        found: list[list[float]] = []
        while of.step < until:
            found += np.asarray(of.run_until(until).rows).tolist()
        return found

    whole, first, second = session(), session(), session()
    expected = run(whole, 24)
    run(first, stop)
    first.snapshot().write(tmp_path / "model.ckpt-1", lambda size: None)
    second.restore(tmp_path / "model.ckpt-1")
    assert run(second, 24) == expected[stop:]


def test_a_position_in_other_bytes_gives_the_same_elements(tmp_path: Path) -> None:
    """TensorFlow prefetches as far as timing allows, and stores what it has prefetched in the position."""

    def reader_ahead(count: int) -> Reader:
        return Reader(shuffled().batch(5).repeat().prefetch(count), begins_again=False)

    def read_ahead(count: int) -> str:
        reader = reader_ahead(count)
        reader.begin()
        assert reader.read(4) == expected[:4]
        wait_for(lambda: len(position(reader.iterator)) > count, f"{count} prefetched elements")
        return reader.save(tmp_path)

    expected, contents = reader_ahead(1).read(70), set[bytes]()
    for count in (1, 20):  # an epoch has 3
        prefix = read_ahead(count)
        contents.add(Path(f"{prefix}.data-00000-of-00001").read_bytes())
        resumed = reader_ahead(count)
        resumed.restore(prefix, None)
        restore_order(resumed.dataset, resumed.iterator)
        assert resumed.read(66) == expected[4:]
    assert len(contents) == 2


def test_many_epochs_are_as_many_seeds() -> None:
    one, other = shuffled(), shuffled()
    for _ in one.repeat().take(12 * 1000):  # the last of them is not begun anew
        pass
    set_drawn(other, 1000)
    assert list(one.as_numpy_iterator()) == list(other.as_numpy_iterator())


@pytest.mark.parametrize(
    ("dataset", "is_told"),
    [
        (lambda: shuffled().repeat(2).batch(5).repeat(), True),
        (lambda: shuffled().batch(5).repeat(2).repeat(), True),
        (lambda: Dataset.zip((each := shuffled(), each)).batch(5).repeat(), True),
        (lambda: shuffled().cache().batch(5).repeat(), True),
        (lambda: shuffled().batch(5).repeat(), False),
        (lambda: Dataset.range(12).cache().shuffle(12).batch(5).repeat(), False),
        (lambda: shuffled().repeat(2).batch(5), False),
        (lambda: shuffled().repeat().batch(5).prefetch(2), False),
        (lambda: shuffled().batch(4).repeat(2).repeat(), False),
        (lambda: shuffled(reshuffle_each_iteration=False).batch(5).repeat(2).repeat(), False),
    ],
)
def test_what_cannot_be_known_is_reported(
    dataset: Callable[[], tf.data.Dataset], is_told: bool, caplog: pytest.LogCaptureFixture
) -> None:
    require_saved_order(dataset(), refuse=False)
    assert ("next epochs may have another order" in caplog.text) == is_told
    if is_told:
        with pytest.raises(EntryError, match="deterministic = true, and the dataset has a shuffle"):
            require_saved_order(dataset(), refuse=True)


@pytest.mark.parametrize(
    "dataset",
    [
        lambda: shuffled().batch(5).cache(),
        lambda: plus_one(plus_one(shuffled().batch(5)).cache().prefetch(3)),
    ],
)
def test_an_order_in_a_cache_that_each_position_holds_stays(
    tmp_path: Path, dataset: Callable[[], tf.data.Dataset]
) -> None:
    require_saved_order(dataset(), refuse=True, begins_again=True)
    assert not differing(tmp_path, lambda: Reader(dataset(), begins_again=True), 3)


def test_an_order_in_a_cache_that_a_stage_releases_is_reported(tmp_path: Path) -> None:
    def dataset() -> tf.data.Dataset:
        return shuffled().cache().batch(5)

    with pytest.raises(EntryError, match="a shuffle that is cached"):
        require_saved_order(dataset(), refuse=True, begins_again=True)
    assert differing(tmp_path, lambda: Reader(dataset(), begins_again=True), 3)


def test_random_numbers_that_are_others_in_each_epoch_are_reported(caplog: pytest.LogCaptureFixture) -> None:
    require_saved_order(Dataset.zip((shuffled(), Dataset.random(seed=4))).repeat(), refuse=True)
    assert not caplog.text
    rerandomized = Dataset.random(seed=4, rerandomize_each_iteration=True)
    require_saved_order(Dataset.zip((shuffled(), rerandomized)).repeat(), refuse=False)
    assert "rerandomize_each_iteration" in caplog.text


@pytest.mark.parametrize(
    ("dataset", "level"),
    [
        (lambda: Dataset.range(9).shuffle(9).batch(3).repeat(), logging.INFO),
        (
            lambda: Dataset.range(9).shuffle(9, reshuffle_each_iteration=False).take(5).shuffle(5).repeat(),
            logging.WARNING,
        ),
        (lambda: Dataset.range(9).shuffle(9, seed=1, reshuffle_each_iteration=False).repeat(), None),
        (lambda: Dataset.range(9).batch(3).repeat(), None),
    ],
)
def test_a_shuffle_without_a_seed_is_reported(
    dataset: Callable[[], tf.data.Dataset], level: int | None, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.INFO):
        require_seeds(dataset(), refuse=False)
    assert [record.levelno for record in caplog.records] == ([level] if level else [])
    if level:
        with pytest.raises(EntryError, match="a shuffle without a seed"):
            require_seeds(dataset(), refuse=True)
    tf.random.set_seed(1)
    try:
        require_seeds(dataset(), refuse=True)
    finally:
        tf.random.set_seed(None)


@pytest.mark.parametrize(
    "dataset",
    [
        lambda: shuffled().batch(5, drop_remainder=True),
        lambda: shuffled().cache().batch(5),
        lambda: shuffled().repeat().take(20),
        lambda: Dataset.zip(shuffled(), Dataset.random(seed=2)).shuffle(3, seed=5).map(lambda x, y: y),
        lambda: Dataset.range(5).map(lambda x: tf.random.uniform([], seed=3)),
        lambda: Dataset.range(5).map(lambda x: tf.random.stateless_uniform([], [1, x]), num_parallel_calls=2),
    ],
)
def test_every_validation_reads_the_same_elements(dataset: Callable[[], tf.data.Dataset]) -> None:
    data = dataset()
    validation = ValidationData(data, Dataset.range(3), refuse=True)
    passes = []
    for _ in range(3):
        validation.begin()
        passes.append([each.tolist() for each in data.as_numpy_iterator()])
    assert passes[0] == passes[1] == passes[2]


NOISE, GENERATOR = keras.layers.GaussianNoise(1.0, seed=3), tf.random.Generator.from_seed(1)


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (lambda: Dataset.range(5).shuffle(5), "a shuffle without a seed"),
        (lambda: Dataset.range(5).shuffle(5, reshuffle_each_iteration=False), "a shuffle without a seed"),
        (lambda: Dataset.sample_from_datasets([Dataset.range(5), Dataset.range(5)]), "a random without a seed"),
        (lambda: Dataset.random(seed=1, rerandomize_each_iteration=True).take(5), "rerandomize_each_iteration"),
        (lambda: Dataset.range(5).map(lambda x: tf.random.uniform([])), "RandomUniform without a seed"),
        (lambda: plus_one(Dataset.range(5).map(lambda x: NOISE(tf.zeros([2]), training=True))), "changes a variable"),
        (lambda: Dataset.range(5).map(lambda x: GENERATOR.normal([])), "changes a variable"),
        (lambda: Dataset.range(5).map(lambda x: tf.numpy_function(np.random.rand, [], tf.float64)), "calls Python"),
        (
            lambda: Dataset.range(5).map(lambda x: tf.random.uniform([], seed=1), num_parallel_calls=2),
            "RandomUniform in a ParallelMap",
        ),
        (lambda: iter([1, 2]), "an iterator, which restarts. .* of the type list_iterator"),
    ],
)
def test_validation_data_that_can_differ_after_a_resume_is_named(data: Callable[[], Any], words: str) -> None:
    with pytest.raises(EntryError, match=rf"the validation data can differ after a resume: it has .*{words}"):
        ValidationData(data(), Dataset.range(3), refuse=True)


def test_a_shuffle_that_the_training_reads_too_keeps_its_order(caplog: pytest.LogCaptureFixture) -> None:
    def orders(training: tf.data.Dataset, validation: ValidationData | None) -> list[list[int]]:
        found = []
        for _ in range(3):
            found.append([int(each) for each in training])
            if validation is not None:
                validation.begin()
        return found

    whole = shuffled()
    kept = orders(whole.skip(2), ValidationData(whole.take(2), whole.skip(2), refuse=False))
    assert kept == orders(shuffled().skip(2), None)
    assert "a shuffle that the training reads too" in caplog.text and "Its stages: Range" in caplog.text
