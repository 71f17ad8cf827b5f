"""The argument of a `step_fn`."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

CLOSED = "Session is already closed."


STOPPED = "Run called even after should_stop requested."


class StepContext:
    """The argument of a `step_fn`: a session without hooks, and a way to run with them.

    Args:
      session: the `tf.compat.v1.Session`.
      run_with_hooks: `MonitoredSession.run`.
    """

    def __init__(self, session: Any, run_with_hooks: Callable[..., Any]) -> None:
        self.session = session
        self.run_with_hooks = run_with_hooks

    def request_stop(self) -> None:
        """End the step function, and the loop.

        Raises:
          StopIteration: always.
        """
        raise StopIteration("step_fn has requested the iterations to stop.")


def require_step_fn(step_fn: Callable[..., Any]) -> None:
    """Refuse a function that `run_step_fn` cannot call.

    Raises:
      ValueError: it does not take one argument, named `step_context`.
    """
    arguments = tuple(inspect.signature(inspect.unwrap(step_fn)).parameters)
    if arguments not in (("step_context",), ("self", "step_context")):
        raise ValueError(
            "`step_fn` may either have one `step_context` argument, or `self` and `step_context` arguments if it's "
            f"an instance method. Got {arguments} instead."
        )
