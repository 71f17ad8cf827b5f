"""Hooks that act before a step."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping
from typing import Any

import tensorflow as tf

from trainerd.programs.hooks.base import Hook

tf1 = tf.compat.v1


class GlobalStepWaiterHook(Hook):
    """Waits until another process has counted to a global step; see the one of `tf.compat.v1.train`.

    Args:
      wait_until_step: the step.
    """

    POLL_SECS = 0.5

    def __init__(self, wait_until_step: int) -> None:
        self._step = wait_until_step
        self._is_there = wait_until_step <= 0

    def due_at(self, step: int) -> float | None:
        """Return the first step alone."""
        return math.inf if self._is_there else step + 1

    def before_run(self, run_context: tf.compat.v1.train.SessionRunContext) -> None:
        """Wait, unless the run is to end."""
        if self._is_there:
            return
        tf1.logging.info("Waiting for global step %d before starting training.", self._step)
        while run_context.session.step < self._step and not run_context.session.should_stop():
            time.sleep(self.POLL_SECS)
        self._is_there = True


class FeedFnHook(Hook):
    """Gives the step function its arguments; see `tf.compat.v1.train.FeedFnHook`.

    Args:
      feed_fn: returns them by name. It is called before every step.
    """

    def __init__(self, feed_fn: Callable[[], Mapping[str, Any]]) -> None:
        self.feed_fn = feed_fn

    def due_at(self, step: int) -> float | None:
        """Return the next step: it is due at every step."""
        return step + 1

    def before_run(self, run_context: tf.compat.v1.train.SessionRunContext) -> tf.compat.v1.train.SessionRunArgs:
        """Return the arguments."""
        return tf1.train.SessionRunArgs(fetches=None, feed_dict=self.feed_fn())
