"""The datasets of a graph's iterators, as its nodes describe them."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator, Mapping
from functools import cached_property
from typing import Any

from trainerd.checkpoints.contents.graph_walk import behind, called_by
from trainerd.sessions.input.early_ends import Count, above
from trainerd.sessions.input.saveable import ENDLESS

_Counts = dict[str, tuple[Count, str]]

# The index of the input that holds the count. A negative count repeats for ever.
_REPEATS = {"RepeatDataset": 1, "ShuffleAndRepeatDataset": 4, "ShuffleAndRepeatDatasetV2": 4}
_RESHUFFLES = "reshuffle_each_iteration"
_UNBOUNDED = "use_unbounded_threadpool"
_LEGACY_INTERLEAVE = "LegacyParallelInterleave"
_OTHER_NAMES = {
    "ParallelInterleaveDataset": _LEGACY_INTERLEAVE,
    "ExperimentalParallelInterleaveDataset": _LEGACY_INTERLEAVE,
}
# The methods that make stages of other names.
_METHODS = {
    "directed_interleave": "sample_from_datasets",
    "legacy_parallel_interleave": "parallel_interleave",
    "map_and_batch": "map",
    "parallel_batch": "batch",
    "parallel_interleave": "interleave",
    "parallel_map": "map",
}
# Two stages that TensorFlow makes one of; see `Scope._fuses`.
_FUSED = {
    ("Map", "Batch"): "MapAndBatch",
    ("ParallelMap", "Batch"): "MapAndBatch",
    ("Shuffle", "Repeat"): "ShuffleAndRepeat",
}


def iterators(graph: Any) -> Iterator[tuple[str, list[tuple[Any, Scope]]]]:
    """Yield the names of a graph's iterators, each with the nodes of its datasets and the scope of each node."""
    definition = graph.as_graph_def()
    functions = {function.signature.name: function.node_def for function in definition.library.function}
    repeating = {name for name, body in functions.items() if any(node.op in _REPEATS for node in body)}
    scopes = {name: Scope({node.name: node for node in body}, repeating) for name, body in functions.items()}
    nodes = {node.name: node for node in definition.node}
    whole = Scope(nodes, repeating)
    sources = {node.name: [node] for node in definition.node if node.op == "OneShotIterator"}
    for node in definition.node:
        if node.op == "MakeIterator":  # of a dataset, and an iterator
            dataset, iterator = (name.partition(":")[0] for name in node.input[:2])
            sources.setdefault(iterator, []).append(nodes[dataset])
    for name, roots in sorted(sources.items()):
        yield name, _all_behind(roots, whole, scopes)


def _is_unbounded(node: Any) -> bool:
    """Return whether a `map` has threads without a bound, which TensorFlow does not fuse."""
    return _UNBOUNDED in node.attr and bool(node.attr[_UNBOUNDED].b)


def _is_reshuffled(node: Any) -> bool:
    """Return whether a stage shuffles again in each epoch."""
    return node.op.startswith("Shuffle") and not (_RESHUFFLES in node.attr and not node.attr[_RESHUFFLES].b)


def _stage_name(node: Any) -> str:
    """Return the kind of a stage, as `early_ends` names it: "Shuffle", "Batch"."""
    return _OTHER_NAMES.get(node.op) or re.sub(r"^Experimental|Dataset(V\d)?$", "", node.op)


def _as_written(stage: str) -> str:
    """Return the method that makes a stage: "batch(...)"."""
    method = re.sub(r"(?<!^)(?=[A-Z])", "_", stage).lower()
    return f"{_METHODS.get(method, method)}(...)"


class Scope:
    """The nodes of a graph or a function, in which a dataset's stages are.

    Args:
      nodes: those nodes, by their names.
      repeating: the names of the functions in which a dataset is repeated.

    Attributes:
      nodes: those nodes, by their names.
    """

    def __init__(self, nodes: dict[str, Any], repeating: set[str]) -> None:
        self.nodes = nodes
        self._repeating = repeating

    def stage_that_loses_order(self, node: Any) -> str:
        """Return the stage that loses the count of epochs of a shuffle that this node repeats, as a program writes it.

        Empty if none does.

        See `early_ends`. trainerd cannot restore the counts of a graph's datasets.
        """
        if node.op not in _REPEATS or self.number(node.input[_REPEATS[node.op]], -1) in (0, 1):
            return ""
        _, parts = self._stage(node)
        lost = (stage for count, stage in self._below(parts[0], self._counts) if count is Count.LOST)
        return next(map(_as_written, lost), "")

    @cached_property
    def _counts(self) -> _Counts:
        """The worst count of the shuffles below each dataset that has some; see `_count`."""
        found: _Counts = {}
        for node in self.nodes.values():  # in the order in which they were made, and so each after its inputs
            if "Dataset" in node.op and (count := self._count(node, found)) is not None:
                found[node.name] = count
        return found

    def _count(self, node: Any, known: _Counts) -> tuple[Count, str] | None:
        """Return the worst count of the shuffles below a stage, with the name of the stage that lost it, if one did."""
        name, parts = self._stage(node)
        found = [(Count.HELD, "")] if any(map(_is_reshuffled, parts)) else []
        for before, stage in self._below(parts[0], known):
            count = above(before, name, may_end_smaller=not self._drops_remainder(node))
            found.append((count, stage or (name if count is Count.LOST else "")))
        return max(found, default=None)

    def _below(self, node: Any, known: _Counts) -> list[tuple[Count, str]]:
        return [known[each.name] for each in self._datasets_of(node) if each.name in known]

    def _stage(self, node: Any) -> tuple[str, list[Any]]:
        """Return the kind of a stage, and its nodes from below: two if TensorFlow makes one stage of them."""
        name, below = _stage_name(node), self._datasets_of(node)
        if len(below) == 1 and self._fuses and (fused := _FUSED.get((_stage_name(below[0]), name))):
            return fused, [*below, node]
        return name, [node]

    @cached_property
    def _fuses(self) -> bool:
        """True if nothing in the scope can keep TensorFlow from it."""
        return not any(node.op == "OptionsDataset" or _is_unbounded(node) for node in self.nodes.values())

    def _datasets_of(self, node: Any) -> list[Any]:
        """Return the datasets among a node's inputs."""
        return [self._node(name) for name in inputs_of(node) if self._is_dataset(name)]

    def _drops_remainder(self, node: Any) -> bool:
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
        if "Random" in node.op or self._repeating.intersection(called_by(node)):
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
        return self.nodes.get(name.partition(":")[0])

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


def _all_behind(roots: list[Any], whole: Scope, scopes: Mapping[str, Scope]) -> list[tuple[Any, Scope]]:
    """Return these nodes, all nodes that they depend on, and those in the functions that they call.

    Each comes with its scope.
    """
    found = [(whole.nodes[name], whole) for name in behind((node.name for node in roots), whole.nodes)]
    called, entered = [each for node, _ in found for each in called_by(node)], set[str]()
    while called:
        name = called.pop()
        if name in scopes and name not in entered:
            entered.add(name)
            within = scopes[name]
            found += [(node, within) for node in within.nodes.values()]
            called += [each for node in within.nodes.values() for each in called_by(node)]
    return found
