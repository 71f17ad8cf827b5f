"""Inputs of a graph whose position TensorFlow does not save."""

from __future__ import annotations

import sys
from typing import Any

from trainerd.checkpoints.contents.op_kinds import CSV
from trainerd.sessions.input.saveable import ENDLESS

Nodes = dict[str, Any]  # by their names


_LEAVES_OUT = (
    "it reads CSV files with TensorFlow's CsvDataset, whose saved position leaves rows out. Use a TextLineDataset and "
    "tf.io.decode_csv"
)


# An input of theirs, by its place, says how often: negative for ever.
_REPEATS = {"RepeatDataset": 1, "ShuffleAndRepeatDataset": 4, "ShuffleAndRepeatDatasetV2": 4}


_HANGS = (
    "it draws from several datasets that end (sample_from_datasets, choose_from_datasets), and TensorFlow waits for "
    "ever where all of them end and one has. Draw from datasets with repeat(), or with stop_on_empty_dataset=True"
)


def unsound_iterators(graph: Any) -> dict[str, list[str]]:
    """Return the iterators of a TensorFlow 1 graph that TensorFlow saves but cannot resume.

    They are names, by the reason.
    """
    definition = graph.as_graph_def()
    functions = {function.signature.name: function.node_def for function in definition.library.function}
    nodes = {node.name: node for node in definition.node}
    repeating = {name for name, body in functions.items() if any(node.op in _REPEATS for node in body)}
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
        elif any(_hangs(node, _Endless(beside, repeating)) for node, beside in behind):
            found.setdefault(_HANGS, []).append(name)
    return found


def _hangs(node: Any, endless: _Endless) -> bool:
    """Return whether a node draws from datasets that all end, and continues until all have; see `saveable._hangs`."""
    if not node.op.endswith("DirectedInterleaveDataset") or node.attr["stop_on_empty_dataset"].b:
        return False
    choice, *chosen = inputs_of(node)
    return endless.has(choice) and not any(map(endless.has, chosen))


class _Endless:
    """Finds out which datasets have no end, or may have none.

    Args:
      nodes: those of a graph, or of a function.
      repeating: the functions in which a dataset is repeated.
    """

    def __init__(self, nodes: Nodes, repeating: set[str]) -> None:
        self._nodes = nodes
        self._repeating = repeating

    def has(self, name: str) -> bool:
        """Return whether a dataset is one of them. If a stage takes only some elements, the stages below decide."""
        node = self._node(name)
        if node is None:  # an argument of a function
            return True
        given = inputs_of(node)
        if node.op.endswith("DirectedInterleaveDataset"):
            choice, *chosen = given
            return self.has(choice) and (all if node.attr["stop_on_empty_dataset"].b else any)(map(self.has, chosen))
        if "Random" in node.op or self._repeating.intersection(_called(node)):
            return True
        if node.op == "RangeDataset":
            return abs(self._number(given[1], ENDLESS)) >= ENDLESS
        if "Take" in node.op and not (node.op == "TakeDataset" and self._number(given[1], 0) < 0):
            return False
        if node.op in _REPEATS and self._number(given[_REPEATS[node.op]], -1) < 0:
            return True
        below = [each for each in given if self._is_dataset(each)]
        return bool(below) and (all if node.op == "ZipDataset" else any)(map(self.has, below))

    def _node(self, name: str) -> Any:
        return self._nodes.get(name.partition(":")[0])

    def _is_dataset(self, name: str) -> bool:
        node = self._node(name)
        return node is not None and "Dataset" in node.op

    def _number(self, name: str, unknown: int) -> int:
        """Return the value of a constant, which is one int64."""
        node = self._node(name)
        if node is None or node.op != "Const":
            return unknown
        tensor = node.attr["value"].tensor
        content: bytes = tensor.tensor_content
        return tensor.int64_val[0] if tensor.int64_val else int.from_bytes(content, sys.byteorder, signed=True)


def inputs_of(node: Any) -> list[str]:
    """Return the names of a node's inputs."""
    return [name for name in node.input if not name.startswith("^")]


def _all_behind(roots: list[Any], nodes: Nodes, functions: dict[str, Any]) -> list[tuple[Any, Nodes]]:
    """Return these nodes, all nodes that they depend on, and those in the functions that they call.

    Each comes with the nodes of its scope.
    """
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
    """Return these nodes, and all that they depend on."""
    found, waiting, seen = [], list(roots), {node.name for node in roots}
    while waiting:
        node = waiting.pop()
        found.append(node)
        given = {name for each in node.input if (name := each.strip("^").partition(":")[0]) in nodes} - seen
        seen |= given
        waiting += [nodes[name] for name in given]
    return found


def _called(node: Any) -> list[str]:
    """Return the functions that a node calls."""
    lists = [each.name for value in node.attr.values() for each in value.list.func]
    return [node.op, *lists, *(value.func.name for value in node.attr.values() if value.HasField("func"))]
