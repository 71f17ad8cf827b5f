"""Of what kinds the ops are that a graph runs, and those of which the inputs of a TensorFlow 1 graph are made."""

from __future__ import annotations

from typing import Any

Nodes = dict[str, Any]  # by their names

# Of a CsvDataset TensorFlow saves a position with which what is left of a file is lost.
CSV = {"CSVDataset", "CSVDatasetV2", "ExperimentalCSVDataset", "CsvDataset", "CsvDatasetV2"}

_LEAVES_OUT = (
    "it reads CSV files with TensorFlow's CsvDataset, whose saved position leaves rows out. Use a TextLineDataset and "
    "tf.io.decode_csv"
)
_HANGS = (
    "it draws from several datasets that end (sample_from_datasets, choose_from_datasets), and TensorFlow waits for "
    "ever once one of them has ended. Draw from datasets with repeat(), or with stop_on_empty_dataset=True"
)


def kinds_of(graph: Any) -> set[str]:
    """The kinds of ops in a graph and the functions that it calls."""
    definition = graph.as_graph_def()
    kinds = {node.op for node in definition.node}
    return kinds | {node.op for function in definition.library.function for node in function.node_def}


def unsound_iterators(graph: Any) -> dict[str, list[str]]:
    """The iterators of a TensorFlow 1 graph that TensorFlow saves, and cannot go on with: by why, their names."""
    definition = graph.as_graph_def()
    functions = {function.signature.name: function.node_def for function in definition.library.function}
    nodes = {node.name: node for node in definition.node}
    sources = {node.name: [node] for node in definition.node if node.op == "OneShotIterator"}
    for node in definition.node:
        if node.op == "MakeIterator":  # of a dataset, and an iterator
            dataset, iterator = (name.partition(":")[0] for name in node.input[:2])
            sources.setdefault(iterator, []).append(nodes[dataset])
    found: dict[str, list[str]] = {}
    for name, roots in sorted(sources.items()):
        behind = _all_behind(roots, nodes, functions)
        if any(node.op in CSV for node, _ in behind):
            found.setdefault(_LEAVES_OUT, []).append(name)
        elif any(_hangs(node, beside) for node, beside in behind):
            found.setdefault(_HANGS, []).append(name)
    return found


def _hangs(node: Any, nodes: Nodes) -> bool:
    """Whether a node draws from datasets of which one ends, and goes on until all have: see `checkpoint._hangs`."""
    if not node.op.endswith("DirectedInterleaveDataset") or node.attr["stop_on_empty_dataset"].b:
        return False
    choice, *chosen = [name for name in node.input if not name.startswith("^")]
    return _is_endless(choice, nodes) and not all(_is_endless(name, nodes) for name in chosen)


def _is_endless(name: str, nodes: Nodes) -> bool:
    """Whether a dataset has no end; where that is not known, since some is left out, whether what it is of has none."""
    node = nodes.get(name.partition(":")[0])
    if node is None:  # an argument of a function
        return True
    if "Random" in node.op:
        return True
    if "Take" in node.op:
        return False
    count = nodes.get(node.input[1].partition(":")[0]) if node.op == "RepeatDataset" else None
    if count is not None and list(count.attr["value"].tensor.int64_val) == [-1]:
        return True
    below = [each for each in node.input if _is_dataset(each, nodes)]
    return bool(below) and (all if node.op == "ZipDataset" else any)(_is_endless(each, nodes) for each in below)


def _is_dataset(name: str, nodes: Nodes) -> bool:
    node = nodes.get(name.partition(":")[0])
    return node is not None and "Dataset" in node.op


def _all_behind(roots: list[Any], nodes: Nodes, functions: dict[str, Any]) -> list[tuple[Any, Nodes]]:
    """These nodes, all that they are made of, and what is in the functions that those call, each with what is there."""
    found = [(node, nodes) for node in _behind(roots, nodes)]
    called, entered = [each for node, _ in found for each in _called(node)], set[str]()
    while called:
        name = called.pop()
        if name in functions and name not in entered:
            entered.add(name)
            within = {node.name: node for node in functions[name]}
            found += [(node, within) for node in functions[name]]
            called += [each for node in functions[name] for each in _called(node)]
    return found


def _behind(roots: list[Any], nodes: Nodes) -> list[Any]:
    """These nodes, and all that they are made of."""
    found, waiting, seen = [], list(roots), {node.name for node in roots}
    while waiting:
        node = waiting.pop()
        found.append(node)
        given = {name for each in node.input if (name := each.strip("^").partition(":")[0]) in nodes} - seen
        seen |= given
        waiting += [nodes[name] for name in given]
    return found


def _called(node: Any) -> list[str]:
    """The functions that a node calls."""
    lists = [each.name for value in node.attr.values() for each in value.list.func]
    return [node.op, *lists, *(value.func.name for value in node.attr.values() if value.HasField("func"))]
