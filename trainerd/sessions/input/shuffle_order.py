"""The order that a dataset's shuffles give its next epochs, which a saved position does not always hold.

A `shuffle` with another order in each epoch draws a pair of seeds whenever it begins, from a generator that belongs to
the dataset. TensorFlow saves the number of pairs with the shuffle's iterator, but most stages release that iterator at
its end. If a stage has reached that end and still has elements to give (it has fetched ahead, it has a smaller last
batch, it is a shuffle itself), a position that is saved then lacks the number, and after a restore the next epochs
would have another order. The position does hold the epoch, which gives the number.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import tensorflow as tf

from trainerd.checkpoints.contents import inexact_ops
from trainerd.sessions.input.early_ends import Count, above
from trainerd.sessions.input.iterator_state import BRANCHING, Mark, Marks, Position, set_drawn
from trainerd.sessions.input.pipeline import inputs, is_reshuffled, setting, stage_name, stages

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class _Shuffle:
    """A stage that shuffles again in each epoch.

    Attributes:
      dataset: the stage.
      above: the stages above it, from the last one on, each with which of its inputs leads to the shuffle.
      begins_again: whether all of them begin again at their end.
    """

    dataset: tf.data.Dataset
    above: tuple[tuple[tf.data.Dataset, int], ...]
    begins_again: bool

    @property
    def repeats(self) -> list[int]:
        """The places of the repeats above it."""
        return [place for place, (stage, _) in enumerate(self.above) if stage_name(stage) == "Repeat"]

    @property
    def levels(self) -> int:
        """The number of nested stages that begin it again, with whatever reads them all."""
        return len(self.repeats) + self.begins_again

    @property
    def is_cached(self) -> bool:
        """True if a `cache` keeps its first order, in memory that a pause loses."""
        return any(stage_name(stage) == "Cache" for stage, _ in self.above)

    @property
    def is_held(self) -> bool:
        """True if each position has its only order: that of a `cache`, whose iterator no stage above releases."""
        names = [stage_name(stage) for stage, _ in self.above]
        if "Cache" not in names or "Repeat" in names:
            return False
        return all(above(Count.HELD, name) is Count.HELD for name in names[: names.index("Cache")])

    @property
    def is_located(self) -> bool:
        """True if its marks show which input of each stage leads to it."""
        return all(len(inputs(stage)) == 1 or stage_name(stage) in BRANCHING for stage, _ in self.above)

    @property
    def marks(self) -> Marks:
        """The marks of its iterator; see `Position`."""
        return (*self.marks_above(len(self.above)), "Shuffle")

    def marks_above(self, end: int) -> Marks:
        """Return the marks of an iterator below so many of the stages."""
        return tuple(mark for stage, branch in self.above[:end] for mark in _marks(stage, branch))

    def epoch(self, position: Position, passes: int) -> int | None:
        """Return its epoch, from 0 and after so many passes; None if all are over."""
        if not self.repeats:
            return passes
        epoch = position.epoch(self.marks_above(self.repeats[0] + 1))
        return None if epoch is None else passes + epoch

    def drawn(self, position: Position, passes: int) -> int:
        """Return the number of pairs of seeds that it had drawn.

        It is one more if it does not begin at once, so that there is one.
        """
        epoch = self.epoch(position, passes)
        if epoch is None:
            return 1 + passes
        return 1 + epoch + (not self.is_begun_at_once and self.is_begun(position))

    def is_begun(self, position: Position) -> bool:
        """Return whether it has begun in its epoch."""
        for place, (stage, branch) in reversed(list(enumerate(self.above))):
            marks = self.marks_above(place)
            if stage_name(stage) == "Shuffle" and position.has((*marks, "Shuffle")):
                return position.was_read((*marks, "Shuffle"))
            if stage_name(stage) == "Concatenate" and any(position.has_below((*marks, n)) for n in range(branch)):
                return False
        return True

    @property
    def is_begun_at_once(self) -> bool:
        """True if it begins with its epoch; False if another shuffle, or an earlier input, is read before it."""
        return not any(
            stage_name(stage) == "Shuffle" or (stage_name(stage) == "Concatenate" and branch)
            for stage, branch in self.above
        )


def require_saved_order(dataset: tf.data.Dataset, *, refuse: bool, begins_again: bool = False) -> None:
    """Warn of shuffles whose next orders can be lost, since `restore_order` cannot count their epochs.

    Args:
      dataset: what is read.
      refuse: whether such a shuffle is an error.
      begins_again: whether it is begun again when it ends.

    Raises:
      EntryError: there is one, and `refuse` is true.
    """
    if len(_counted(dataset, begins_again)) < len(_at_risk(dataset, begins_again)):
        inexact_ops.warn_or_refuse(
            "the dataset has a shuffle that is cached, or repeated within what is repeated, or that two stages read: "
            "after a pause the next epochs may have another order. Call shuffle(...) after "
            "cache(), and repeat() once.",
            refuse=refuse,
            event="lost-order",
        )
    if any(stage_name(stage) == "Random" and getattr(stage, "_rerandomize", None) for stage in stages(dataset)):
        inexact_ops.warn_or_refuse(
            "the dataset has a Dataset.random(rerandomize_each_iteration=True): after a pause the next "
            "epochs may have other numbers. Leave that out, and zip Dataset.random(...) with what is repeated "
            "already, so that it continues through all epochs.",
            refuse=refuse,
            event="lost-order",
        )


def require_seeds(dataset: tf.data.Dataset, *, refuse: bool) -> None:
    """Warn of shuffles whose next orders differ at each start: neither the `shuffle` nor TensorFlow has a seed.

    The elements that are fetched already are saved all the same. An order that is the same in each epoch is not.

    Args:
      dataset: what is read.
      refuse: whether that is an error.

    Raises:
      EntryError: there is one, and it is.
    """
    unseeded = [each for each in stages(dataset) if stage_name(each) == "Shuffle" and not has_seed(each)]
    if not unseeded:
        return
    way_out = "Give it a seed, shuffle(..., seed=1), or set `seed` in the config."
    if all(map(is_reshuffled, unseeded)) and not refuse:
        log.info("a shuffle has no seed: each start reshuffles later epochs differently. %s", way_out)
        return
    inexact_ops.warn_or_refuse(
        "the dataset has a shuffle without a seed, so each start draws another order for the epochs to come; where "
        "that is to be the same in each (reshuffle_each_iteration=False, for a part that is held out), elements change "
        f"their places after a pause. {way_out}",
        refuse=refuse,
        event="unseeded",
    )


def has_seed(shuffle: tf.data.Dataset) -> bool:
    """Return whether a shuffle has a seed. Two zeros are none; one that is unknown before the dataset runs counts."""
    return setting(shuffle, "seed") != 0 or setting(shuffle, "seed2") != 0


def pass_over_orders(dataset: tf.data.Dataset, count: int) -> None:
    """Prepare a dataset whose iterator is not made yet: its shuffles begin with the order after so many others.

    Args:
      dataset: what is to be read.
      count: the number of orders. 0: nothing is done.
    """
    for stage in stages(dataset):
        if count and is_reshuffled(stage):
            set_drawn(stage, count)


def begin_order(dataset: tf.data.Dataset, passes: int | None = None) -> None:
    """Prepare a new iterator: its next epochs come in an order that `restore_order` can compute.

    Seeds that other iterators of the dataset have drawn are drawn again, since their number is not saved.

    Args:
      dataset: what is read.
      passes: how often it was begun before; None if it is not begun again when it ends.
    """
    for shuffle in _counted(dataset, passes is not None):
        set_drawn(shuffle.dataset, 1 + (passes or 0))


def restore_order(dataset: tf.data.Dataset, iterator: Any, passes: int | None = None) -> None:
    """Prepare a restored iterator: its next epochs come in the order in which they would have come.

    Args:
      dataset: what is read.
      iterator: its iterator, not read since.
      passes: how often it had begun again before the position was saved; None if it never does.
    """
    if not (counted := _counted(dataset, passes is not None)):
        return
    position = Position(iterator)
    for shuffle in counted:
        if not position.has(shuffle.marks):
            set_drawn(shuffle.dataset, shuffle.drawn(position, passes or 0))


def _counted(dataset: tf.data.Dataset, begins_again: bool) -> list[_Shuffle]:
    """Return the shuffles at risk whose beginnings can be counted: one in each epoch, by one stage."""
    read = [each.dataset for each in _shuffles(dataset, begins_again)]
    return [
        each
        for each in _at_risk(dataset, begins_again)
        if each.levels == 1
        and each.is_located
        and not each.is_cached
        and sum(each.dataset is other for other in read) == 1
    ]


def _at_risk(dataset: tf.data.Dataset, begins_again: bool) -> list[_Shuffle]:
    """Return the shuffles whose number may be lost.

    They have another epoch, and a stage above releases them before it begins.
    """
    begins_again = begins_again and int(dataset.cardinality()) != tf.data.INFINITE_CARDINALITY
    maps_run_ahead = dataset.options().experimental_optimization.map_parallelization is not False
    return [each for each in _shuffles(dataset, begins_again) if _is_lost(each, maps_run_ahead)]


def _is_lost(shuffle: _Shuffle, maps_run_ahead: bool) -> bool:
    """Return whether a stage releases a shuffle before its epoch ends, and there is another epoch."""
    if shuffle.begins_again:  # its last element is known for the last: its end is not asked for, and fetched ahead
        return not shuffle.is_held
    if not shuffle.repeats:
        return False
    count = Count.HELD
    for stage, _ in reversed(shuffle.above[shuffle.repeats[0] + 1 :]):
        smaller = _may_end_smaller(stage)
        count = above(count, _kind(stage), may_end_smaller=smaller, maps_run_ahead=maps_run_ahead)
    return count is Count.LOST


def _kind(stage: tf.data.Dataset) -> str:
    """Return the name of a stage, but tell the two kinds of parallel interleave apart."""
    return "LegacyParallelInterleave" if type(stage).__name__ == "ParallelInterleaveDataset" else stage_name(stage)


def _shuffles(
    dataset: tf.data.Dataset, begins_again: bool, above: tuple[tuple[tf.data.Dataset, int], ...] = ()
) -> Iterator[_Shuffle]:
    if is_reshuffled(dataset):
        yield _Shuffle(dataset, above, begins_again)
    for branch, each in enumerate(inputs(dataset)):
        yield from _shuffles(each, begins_again, (*above, (dataset, branch)))


def _marks(stage: tf.data.Dataset, branch: int) -> list[Mark]:
    if (name := stage_name(stage)) in ("Repeat", "Shuffle"):
        return [name]
    if name == "DirectedInterleave":  # the first of its inputs chooses among the others
        return [branch - 1]
    return [branch] if name in BRANCHING else []


def _may_end_smaller(dataset: tf.data.Dataset) -> bool:
    """Return whether the last batch of a stage that batches may be smaller."""
    if setting(dataset, "drop_remainder"):
        return False
    size, count = setting(dataset, "batch_size") or setting(dataset, "size"), int(inputs(dataset)[0].cardinality())
    return count < 0 or not size or count % size != 0 or setting(dataset, "shift") not in (None, size)
