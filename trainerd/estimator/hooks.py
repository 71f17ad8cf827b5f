"""The hooks and listeners that a program gives, checked."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import tensorflow as tf

tf1 = tf.compat.v1


class CheckpointHook(tf.compat.v1.train.SessionRunHook):  # type: ignore[misc]
    """A hook that only waits for checkpoints: an Estimator tells its listener of them, and does not call it at a step.

    Attributes:
      listener: a `CheckpointSaverListener`.
    """

    def __init__(self, listener: Any) -> None:
        self.listener = listener


def checked_hooks(hooks: Iterable[Any] | None) -> list[Any]:
    """These hooks.

    Raises:
      TypeError: one is no `SessionRunHook`.
    """
    found = list(hooks or ())
    for hook in found:
        if not isinstance(hook, tf1.train.SessionRunHook):
            raise TypeError(f"Hooks must be a SessionRunHook, given: {hook}")
    return found


def checked_listeners(listeners: Iterable[Any] | None) -> list[Any]:
    """These listeners.

    Raises:
      TypeError: one is no `CheckpointSaverListener`.
    """
    found = list(listeners or ())
    for listener in found:
        if not isinstance(listener, tf1.train.CheckpointSaverListener):
            raise TypeError(f"saving_listeners must be a list of CheckpointSaverListener, given: {listener}")
    return found
