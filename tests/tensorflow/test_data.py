"""The dataset of shuffled indices: its orders, its position, its mistakes."""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf

import trainerd
from tests.cases import every
from tests.tensorflow.chromium import poll
from trainerd.errors import EntryError, JobError
from trainerd.job.user_code import in_a_line
from trainerd.sessions.input import written_files
from trainerd.sessions.input.shuffled_indices import shuffled_indices
from trainerd.sessions.tf2.job_session import FunctionSession


@pytest.mark.parametrize(("size", "batch_size"), every(3, itertools.product([1, 2, 7, 1000], [None, 1, 5, 64])))
def test_each_epoch_has_each_index_once(size: int, batch_size: int | None) -> None:
    dataset = shuffled_indices(size, seed=3, batch_size=batch_size, epochs=3)
    batches = list(dataset.as_numpy_iterator())
    epochs = np.concatenate([np.atleast_1d(batch) for batch in batches]).reshape(3, size)
    assert (np.sort(epochs) == np.arange(size)).all()
    if size >= 1000:
        assert len({tuple(epoch) for epoch in epochs}) == 3


@pytest.mark.parametrize("size", every(4, [2**k + more for k in (8, 10, 16, 17, 18, 20) for more in (0, 1, 2)]))
def test_at_powers_of_two_too(size: int) -> None:
    batches = shuffled_indices(size, seed=3, batch_size=1 + size // 3, epochs=2)
    epochs = np.concatenate(list(batches.as_numpy_iterator())).reshape(2, size)
    assert (np.sort(epochs) == np.arange(size)).all()


def test_a_batch_may_be_larger_than_all_there_is() -> None:
    dataset = shuffled_indices(100, seed=1, batch_size=256, runs_on=False)
    for batch in dataset.take(3).as_numpy_iterator():
        assert sorted(batch) == list(range(100))


def test_batches_run_on_from_one_epoch_into_the_next_and_are_the_same_indices() -> None:
    one_by_one = [int(index) for index in shuffled_indices(10, seed=1).take(24)]
    batches = shuffled_indices(10, seed=1, batch_size=8).take(3)
    assert batches.element_spec == tf.TensorSpec([8], tf.int64)
    assert np.concatenate(list(batches.as_numpy_iterator())).tolist() == one_by_one


@pytest.mark.parametrize("runs_on", [True, False])
def test_an_epoch_has_its_order_wherever_a_dataset_begins(runs_on: bool) -> None:
    all_epochs = shuffled_indices(10, seed=1, batch_size=4, epochs=3, runs_on=runs_on)
    rest = shuffled_indices(10, seed=1, batch_size=4, epochs=2, runs_on=runs_on, first_epoch=1)
    first, second = (np.concatenate(list(each.as_numpy_iterator())).tolist() for each in (all_epochs, rest))
    assert second == first[10:]


def test_a_seed_is_an_order_and_another_seed_another() -> None:
    orders = {tuple(map(int, shuffled_indices(100, seed=seed, epochs=1))) for seed in [*range(8), *range(8)]}
    assert len(orders) == 8


@pytest.mark.long
def test_all_orders_come_up() -> None:
    """Of 5 elements there are 120 orders; of 6,000 epochs each has 50, give or take its square root."""
    epochs = np.stack(list(shuffled_indices(5, seed=1, batch_size=5, epochs=6000).as_numpy_iterator()))
    _, counts = np.unique(epochs, axis=0, return_counts=True)
    assert len(counts) == 120
    chi_square = float(((counts - 50) ** 2 / 50).sum())
    assert 60 < chi_square < 200  # 119 at the mean, 15 its standard deviation


def test_its_position_is_a_few_bytes_and_exact(tmp_path: Path) -> None:
    data = tf.random.stateless_normal([50_000, 16], seed=[1, 2])

    def batches() -> tf.data.Dataset:
        return shuffled_indices(50_000, seed=1, batch_size=128).map(lambda index: tf.gather(data, index))

    iterator = iter(batches())
    for _ in range(500):  # into the second epoch
        next(iterator)
    path = tf.train.Checkpoint(iterator=iterator).write(str(tmp_path / "position"))
    assert sum(file.stat().st_size for file in tmp_path.iterdir()) < 1000
    another = iter(batches())
    tf.train.Checkpoint(iterator=another).read(path).assert_consumed()
    for _ in range(100):
        np.testing.assert_array_equal(next(another), next(iterator))


@pytest.mark.parametrize(
    ("size", "seed", "batch_size", "epochs", "name"),
    [(0, 1, None, None, "size"), (5, 1, 0, None, "batch_size"), (5, 1, None, 0, "epochs"), (5, -1, None, None, "seed")],
)
def test_what_is_refused(size: int, seed: int, batch_size: int | None, epochs: int | None, name: str) -> None:
    with pytest.raises(EntryError, match=name):
        shuffled_indices(size, seed=seed, batch_size=batch_size, epochs=epochs)


def test_a_trial_removes_the_files_that_its_datasets_have_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    numbers = tf.data.Dataset.range(100)
    taken = [numbers.cache("whole"), numbers.cache("half"), numbers.snapshot("taken")]
    list(taken[0])
    iterators = [iter(dataset) for dataset in taken[1:]]
    for iterator in iterators:
        next(iterator)
    before = {path for path in tmp_path.rglob("*") if path.is_file()}
    poll(
        lambda: time.time() > max(path.stat().st_ctime for path in before) + 0.1, "the times of files, which are coarse"
    )
    with pytest.raises(JobError, match="later"), written_files.removed():
        tried = numbers.cache("cache").snapshot("snapshot").batch(10)
        iterators += [iter(tried), iter(numbers.cache())]
        for iterator in iterators:
            next(iterator)
        tf.train.Checkpoint(iterator=iterators[2]).write(str(tmp_path / "position"))
        next(iterators[2])
        names = {path.name for path in tmp_path.iterdir()}
        # TensorFlow reads ahead: the cache may be whole already.
        assert "snapshot" in names and any(name.startswith("cache") for name in names)
        del iterators[2]  # a thread of its snapshot that starts late would make the folder again
        raise JobError("what fails later in a trial", step=1, sound=True)
    left = {path for path in tmp_path.rglob("*") if path.is_file() and not path.name.startswith("position")}
    assert left >= before and not [path for path in left if path.name.startswith("cache")]
    assert not (tmp_path / "snapshot").exists()


def test_a_session_that_is_closed_ends_its_input() -> None:
    ended = threading.Event()

    def numbers() -> Iterator[int]:
        try:
            yield from itertools.count()
        finally:
            ended.set()

    dataset = tf.data.Dataset.from_generator(numbers, output_signature=tf.TensorSpec([], tf.int64))
    session = FunctionSession(trainerd.Job(lambda number: {"number": number}, dataset=dataset), exact_input=False)
    session.run_until(2)
    assert not ended.is_set()
    session.close()
    assert ended.wait(60)


def test_a_job_whose_cache_is_half_written_says_so_and_saves_no_position(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    dataset = tf.data.Dataset.range(100).cache("cache").batch(10)
    writes = iter(dataset)
    next(writes)
    session = FunctionSession(trainerd.Job(lambda batch: {"sum": tf.reduce_sum(batch)}, dataset=dataset))
    with pytest.raises(JobError) as failed:
        session.run_until(1)
    assert f"rm {tmp_path}/cache_0.*" in in_a_line(failed.value.__cause__ or failed.value)
    assert not failed.value.sound, "the position would hold the error, and give it when the files are gone"
    del writes
