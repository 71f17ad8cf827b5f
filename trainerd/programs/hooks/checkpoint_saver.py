"""The hook that sets the folder in which a session saves, and how often."""

from __future__ import annotations

import math
from collections.abc import Sequence

import tensorflow as tf

from trainerd.programs.hooks.base import Hook, Timer


class CheckpointSaverHook(Hook):
    """Says where and how often the session saves, and whom it calls; see `tf.compat.v1.train.CheckpointSaverHook`.

    The session itself saves, through trainerd's store. A listener's `before_save` is called before the state is taken,
    and its `after_save` when the checkpoint is on disk, before the next step. Without listeners, training continues
    meanwhile.

    Args:
      checkpoint_dir: the run directory.
      save_secs, save_steps: how often; one of them.
      saver, scaffold, save_graph_def: of graphs; not used here.
      checkpoint_basename: the first part of the checkpoints' names.
      listeners: called for each checkpoint.

    Raises:
      ValueError: the arguments set no schedule, or two.
    """

    def __init__(
        self,
        checkpoint_dir: str,
        save_secs: float | None = None,
        save_steps: int | None = None,
        saver: tf.compat.v1.train.Saver | None = None,
        checkpoint_basename: str = "model.ckpt",
        scaffold: tf.compat.v1.train.Scaffold | None = None,
        listeners: Sequence[tf.compat.v1.train.CheckpointSaverListener] | None = None,
        save_graph_def: bool = True,
    ) -> None:
        if saver is not None and scaffold is not None:
            raise ValueError("You cannot provide both saver and scaffold.")
        Timer(save_secs, save_steps)
        self.checkpoint_dir, self.checkpoint_basename = checkpoint_dir, checkpoint_basename
        self.save_secs, self.save_steps = save_secs or 0, save_steps or 0
        self.listeners = list(listeners or [])

    def due_at(self, step: int) -> float | None:
        """Never: the session saves."""
        return math.inf
