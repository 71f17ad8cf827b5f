"""Datasets whose saved position is a few bytes, however much they shuffle. Imports TensorFlow."""

from __future__ import annotations

import tensorflow as tf

from trainerd.errors import EntryError
from trainerd.sessions.input.pipeline import SAID

_ROUNDS = 8  # of the cipher, twice the least that it takes


def shuffled_indices(
    size: int,
    *,
    seed: int,
    batch_size: int | None = None,
    epochs: int | None = None,
    runs_on: bool = True,
    first_epoch: int = 0,
) -> tf.data.Dataset:
    """Make a dataset of the indices of `size` elements in a random order, another one in each epoch.

    `Dataset.shuffle` fills a buffer that every checkpoint holds. This computes the next element from the epoch and the
    offset in it, with the block cipher of `tf.random.experimental.index_shuffle`. So the shuffle is over all elements,
    it needs no memory, and its position is one number.

    Autotuning is off in a dataset that is made of this, since autotuning prefetches: give `num_parallel_calls` a
      number, and call `prefetch(n)` if every checkpoint may hold n elements.

    Args:
      size: how many elements there are.
      seed: selects the order; the same seed gives the same indices.
      batch_size: indices of an element of the dataset. None: an element is one index.
      epochs: after so many the dataset ends. None: it does not end.
      runs_on: whether indices run on from one epoch into the next, so that each element has as many. False: the last
        element of an epoch has what is left.
      first_epoch: the epoch to begin with, from 0. An epoch has the same order wherever the dataset begins.

    Returns:
      A dataset of int64 of shape [] or [batch_size], each in [0, size). The last element of so many epochs may be
      shorter.

    Raises:
      EntryError: a number is not positive, or the seed or the first epoch is negative.
    """
    for name, value in (("size", size), ("batch_size", batch_size), ("epochs", epochs)):
        if value is not None and value < 1:
            raise EntryError(f"shuffled_indices: {name} must be 1 or more, and is {value}.")
    for name, value in (("the seed", seed), ("first_epoch", first_epoch)):
        if value < 0:
            raise EntryError(f"shuffled_indices: {name} must be 0 or more, and is {value}.")
    step = batch_size or 1
    # Where each epoch has elements of its own, they are counted as if its last were as long as the others.
    length = -(-size // step) * step
    if epochs is not None and length * epochs > tf.int64.max // 2:
        raise EntryError(f"shuffled_indices: {epochs} epochs of {size} are too many; leave `epochs` out.")
    begin = first_epoch * (size if runs_on else length)
    end = tf.int64.max // 2 if epochs is None else begin + size * epochs
    all_epochs = tf.int64.max // 2 // length if epochs is None else epochs
    starts = tf.data.Dataset.range(begin, end if runs_on else begin + all_epochs * length, step)

    def counts_from(start: tf.Tensor) -> tf.Tensor:
        if batch_size is None:
            return start
        if runs_on:
            return tf.range(start, tf.minimum(start + batch_size, end))
        first = start // length * size + start % length
        return tf.range(first, tf.minimum(first + batch_size, (start // length + 1) * size))

    def place(start: tf.Tensor) -> tf.Tensor:
        counts = counts_from(start)
        found = _shuffled(size, seed, counts // size, counts % size)
        has_ends = epochs is not None or not runs_on
        return tf.ensure_shape(found, counts.shape if batch_size is None or has_ends else [batch_size])

    options = tf.data.Options()
    options.autotune.enabled = False  # it fetches ahead, and what is fetched ahead is a part of the position
    found = starts.map(place).with_options(options)
    said = f"shuffled_indices(size={size}, seed={seed}, batch_size={batch_size}, epochs={epochs}, runs_on={runs_on})"
    setattr(found, SAID, said)  # a saved position means something else in another order
    return found


def _shuffled(size: int, seed: int, epoch: tf.Tensor, offset: tf.Tensor) -> tf.Tensor:
    """Return the index at an offset in an epoch."""
    last = _sound(size - 1)

    def shuffled(offset: tf.Tensor) -> tf.Tensor:
        # tf.random.experimental.index_shuffle is this op, for one seed alone. Small seeds give orders much alike.
        return tf.raw_ops.RandomIndexShuffle(
            index=offset,
            seed=tf.stack([_mixed(epoch, 3 * seed + part) for part in range(3)], axis=-1),
            max_index=tf.constant(last, tf.int64),
            rounds=_ROUNDS,
        )

    found = shuffled(offset)
    if last != size - 1:  # who would get the element too many gets what that one gets
        found = tf.where(found == last, shuffled(tf.fill(tf.shape(offset), tf.constant(last, tf.int64))), found)
    return found


def _sound(last: int) -> int:
    """Return a greatest index for which the op is a permutation.

    At 4^8, 4^9 and so on it is not, since a bit is missing.
    """
    is_unsound = last >= 1 << 16 and last & (last - 1) == 0 and last.bit_length() % 2 == 1
    return last + 1 if is_unsound else last


def _mixed(number: tf.Tensor, seed: int) -> tf.Tensor:
    """Return a 64-bit hash of each number: the finalizer of SplitMix64 (Steele, Lea and Flood, 2014)."""
    mixed = tf.cast(number, tf.uint64) * _constant(0x9E3779B97F4A7C15) + _constant(seed * 0xD1B54A32D192ED03)
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
        mixed = tf.bitwise.bitwise_xor(mixed, tf.bitwise.right_shift(mixed, _constant(shift))) * _constant(factor)
    return tf.bitcast(tf.bitwise.bitwise_xor(mixed, tf.bitwise.right_shift(mixed, _constant(31))), tf.int64)


def _constant(value: int) -> tf.Tensor:
    return tf.constant(value % 2**64, tf.uint64)
