"""The rules of a `step_fn`."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

CLOSED = "Session is already closed."


STOPPED = "Run called even after should_stop requested."


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
