"""The kinds of ops in a graph, and those that the inputs of a TensorFlow 1 graph are made of."""

from __future__ import annotations

from typing import Any

# Of a CsvDataset TensorFlow saves a position with which what is left of a file is lost.
CSV = {"CSVDataset", "CSVDatasetV2", "ExperimentalCSVDataset", "CsvDataset", "CsvDatasetV2"}


def kinds_of(graph: Any) -> set[str]:
    """Return the kinds of ops in a graph and the functions that it calls."""
    definition = graph.as_graph_def()
    kinds = {node.op for node in definition.node}
    return kinds | {node.op for function in definition.library.function for node in function.node_def}


def kinds_in_steps(graph: Any) -> set[str]:
    """Return the kinds of ops in a graph and its functions, without those that do nothing but initialize variables."""
    operations = graph.get_operations()
    initializers = {each for each in operations if _initializes(each)}
    used = {each for operation in operations for each in _needed_by(operation)}
    to_visit = [each for each in operations if each not in used and each not in initializers]
    found = set(to_visit)
    while to_visit:
        new = {each for each in _needed_by(to_visit.pop()) if each not in found and each not in initializers}
        found |= new
        to_visit += new
    functions = graph.as_graph_def().library.function
    return {each.type for each in found} | {node.op for function in functions for node in function.node_def}


def _initializes(operation: Any) -> bool:
    """Return whether an op gives a variable its first value. TensorFlow names it so; to ask a variable may make another
    op."""
    return bool(operation.inputs) and operation.name == f"{operation.inputs[0].op.name}/Assign"


def _needed_by(operation: Any) -> list[Any]:
    return [*(tensor.op for tensor in operation.inputs), *operation.control_inputs]
