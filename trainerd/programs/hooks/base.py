"""The schedule of the hooks, which all of them have in common."""

from __future__ import annotations

import math
import time
from collections.abc import Iterable
from typing import Any

import tensorflow as tf

tf1 = tf.compat.v1


class Timer:
    """A schedule of every so many steps or seconds. It is due at once the first time.

    Args:
      every_secs, every_steps: one of them.

    Raises:
      ValueError: both, or neither.
    """

    def __init__(self, every_secs: float | None, every_steps: int | None) -> None:
        if every_secs is None and every_steps is None:
            raise ValueError("Either every_secs or every_steps should be provided.")
        if every_secs is not None and every_steps is not None:
            raise ValueError("Can not provide both every_secs and every_steps.")
        self.every_secs, self.every_steps = every_secs, every_steps
        self.reset()

    def reset(self) -> None:
        """Start over."""
        self._step: int | None = None
        self._at = 0.0

    def due_at(self, step: int) -> float:
        """Return the step at which it is due, after this one; infinity if the clock decides."""
        if self._step is None:
            return step + 1
        if self.every_steps is not None:
            return max(step + 1, self._step + self.every_steps)
        return step + 1 if self._is_time() else math.inf

    def is_due(self, step: int) -> bool:
        """Return whether it is due after this step."""
        return self.due_at(step - 1) <= step

    def done(self, step: int) -> tuple[float | None, int]:
        """Record that it was done. Returns the seconds and the steps since the last time; None if there was none."""
        now, before = time.monotonic(), self._step
        elapsed = (None, 0) if before is None else (now - self._at, step - before)
        self._step, self._at = step, now
        return elapsed

    def _is_time(self) -> bool:
        return self.every_secs is not None and time.monotonic() >= self._at + self.every_secs


class Hook(tf.compat.v1.train.SessionRunHook):  # type: ignore[misc]
    """A hook that says when it wants to be called.

    Attributes:
      by_clock: whether that depends on the time.
      stops_at: the metric after whose first value that is not a number it must be called; None for none.
    """

    by_clock = False
    stops_at: str | None = None

    def due_at(self, step: int) -> float | None:
        """Return the global step of the next run that it wants, after this step; None for any boundary."""
        return None


def require_graph_hooks(hooks: Iterable[Any]) -> None:
    """Reject hooks of TensorFlow 2 functions: the session of a graph cannot call them.

    Raises:
      TypeError: there is one.
    """
    for hook in hooks:
        if isinstance(hook, Hook):
            name = next(each.__name__ for each in type(hook).__mro__ if hasattr(tf1.train, each.__name__))
            raise TypeError(
                f"{type(hook).__name__} is a hook of trainerd.hooks, for TensorFlow 2 functions, and this session runs "
                f"a graph: use tf.compat.v1.train.{name}, or give MonitoredTrainingSession a `checkpoint`."
            )


class Timed(Hook):
    """A hook that is called on a schedule."""

    _timer: Timer | None = None

    @property
    def by_clock(self) -> bool:  # type: ignore[override]
        return self._timer is not None and self._timer.every_secs is not None

    def due_at(self, step: int) -> float | None:
        """See `Hook`."""
        return math.inf if self._timer is None else self._timer.due_at(step)

    def after_run(
        self, run_context: tf.compat.v1.train.SessionRunContext, run_values: tf.compat.v1.train.SessionRunValues
    ) -> None:
        """Do what is due after this step, if it is time."""
        step = run_context.session.step
        if self._timer is not None and self._timer.is_due(step):
            self._act(step, run_values, *self._timer.done(step))

    def _act(self, step: int, run_values: Any, secs: float | None, steps: int) -> None:
        """Do what is due after this step.

        Args:
          step: the global step.
          run_values: what the run gave.
          secs, steps: since the last time; None and 0 the first time.
        """


def values_at_the_end(session: Any, fetches: Any, feeds: Any) -> Any:
    """Return the wanted values when no step follows; None if a step would have returned them, and none was run."""
    names = [part for part in tf.nest.flatten(fetches) if isinstance(part, str)]
    if names and not session.has_run:
        tf1.logging.info("No step was run, so there is no value of %s.", ", ".join(names))
        return None
    return session.run(fetches, feed_dict=feeds)
