"""The ops of a graph: their kinds, which of them are random or call Python, and what an op depends on."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Any

import tensorflow as tf

from trainerd.checkpoints.contents.stateful_ops import PYTHON, RANDOM

_PYTHON = PYTHON | {"PyFuncStateless"}
# Of a CsvDataset TensorFlow saves a position with which what is left of a file is lost.
CSV = {"CSVDataset", "CSVDatasetV2", "ExperimentalCSVDataset", "CsvDataset", "CsvDatasetV2"}


def kinds_of(graph: Any) -> set[str]:
    """Return the kinds of ops in a graph and the functions that it calls."""
    definition = graph.as_graph_def()
    kinds = {node.op for node in definition.node}
    return kinds | {node.op for function in definition.library.function for node in function.node_def}


def random_ops(graph: Any) -> list[str]:
    """Return the kinds of random ops whose state no checkpoint holds, sorted, without those that initialize."""
    operations = graph.get_operations()
    initializers = {each for each in operations if _initializes(each)}
    used = {each for operation in operations for each in _needed_by(operation)}
    found = ancestors((each for each in operations if each not in used), without=initializers)
    functions = graph.as_graph_def().library.function
    kinds = {each.type for each in found} | {node.op for function in functions for node in function.node_def}
    return sorted(kinds & RANDOM)


def calls_python(graph: Any) -> bool:
    """Return whether a graph calls Python, which may never return."""
    return bool(kinds_of(graph) & _PYTHON)


def ancestors(fetches: Iterable[Any], without: Collection[Any] = ()) -> set[Any]:
    """Return these operations and all that they depend on. The walk stops at those in `without`."""
    seen: set[Any] = set()
    waiting = [fetch if isinstance(fetch, tf.Operation) else fetch.op for fetch in fetches]
    while waiting:
        op = waiting.pop()
        if op not in seen and op not in without:
            seen.add(op)
            waiting += _needed_by(op)
    return seen


def _initializes(operation: Any) -> bool:
    """Return whether an op gives a variable its first value. TensorFlow names it so; to ask a variable may make another
    op."""
    return bool(operation.inputs) and operation.name == f"{operation.inputs[0].op.name}/Assign"


def _needed_by(operation: Any) -> list[Any]:
    return [*(tensor.op for tensor in operation.inputs), *operation.control_inputs]
