"""The objects of a `tf.train.Checkpoint` that a program makes, as far as there are any yet."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from trainerd.checkpoints.contents.keras_variables import VALUE, hidden_variables
from trainerd.checkpoints.contents.object_graph import own_objects, tracked_objects, variables_among

STEP_KEY = f"hidden/global_step/{VALUE}"


class Tracked:
    """The objects that a `tf.train.Checkpoint` tracks, and the variables saved beside them. Each call looks again.

    Args:
      checkpoint: the program's `tf.train.Checkpoint`.
      global_step: int64, the count of steps; it is saved whether the checkpoint tracks it or not.
    """

    def __init__(self, checkpoint: Any, global_step: tf.Variable) -> None:
        self.checkpoint = checkpoint
        self._global_step = global_step

    def parts(self) -> dict[str, Any]:
        """Return the parts that the checkpoint was made with, by name."""
        return {name: part for name, part in vars(self.checkpoint).items() if not name.startswith("_")}

    def beside(self, own: list[Any] | None = None) -> dict[str, Any]:
        """Return the variables that are saved beside those that the checkpoint tracks, by key.

        Args:
          own: the checkpoint's own objects, if they are known already.
        """
        own = own_objects(self.checkpoint) if own is None else own
        return {STEP_KEY: self._global_step, **hidden_variables(self.parts(), variables_among(own))}

    def iterators(self) -> list[tf.data.Iterator]:
        """Return the iterators that the checkpoint tracks."""
        return [each for each in tracked_objects(self.checkpoint) if isinstance(each, tf.data.Iterator)]
