"""Finds what a step changes and no checkpoint holds: after a pause it starts over."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import tensorflow as tf

from trainerd.checkpoints.contents import inexact_ops
from trainerd.checkpoints.contents.graph_walk import Node, Use, Walk, walk
from trainerd.checkpoints.contents.object_graph import handles_of
from trainerd.checkpoints.contents.op_places import described
from trainerd.checkpoints.contents.stateful_ops import PYTHON, RANDOM, READS_FILES, VARIABLES, WRITES_FILES

_SHOWN = 5  # names in a message
_COMPARED = 10_000  # keys of a lookup table: of a larger one, the size alone is compared
# What the ops change whose kind matches.
_WORDS = {
    "LookupTable": "a lookup table",
    "Queue": "a queue",
    "Iterator": "an iterator",
    "StackP": "a stack",
    "Barrier": "a barrier",
    "Stage|Unstage": "a staging area",
    "Accumulator": "an accumulator",
    "Reader": "a file reader",
    "Dataset": "a dataset",
    "WriteFile|Save": "a file",
}


@dataclass(frozen=True)
class Unsaved:
    """The state that a step uses and no checkpoint holds.

    Attributes:
      variables: those that it reads, by their names in words.
      tables: the lookup tables that it reads: the handle, and the types of keys and values.
    """

    variables: Mapping[str, Any] = field(default_factory=dict)
    tables: Sequence[tuple[Any, int, int]] = ()

    def read(self) -> dict[str, list[tf.Tensor]]:
        """Return the values now, by their names in words. Later steps do not change them."""
        found = {words: [tf.convert_to_tensor(each)] for words, each in self.variables.items()}
        return found | {f"lookup table {n}": _content(*table) for n, table in enumerate(self.tables, 1)}


def require_saved(graph: Any, held: Iterable[Any], *, refuse: bool, where: str = "the state") -> Unsaved:
    """Warn of what a function changes and no checkpoint holds: random ops, Python, and state that is not in `held`.

    Args:
      graph: the `FuncGraph` of the function.
      held: the objects that a checkpoint holds.
      refuse: whether that is an error.
      where: where they should be, for the message.

    Raises:
      EntryError: there is some, and `refuse` says that this is an error.
    """
    known = handles_of(held)
    lost = {inside.op.name: outside for outside, inside in graph.captures if id(outside) not in known}
    variables = {id(variable.handle): variable for variable in graph.variables}
    names = {name: _named(variables[id(each)]) for name, each in lost.items() if id(each) in variables}
    definition = graph.as_graph_def()
    saved = {node.name for node in definition.node if node.op == "Placeholder"} - lost.keys()
    found = walk(definition)
    datasets = {
        _described_dataset(name, outside, graph)
        for name, outside in lost.items()
        if outside.dtype == tf.variant and hasattr(outside, "numpy") and _has_state(outside)
    }
    _warn(found, graph, saved, names, datasets, refuse=refuse, where=where)
    changed = {node.name for use in found.changes for node in use.handles}
    read: dict[str, Any] = {}
    for node, name in names.items():
        if node not in changed:
            number = sum(each.startswith(f"the variable {name}") for each in read)
            read[f"the variable {name}" + (f" {number + 1}" if number else "")] = variables[id(lost[node])]
    return Unsaved(
        read,
        [table for node, table in _tables(found, lost).items() if node not in changed],
    )


def require_saved_in(graph: Any, fetches: Iterable[Any], saved: Collection[str], *, refuse: bool) -> None:
    """Warn of the same in a graph of TensorFlow 1; see `require_saved`.

    Args:
      graph: the `tf.Graph`.
      fetches: the operations and tensors that a step runs.
      saved: the names of the nodes that make a handle of what a checkpoint holds.
      refuse: whether it is an error.

    Raises:
      EntryError: there is some, and `refuse` says that this is an error.
    """
    roots = [fetch.name if isinstance(fetch, tf.Operation) else fetch.op.name for fetch in fetches]
    found = walk(graph.as_graph_def(), roots)
    _warn(found, graph, saved, {}, (), refuse=refuse, where="the Saver")


def _warn(
    found: Walk,
    graph: Any,
    saved: Collection[str],
    names: Mapping[str, str],
    others: Iterable[str],
    *,
    refuse: bool,
    where: str,
) -> None:
    """Warn of what a walk has found.

    Args:
      found: the result of the walk.
      graph: the graph that it began with.
      saved: the names of its nodes whose handles are of what is saved.
      names: the names of variables, by the nodes that bring them into the graph.
      others: what is lost beside them, in words.
      refuse: whether it is an error.
      where: where it should be.
    """
    random = [use.node for use in found.changes if use.node.op in RANDOM]
    python = [use.node for use in found.changes if use.node.op in PYTHON]
    if python:
        inexact_ops.warn_or_refuse(
            f"the step calls Python ({_listed(described(node, graph) for node in python)}): what that keeps, such as "
            "an environment or NumPy's random numbers, is in no checkpoint, and after a pause it starts over. Keep it "
            "in variables. If it keeps nothing, say so: tf.numpy_function(..., stateful=False).",
            refuse=refuse,
            event="python",
        )
    if random:
        inexact_ops.warn_or_refuse(
            f"the step draws random numbers with {_listed(described(node, graph) for node in random)}. No checkpoint "
            "holds their state, so they start over after a pause. Use a tf.random.Generator that is in the job's "
            "state, tf.random.stateless_*, or Keras layers with their own seed generators.",
            refuse=refuse,
            event="random-ops",
        )
    changed = {
        node: f"{_words(use, node, names)} ({described(use.node, graph)})"
        for use in reversed(found.changes)
        if use.node.op not in RANDOM | PYTHON
        for node in _lost(use, saved, reads_files=bool(found.kinds & READS_FILES))
    }
    if texts := [*changed.values(), *others]:
        inexact_ops.warn_or_refuse(
            f"the step changes what is not in {where}: {_listed(texts)}. No checkpoint holds it, and after a pause it "
            "starts over. Put what it belongs to (an optimizer, a tf.random.Generator, a layer, an iterator) into "
            f"{where}; a metric of Keras, into an attribute of a model that is in it; a variable that a metric uses, "
            "into an attribute of the metric. Read a dataset by an iterator that is made outside of the step. Keep "
            "what is in a queue, a staging area, an accumulator or a file in variables.",
            refuse=refuse,
            event="forgotten",
        )


def _lost(use: Use, saved: Collection[str], *, reads_files: bool) -> list[Node]:
    """Return the nodes with the handles of lost state that a node changes; the node itself if it takes no handle."""
    if use.node.op in WRITES_FILES and not reads_files:
        return []
    if not use.handles:
        return [use.node]
    return [node for node in use.handles if node.function or node.name not in saved]


def _words(use: Use, lost: Node, names: Mapping[str, str]) -> str:
    """Return the words for what a node changes by a handle."""
    if lost.name in names:
        return f"the variable {names[lost.name]}"
    if lost.op in VARIABLES:
        return lost.name
    return next((words for kind, words in _WORDS.items() if re.search(kind, use.node.op)), f"what {use.node.op} keeps")


def _named(variable: Any) -> str:
    """Return a name by which a person finds a variable. Many have the same one, which TensorFlow gave them."""
    name = variable.name.removesuffix(":0")
    if name == "StateVar":
        return "of a tf.random.Generator"
    if re.fullmatch(r"Variable(_\d+)?", name):
        shape = variable.shape.as_list() if variable.shape.rank is not None else "[...]"
        return f"without a name, {variable.dtype.name}{shape}"
    return repr(name)


def _listed(texts: Iterable[str]) -> str:
    """Return the first of some texts, sorted, and the number of the others."""
    found = sorted(set(texts))
    more = f" and {len(found) - _SHOWN} more" if len(found) > _SHOWN else ""
    return ", ".join(found[:_SHOWN]) + more


# ---------------------------------------------------------------------- what comes from outside the step


def _has_state(variant: Any) -> bool:
    """Return whether a variant is a dataset that gives something else the next time, or changes something."""
    try:
        graph = tf.raw_ops.DatasetToGraphV2(input_dataset=variant, external_state_policy=1)  # 1: ignore the state
    except tf.errors.OpError:  # It is not a dataset, or TensorFlow cannot describe it.
        return False
    definition = tf.compat.v1.GraphDef.FromString(graph.numpy())
    found = [use for use in walk(definition).changes if use.node.op != "AssignVariableOp" or use.node.function]
    return bool(found)


def _described_dataset(name: str, variant: Any, graph: Any) -> str:
    """Return the words for a dataset that a step reads."""
    inside = graph.get_operation_by_name(name).outputs[0]
    reader = inside.consumers()[0]
    return f"a dataset ({described(Node(reader.type, reader.name), graph)})"


def _tables(found: Walk, lost: Mapping[str, Any]) -> dict[str, tuple[Any, int, int]]:
    """Return the lookup tables that are read and not saved, by the nodes that bring them in."""
    return {
        node.name: (lost[node.name], use.types["Tin"], use.types["Tout"])
        for use in found.lookups
        for node in use.handles
        if not node.function and node.name in lost
    }


def _content(handle: Any, keys: int, values: int) -> list[tf.Tensor]:
    """Return the size of a lookup table and, unless it is large, a copy of its keys and values."""
    size = tf.raw_ops.LookupTableSizeV2(table_handle=handle)
    if int(size) > _COMPARED:
        return [size]
    parts = tf.raw_ops.LookupTableExportV2(table_handle=handle, Tkeys=keys, Tvalues=values)
    return [size, *(tf.constant(part.numpy(), part.dtype) for part in parts)]  # a DenseHashTable gives its own memory
