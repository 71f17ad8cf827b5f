"""The replicas of a step: several devices of this process train one model, each on its part of every batch.

A `tf.distribute.MirroredStrategy` has a copy of each variable on each device. There is one iterator, which gives whole
batches, so a checkpoint holds one position, and a run may resume with another number of devices.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from trainerd.checkpoints.contents.device_copies import copies_of, is_aggregated, is_distributed, key_of_copy
from trainerd.checkpoints.contents.keras_variables import identity, is_of_seeds, parts_of
from trainerd.checkpoints.contents.object_graph import own_places
from trainerd.config.fingerprint import DEVICES
from trainerd.errors import EntryError
from trainerd.job.devices import wanted_devices
from trainerd.text import type_of

_APART = 0x61C88647  # between the seeds of two devices; odd, so that they meet late


def require_no_scope() -> None:
    """Require that training does not begin in the scope of a strategy, where variables cannot be read as elsewhere.

    Raises:
      EntryError: it does.
    """
    if tf.distribute.has_strategy():
        raise EntryError("training begins in the scope of a strategy. Make the model there, and train after it.")


class Replicas:
    """The replicas of a strategy.

    Args:
      strategy: a MirroredStrategy, or that of several workers.
      rank: of this worker among them.

    Attributes:
      count: how many there are in this process.
      devices: the devices that they are on, such as "GPU:0".
    """

    def __init__(self, strategy: Any, rank: int = 0) -> None:
        self._strategy = strategy
        self.devices = [each.rpartition("device:")[2] for each in strategy.extended.worker_devices]
        self.count = len(self.devices)
        self._first = rank * self.count

    @classmethod
    def of(cls, strategies: Iterable[Any]) -> Replicas | None:
        """Return the replicas of the strategy under which a job was made; None if there is none.

        Args:
          strategies: those of its variables or models.

        Raises:
          EntryError: there are several, or one of another kind; or there is none, and the config names devices.
        """
        found = list({id(each): each for each in strategies}.values())
        if not found and (wanted := wanted_devices()) is not None:
            raise EntryError(
                f"devices = {wanted!r}, and what is trained is on one device. Make the model, its optimizer and all "
                "else that has variables in a scope: `with trainerd.strategy().scope():`"
            )
        if len(found) > 1:
            raise EntryError("the job was made under several strategies of tf.distribute. Make all of it under one.")
        for strategy in found:
            if type(strategy) is not tf.distribute.MirroredStrategy:
                raise EntryError(
                    f"the job was made under {type_of(strategy)}. Of the strategies of tf.distribute, trainerd "
                    "trains under a MirroredStrategy."
                )
        return cls(found[0]) if found else None

    def replicated(self, step: Callable[..., Any]) -> Callable[..., Any]:
        """Return a step over a whole batch: each replica runs the step on its part. Its metrics are the means."""

        def replicated_step(*batch: Any) -> Any:
            parts = batch if self.count == 1 else tf.nest.map_structure(self._split, batch)
            outputs = self._strategy.run(step, args=parts)
            return tf.nest.map_structure(self._mean, outputs)

        return replicated_step

    def _split(self, whole: Any) -> Any:
        """Return the part of each replica. If it does not divide, the first ones get an element more than the others.

        Keras splits a batch for two devices in the same way. Of more devices, its last ones may get nothing, and their
        loss is NaN.
        """
        if not isinstance(whole, tf.Tensor) or whole.shape.rank == 0:
            what = "a scalar" if isinstance(whole, tf.Tensor) else type_of(whole)
            raise EntryError(
                f"several devices split each batch, and a part of the batch is {what}. Each must be a dense tensor "
                "whose first dimension counts the examples: batch the dataset."
            )
        sizes = self.count if (whole.shape[0] or 1) % self.count == 0 else self._sizes(whole)
        parts = tf.split(whole, sizes, num=self.count)
        return self._strategy.experimental_distribute_values_from_function(
            lambda context: parts[context.replica_id_in_sync_group - self._first]
        )

    def _sizes(self, whole: tf.Tensor) -> tf.Tensor:
        """Return how many elements each replica gets."""
        size = tf.shape(whole)[0]
        message = (
            f"a batch has fewer elements than there are devices ({self.count}): drop it, or choose another batch size"
        )
        with tf.control_dependencies([tf.debugging.assert_greater_equal(size, self.count, message)]):
            return size // self.count + tf.cast(tf.range(self.count) < size % self.count, tf.int32)

    def _mean(self, value: Any) -> Any:
        """Return the mean of a metric over the replicas."""
        values = self._strategy.experimental_local_results(value)
        if len(values) == 1:
            return values[0]
        kind = values[0].dtype
        if kind.is_floating:
            return tf.add_n(values) / len(values)
        return tf.cast(tf.add_n([tf.cast(each, tf.float64) for each in values]) / len(values), tf.float32)

    def differing(self, checkpoint: tf.train.Checkpoint, hidden: Mapping[str, Any], state: Any) -> dict[str, Any]:
        """Return the copies that may differ between the devices, by their keys in a checkpoint.

        Those are the totals of metrics, which each device has for itself, and what a step writes on each device and
        TensorFlow does not aggregate: the statistics of a BatchNormalization, or a state of the job's own. What an
        optimizer writes is the same on all devices.

        Args:
          checkpoint: tracks the state.
          hidden: variables that it does not track, by their keys.
          state: the parts that the job or the program names.
        """
        if self.count == 1:
            return {}
        optimizers = (each for each in parts_of(state) if isinstance(each, keras.optimizers.Optimizer))
        same = {identity(variable) for optimizer in optimizers for variable in optimizer.variables}
        return {
            key_of_copy(number, key): copy
            for key, each in {**own_places(checkpoint), **hidden}.items()
            if is_distributed(each) and not each.trainable and not is_aggregated(each) and identity(each) not in same
            for number, copy in enumerate(copies_of(each))
        }

    def described(self, copies: Mapping[str, Any]) -> dict[str, str]:
        """Return what a manifest says of the devices.

        Args:
          copies: see `differing`.
        """
        if self.count == 1:
            return {}
        return {DEVICES: f"{self.count}, each with {len(copies) // self.count} values of its own"}

    def spread_seeds(self, hidden: Mapping[str, Any]) -> None:
        """Give each device random numbers of its own. The first one keeps those that one device alone would have.

        Args:
          hidden: variables by their keys. Of the states of Keras's seed generators among them, uint32 or int32, shape
            [2], all devices have the first one's.
        """
        for state in (each for key, each in hidden.items() if is_of_seeds(key) and is_distributed(each)):
            copies = copies_of(state)
            seed, count = np.asarray(copies[0]).tolist()
            for number, copy in enumerate(copies, self._first):
                if number:
                    copy.assign(np.array([(seed + number * _APART) % 2**31, count], copy.dtype.as_numpy_dtype))
