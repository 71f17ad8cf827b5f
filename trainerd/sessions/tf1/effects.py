"""The effects of running ops of a graph."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import tensorflow as tf

# Stateful, and yet they leave everything as it is.
READ = {"VarHandleOp", "ReadVariableOp", "VariableV2", "Variable", "VarIsInitializedOp", "IsVariableInitialized"}


@dataclass(frozen=True)
class Effects:
    """The effects of running some fetches.

    Attributes:
      changes: whether it may change a variable.
      makes: the iterators that it initializes, and the operation that does: an iterator may get one dataset or another.
      reads: the iterators that it names and takes elements from.
      placeholders: the names of the placeholders that may be fed to it.
    """

    changes: bool
    makes: Mapping[str, str]
    reads: frozenset[str]
    placeholders: frozenset[str]


def is_change(op: Any) -> bool:
    """Return whether an operation may change a variable, by its resource or by reference."""
    by_reference = any(argument.is_ref for argument in op.op_def.input_arg)
    return bool(op.op_def.is_stateful or by_reference) and op.type not in READ


def ancestors(fetches: Sequence[Any]) -> set[Any]:
    """Return every operation that is run for these tensors and operations."""
    seen: set[Any] = set()
    waiting = [fetch if isinstance(fetch, tf.Operation) else fetch.op for fetch in fetches]
    while waiting:
        op = waiting.pop()
        if op not in seen:
            seen.add(op)
            waiting += [*(source.op for source in op.inputs), *op.control_inputs]
    return seen
