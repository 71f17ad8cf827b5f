"""The dataset of shuffled indices: its orders, its position, its mistakes."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from trainerd.data import shuffled_indices
from trainerd.errors import EntryError
from trainerd.sessions.pipeline import warn_of_lost_order


@pytest.mark.parametrize("size", [1, 2, 7, 1000, 4097])
@pytest.mark.parametrize("batch_size", [None, 1, 5, 64])
def test_each_epoch_has_each_index_once(size: int, batch_size: int | None) -> None:
    dataset = shuffled_indices(size, seed=3, batch_size=batch_size, epochs=3)
    batches = list(dataset.as_numpy_iterator())
    epochs = np.concatenate([np.atleast_1d(batch) for batch in batches]).reshape(3, size)
    assert (np.sort(epochs) == np.arange(size)).all()
    if size >= 1000:
        assert len({tuple(epoch) for epoch in epochs}) == 3


def test_batches_run_on_from_one_epoch_into_the_next_and_are_the_same_indices() -> None:
    one_by_one = [int(index) for index in shuffled_indices(10, seed=1).take(24)]
    batches = shuffled_indices(10, seed=1, batch_size=8).take(3)
    assert batches.element_spec == tf.TensorSpec([8], tf.int64)
    assert np.concatenate(list(batches.as_numpy_iterator())).tolist() == one_by_one


def test_a_seed_is_an_order_and_another_seed_another() -> None:
    orders = {tuple(map(int, shuffled_indices(100, seed=seed, epochs=1))) for seed in [*range(20), *range(20)]}
    assert len(orders) == 20


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


def shuffled(**options: Any) -> tf.data.Dataset:
    return tf.data.Dataset.range(60).shuffle(60, seed=3, **options)


def plus_one(dataset: tf.data.Dataset, num_parallel_calls: int | None = 2) -> tf.data.Dataset:
    return dataset.map(lambda x: x + 1, num_parallel_calls=num_parallel_calls)


def some(dataset: tf.data.Dataset) -> tf.data.Dataset:
    return dataset.filter(lambda x: x > 3)


def without(**optimizations: Any) -> tf.data.Options:
    options = tf.data.Options()
    for name, value in optimizations.items():
        setattr(options.experimental_optimization, name, value)
    return options


@pytest.mark.parametrize(
    ("dataset", "named"),
    [
        (lambda: shuffled().batch(10).prefetch(2).repeat(), "after Prefetch, which"),
        (lambda: plus_one(shuffled().batch(10)).repeat(), "after ParallelMap, which"),
        (lambda: plus_one(shuffled().batch(10), None).repeat(), "after Map, which"),
        (lambda: some(shuffled()).prefetch(2).repeat(2).batch(5).repeat(), "after Prefetch, which"),
        (lambda: tf.data.Dataset.zip((shuffled(), shuffled().take(9).prefetch(1).repeat())), "after Prefetch, which"),
        (lambda: shuffled().skip(3).shuffle(9).prefetch(1).repeat(), "after Prefetch, which"),
        (lambda: shuffled().batch(7).repeat(), "after Batch, which"),
        (lambda: shuffled().batch(7).repeat(), "or give it drop_remainder=True."),
        (lambda: some(shuffled()).batch(10).repeat(), "after Batch, which"),
        (lambda: shuffled().padded_batch(7, padded_shapes=[]).repeat(), "after PaddedBatch, which"),
        (lambda: shuffled().window(10, shift=5).repeat(), "after Window, which"),
        (lambda: tf.data.Dataset.range(9).concatenate(shuffled()).repeat(), "after Concatenate, which"),
        (lambda: shuffled().batch(10).repeat(), ""),
        (lambda: shuffled().batch(10).repeat().prefetch(2), ""),
        (lambda: shuffled().batch(7, drop_remainder=True).repeat().prefetch(2), ""),
        (lambda: shuffled().batch(7, num_parallel_calls=2).prefetch(2).repeat(), ""),
        (lambda: shuffled().repeat().batch(7).prefetch(2), ""),
        (lambda: plus_one(shuffled()).batch(10).repeat(), ""),
        (lambda: shuffled().prefetch(10).repeat().batch(7).prefetch(2), ""),
        (lambda: some(shuffled()).repeat().batch(7), ""),
        (
            lambda: plus_one(shuffled().batch(10), None).repeat().with_options(without(map_parallelization=False)),
            "",
        ),
        (lambda: shuffled(reshuffle_each_iteration=False).batch(7).prefetch(2).repeat(), ""),
        (lambda: shuffled().batch(7).prefetch(2), ""),
        (lambda: tf.data.Dataset.range(60).batch(7).prefetch(2).repeat(), ""),
    ],
)
def test_a_repeat_that_comes_too_late_is_told(
    dataset: Callable[[], tf.data.Dataset], named: str, caplog: pytest.LogCaptureFixture
) -> None:
    warn_of_lost_order(dataset())
    assert bool(caplog.records) == bool(named) and named in caplog.text


@pytest.mark.parametrize("late", [True, False])
def test_what_is_told_of_is_so(tmp_path: Path, late: bool) -> None:
    """All of an epoch is fetched when its position is saved after four batches of six."""

    def iterator() -> Any:
        tf.random.set_seed(7)
        batches = shuffled().batch(10)
        return iter(batches.prefetch(6).repeat() if late else batches.repeat().prefetch(6))

    def read(source: Any, count: int) -> list[Any]:
        return [next(source).numpy().tolist() for _ in range(count)]

    whole, first = read(iterator(), 18), iterator()
    begun = read(first, 4)
    time.sleep(0.2)  # the thread fetches meanwhile
    prefix = tf.train.Checkpoint(iterator=first).write(str(tmp_path / "position"))
    again = iterator()
    tf.train.Checkpoint(iterator=again).read(prefix)
    parts = begun + read(again, 14)
    assert parts[:6] == whole[:6] and (parts == whole) != late


@pytest.mark.parametrize(("size", "exact"), [(7, False), (10, True)])
def test_a_smaller_last_batch_is_the_end_of_what_is_below(tmp_path: Path, size: int, exact: bool) -> None:
    """Its position is saved between two epochs."""
    epoch = -(-60 // size)

    def iterator() -> Any:
        tf.random.set_seed(7)
        return iter(shuffled().batch(size).repeat().with_options(without(apply_default_optimizations=False)))

    def read(source: Any, count: int) -> list[Any]:
        return [next(source).numpy().tolist() for _ in range(count)]

    whole, first = read(iterator(), 2 * epoch), iterator()
    begun = read(first, epoch)
    prefix = tf.train.Checkpoint(iterator=first).write(str(tmp_path / "position"))
    again = iterator()
    tf.train.Checkpoint(iterator=again).read(prefix)
    assert (begun + read(again, epoch) == whole) == exact
