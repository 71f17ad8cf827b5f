"""The hooks and listeners that a program gives, checked."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import tensorflow as tf

tf1 = tf.compat.v1


class CheckpointHook(tf.compat.v1.train.SessionRunHook):  # type: ignore[misc]
    """A hook that only waits for checkpoints: an Estimator calls its listener for them, and does not call it at a step.

    Attributes:
      listener: a `CheckpointSaverListener`.
    """

    def __init__(self, listener: Any) -> None:
        self.listener = listener


def checked_hooks(hooks: Iterable[Any] | None, rule: str = "Hooks must be a SessionRunHook") -> list[Any]:
    """Return these hooks as a list.

    Raises:
      TypeError: one is not a `SessionRunHook`, which `rule` says.
    """
    return _checked(hooks, tf1.train.SessionRunHook, rule)


def checked_listeners(
    listeners: Iterable[Any] | None, rule: str = "saving_listeners must be a list of CheckpointSaverListener"
) -> list[Any]:
    """Return these listeners as a list.

    Raises:
      TypeError: one is not a `CheckpointSaverListener`, which `rule` says.
    """
    return _checked(listeners, tf1.train.CheckpointSaverListener, rule)


def _checked(given: Iterable[Any] | None, kind: Any, rule: str) -> list[Any]:
    found = list(given or ())
    for each in found:
        if not isinstance(each, kind):
            raise TypeError(f"{rule}, given: {each}")
    return found
