"""What running an op of a graph changes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import tensorflow as tf

# Stateful, and yet they leave everything as it is.
READ = {"VarHandleOp", "ReadVariableOp", "VariableV2", "Variable", "VarIsInitializedOp", "IsVariableInitialized"}


@dataclass(frozen=True)
class Effects:
    """What running some fetches does.

    Attributes:
      changes: whether it may change a variable.
      makes: the iterators that it initializes, and the operation that does; one may be given one dataset or another.
      reads: the iterators from which it takes elements, where it names them.
      placeholders: what may be fed to it, by name.
    """

    changes: bool
    makes: Mapping[str, str]
    reads: frozenset[str]
    placeholders: frozenset[str]


def is_change(op: Any) -> bool:
    """Whether an operation may change a variable: one of a resource, or one that it is given by reference."""
    by_reference = any(argument.is_ref for argument in op.op_def.input_arg)
    return bool(op.op_def.is_stateful or by_reference) and op.type not in READ


def ancestors(fetches: Sequence[Any]) -> set[Any]:
    """Every operation that is run for these tensors and operations."""
    seen: set[Any] = set()
    waiting = [fetch if isinstance(fetch, tf.Operation) else fetch.op for fetch in fetches]
    while waiting:
        op = waiting.pop()
        if op not in seen:
            seen.add(op)
            waiting += [*(source.op for source in op.inputs), *op.control_inputs]
    return seen
