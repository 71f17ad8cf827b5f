"""Of what kinds the ops are that a graph runs, and those of which the inputs of a TensorFlow 1 graph are made."""

from __future__ import annotations

from typing import Any

# Of a CsvDataset TensorFlow saves a position with which what is left of a file is lost.
CSV = {"CSVDataset", "CSVDatasetV2", "ExperimentalCSVDataset", "CsvDataset", "CsvDatasetV2"}


def kinds_of(graph: Any) -> set[str]:
    """The kinds of ops in a graph and the functions that it calls."""
    definition = graph.as_graph_def()
    kinds = {node.op for node in definition.node}
    return kinds | {node.op for function in definition.library.function for node in function.node_def}


def iterators_of_csv(graph: Any) -> set[str]:
    """The iterators of a TensorFlow 1 graph whose datasets read CSV files, by name."""
    definition = graph.as_graph_def()
    functions = {function.signature.name: function.node_def for function in definition.library.function}
    nodes = {node.name: node for node in definition.node}
    sources = {node.name: [node] for node in definition.node if node.op == "OneShotIterator"}
    for node in definition.node:
        if node.op == "MakeIterator":  # of a dataset, and an iterator
            dataset, iterator = (name.partition(":")[0] for name in node.input[:2])
            sources.setdefault(iterator, []).append(nodes[dataset])
    return {name for name, found in sources.items() if _kinds_behind(found, nodes, functions) & CSV}


def _kinds_behind(sources: list[Any], nodes: dict[str, Any], functions: dict[str, Any]) -> set[str]:
    """The kinds of these nodes, of all that they are made of, and of what is in the functions that those call."""
    kinds, waiting, seen = set[str](), list(sources), {node.name for node in sources}
    called = list[str]()
    while waiting:
        node = waiting.pop()
        kinds.add(node.op)
        called += _called(node)
        given = {name for each in node.input if (name := each.strip("^").partition(":")[0]) in nodes} - seen
        seen |= given
        waiting += [nodes[name] for name in given]
    entered = set[str]()
    while called:
        name = called.pop()
        if name in functions and name not in entered:
            entered.add(name)
            kinds.update(node.op for node in functions[name])
            called += [each for node in functions[name] for each in _called(node)]
    return kinds


def _called(node: Any) -> list[str]:
    """The functions that a node calls."""
    lists = [each.name for value in node.attr.values() for each in value.list.func]
    return [node.op, *lists, *(value.func.name for value in node.attr.values() if value.HasField("func"))]
