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
    return _checked(hooks, tf1.train.SessionRunHook, "Hooks must be a SessionRunHook")


def checked_listeners(listeners: Iterable[Any] | None) -> list[Any]:
    """These listeners.

    Raises:
      TypeError: one is no `CheckpointSaverListener`.
    """
    kind = tf1.train.CheckpointSaverListener
    return _checked(listeners, kind, "saving_listeners must be a list of CheckpointSaverListener")


def _checked(given: Iterable[Any] | None, kind: Any, rule: str) -> list[Any]:
    found = list(given or ())
    for each in found:
        if not isinstance(each, kind):
            raise TypeError(f"{rule}, given: {each}")
    return found
