"""Random ops, and calls of Python, whose state no checkpoint can hold."""

from __future__ import annotations

from typing import Any

from trainerd.checkpoints.contents.op_kinds import kinds_in_steps, kinds_of
from trainerd.checkpoints.contents.stateful_ops import PYTHON, RANDOM

_PYTHON = PYTHON | {"PyFuncStateless"}


def random_ops(graph: Any) -> list[str]:
    """Return the kinds of such ops in a graph and the functions that it calls, sorted."""
    return sorted(kinds_in_steps(graph) & RANDOM)


def calls_python(graph: Any) -> bool:
    """Return whether a graph calls Python, which may never return."""
    return bool(kinds_of(graph) & _PYTHON)
