"""Inputs of a graph whose position TensorFlow does not save, or not whole."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from typing import Any

from trainerd.checkpoints.contents import inexact_ops
from trainerd.checkpoints.contents.graph_walk import Node
from trainerd.checkpoints.contents.op_kinds import CSV
from trainerd.checkpoints.contents.op_places import described
from trainerd.sessions.input.early_ends import ends_early
from trainerd.sessions.input.saveable import ENDLESS

Nodes = dict[str, Any]  # by their names


_LEAVES_OUT = (
    "it reads CSV files with TensorFlow's CsvDataset, whose saved position leaves rows out. Use a TextLineDataset and "
    "tf.io.decode_csv"
)


_RESHUFFLES = "reshuffle_each_iteration"

# An input of theirs, by its place, says how often: negative for ever.
_REPEATS = {"RepeatDataset": 1, "ShuffleAndRepeatDataset": 4, "ShuffleAndRepeatDatasetV2": 4}


_HANGS = (
    "it draws from several datasets that end (sample_from_datasets, choose_from_datasets), and TensorFlow waits for "
    "ever where all of them end and one has. Draw from datasets with repeat(), or with stop_on_empty_dataset=True"
)


def require_saved_inputs(graph: Any, *, refuse: bool) -> set[str]:
    """Warn of inputs that a resume does not continue exactly, although TensorFlow saves a position of each.

    Args:
      graph: of TensorFlow 1.
      refuse: whether there may be none.

    Returns:
      The names of the iterators whose position is of no use.

    Raises:
      EntryError: there is one, and `refuse` is true.
    """
    lost: dict[str, list[str]] = {}
    reordered = []
    for name, behind in _iterators(graph):
        if any(node.op in CSV for node, _ in behind):
            lost.setdefault(_LEAVES_OUT, []).append(name)
        elif any(_hangs(node, scope) for node, scope in behind):
            lost.setdefault(_HANGS, []).append(name)
        elif any(_loses_order(node, scope) for node, scope in behind):
            reordered.append(name)
    for why, names in lost.items():
        text = f"the position of an input is not saved, so each start restarts it: {_places(names, graph)}: {why}"
        inexact_ops.warn_or_refuse(text, refuse=refuse, event="input")
    if reordered:
        inexact_ops.warn_or_refuse(
            f"after a pause near an epoch's end the next epochs of an input may have another order: "
            f"{_places(reordered, graph)}. A stage between its shuffle(...) and its repeat() ends before the epoch "
            "does. Call repeat() right after shuffle(...), before batch(...) and prefetch(...), and shuffle once.",
            refuse=refuse,
            event="lost-order",
        )
    return {name for names in lost.values() for name in names}


def _places(names: list[str], graph: Any) -> str:
    return ", ".join(described(Node(graph.get_operation_by_name(name).type, name), graph) for name in names)


def _iterators(graph: Any) -> Iterator[tuple[str, list[tuple[Any, _Scope]]]]:
    """Yield the names of a graph's iterators, each with the nodes of its datasets and the scope of each node."""
    definition = graph.as_graph_def()
    functions = {function.signature.name: function.node_def for function in definition.library.function}
    nodes = {node.name: node for node in definition.node}
    repeating = {name for name, body in functions.items() if any(node.op in _REPEATS for node in body)}
    sources = {node.name: [node] for node in definition.node if node.op == "OneShotIterator"}
    for node in definition.node:
        if node.op == "MakeIterator":  # of a dataset, and an iterator
            dataset, iterator = (name.partition(":")[0] for name in node.input[:2])
            sources.setdefault(iterator, []).append(nodes[dataset])
    for name, roots in sorted(sources.items()):
        yield name, [(node, _Scope(beside, repeating)) for node, beside in _all_behind(roots, nodes, functions)]


def _loses_order(node: Any, scope: _Scope) -> bool:
    """Return whether a node repeats a shuffle, and a stage between them releases it before its epoch ends.

    The next orders are lost then; see `shuffle_order`. Those of a graph's datasets cannot be set.
    """
    if node.op not in _REPEATS or scope.number(node.input[_REPEATS[node.op]], -1) in (0, 1):
        return False
    return any(
        ends_early((_stage_name(each), not scope.drops_remainder(each)) for each in reversed(between))
        for between in _above_shuffles(scope.datasets_of(node), scope)
    )


def _above_shuffles(nodes: list[Any], scope: _Scope, above: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Yield the stages above each shuffle that shuffles anew in each epoch, from these stages on."""
    for node in nodes:
        if node.op.startswith("Shuffle") and not (_RESHUFFLES in node.attr and not node.attr[_RESHUFFLES].b):
            yield above
        yield from _above_shuffles(scope.datasets_of(node), scope, (*above, node))


def _stage_name(node: Any) -> str:
    """Return the kind of a stage, as `pipeline.stage_name` has it: "Shuffle", "Batch"."""
    return re.sub(r"^Experimental|Dataset(V\d)?$", "", node.op)


def _hangs(node: Any, scope: _Scope) -> bool:
    """Return whether a node draws from datasets that all end, and continues until all have; see `saveable._hangs`."""
    if not node.op.endswith("DirectedInterleaveDataset") or node.attr["stop_on_empty_dataset"].b:
        return False
    choice, *chosen = inputs_of(node)
    return scope.is_endless(choice) and not any(map(scope.is_endless, chosen))


class _Scope:
    """The nodes beside a dataset's, which are what it is made from.

    Args:
      nodes: those of a graph, or of a function.
      repeating: the functions in which a dataset is repeated.
    """

    def __init__(self, nodes: Nodes, repeating: set[str]) -> None:
        self._nodes = nodes
        self._repeating = repeating

    def datasets_of(self, node: Any) -> list[Any]:
        """Return the datasets among a node's inputs."""
        return [self._node(name) for name in inputs_of(node) if self._is_dataset(name)]

    def drops_remainder(self, node: Any) -> bool:
        """Return whether a stage that batches drops a smaller last batch: the last input says so."""
        given = self._node(inputs_of(node)[-1])
        return given is not None and given.op == "Const" and list(given.attr["value"].tensor.bool_val) == [True]

    def is_endless(self, name: str) -> bool:
        """Return whether a dataset has no end, or may have none.

        If a stage takes only some elements, the stages below decide.
        """
        node = self._node(name)
        if node is None:  # an argument of a function
            return True
        given = inputs_of(node)
        if node.op.endswith("DirectedInterleaveDataset"):
            choice, *chosen = given
            some = all if node.attr["stop_on_empty_dataset"].b else any
            return self.is_endless(choice) and some(map(self.is_endless, chosen))
        if "Random" in node.op or self._repeating.intersection(_called(node)):
            return True
        if node.op == "RangeDataset":
            return abs(self.number(given[1], ENDLESS)) >= ENDLESS
        if "Take" in node.op and not (node.op == "TakeDataset" and self.number(given[1], 0) < 0):
            return False
        if node.op in _REPEATS and self.number(given[_REPEATS[node.op]], -1) < 0:
            return True
        below = [each for each in given if self._is_dataset(each)]
        return bool(below) and (all if node.op == "ZipDataset" else any)(map(self.is_endless, below))

    def _node(self, name: str) -> Any:
        return self._nodes.get(name.partition(":")[0])

    def _is_dataset(self, name: str) -> bool:
        node = self._node(name)
        return node is not None and "Dataset" in node.op

    def number(self, name: str, unknown: int) -> int:
        """Return the value of a constant, which is one int64; `unknown` of what is none."""
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
