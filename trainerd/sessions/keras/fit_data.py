"""The data of a `fit` whose position is saved."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from trainerd.sessions.input.iterators import begin_again
from trainerd.sessions.input.shuffle_order import begin_order, require_saved_order, require_seeds, restore_order

MANY = 2**62  # batches: more than any epoch has


class FitData:
    """A dataset with one iterator, whose position can be saved: each epoch begins it again.

    Keras makes an iterator whenever it begins an epoch, and there is no other way to have it continue with one.

    Attributes:
      is_read: whether `fit` has asked for its iterator since training began.
      was_read: whether it has given a batch since it was begun.
      size: how many batches it has; negative if that is not known.
      passes: how often it was begun again.
      begun: how often `fit` has asked for its iterator.
    """

    def __init__(self, dataset: tf.data.Dataset) -> None:
        self._dataset = dataset
        self._iterator: Any = None
        self.is_read = self.was_read = False
        self.passes = self.begun = 0
        self.size = int(dataset.cardinality())
        if self.size != tf.data.INFINITE_CARDINALITY:  # the others are warned of when an iterator is tracked
            require_saved_order(dataset, refuse=False, begins_again=True)
        require_seeds(dataset, refuse=False)
        self.kept = dataset.take(-1)  # an object of our own, and the same elements
        kind = type(self.kept)
        methods: dict[str, Any] = {"__iter__": lambda this: self._iterate()}
        if self.size == tf.data.UNKNOWN_CARDINALITY:
            # Keras takes the first epoch's length for that of all, and the first one may be what is left of an epoch.
            methods["cardinality"] = lambda this: tf.constant(MANY, tf.int64)
        self.kept.__class__ = type(kind.__name__, (kind,), methods)

    def begin(self) -> Any:
        """Begin the training. Returns the iterator, which may be moved before `fit` asks for it."""
        self._iterator, self.passes = iter(self._dataset), 0
        self.is_read = self.was_read = False
        begin_order(self._dataset, begins_again=True)
        return self._iterator

    def go_on(self) -> None:
        """Prepare the iterator, which was restored."""
        restore_order(self._dataset, self._iterator, self.passes)

    def _iterate(self) -> Any:
        if self._iterator is None:  # fit looks at a batch before it begins
            return iter(self._dataset)
        self.is_read = True
        self.begun += 1
        self.begin_again()
        return self._iterator

    def begin_again(self) -> None:
        """Begin the data again, since an epoch has ended: the next one has all of it. A second call does nothing."""
        if self.was_read:
            begin_again(self._dataset, self._iterator)
            self.was_read = False
            self.passes += 1
