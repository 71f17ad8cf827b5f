"""The kinds of ops in a graph, and those that the inputs of a TensorFlow 1 graph are made of."""

from __future__ import annotations

from typing import Any

# Of a CsvDataset TensorFlow saves a position with which what is left of a file is lost.
CSV = {"CSVDataset", "CSVDatasetV2", "ExperimentalCSVDataset", "CsvDataset", "CsvDatasetV2"}


def kinds_of(graph: Any) -> set[str]:
    """The kinds of ops in a graph and the functions that it calls."""
    definition = graph.as_graph_def()
    kinds = {node.op for node in definition.node}
    return kinds | {node.op for function in definition.library.function for node in function.node_def}
