"""One walk over a graph and all that it calls: the nodes that change something, and what they change."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import tensorflow as tf

from trainerd.checkpoints.contents.stateful_ops import (
    DRAWS_SEEDS_IF,
    HARMLESS,
    TEMPORARY,
    definition_of,
    handles_among,
    makes_handle,
)


@dataclass(frozen=True, order=True)
class Node:
    """A node of a graph or of a function that it calls.

    Attributes:
      op: the kind of op.
      name: its name.
      function: the name of the function that it is in; empty for the graph itself.
    """

    op: str
    name: str
    function: str = ""


Handles = frozenset[Node]  # of resources and references: the nodes that make them, or that bring them into the graph


@dataclass(frozen=True)
class Use:
    """A node that uses what outlives a step.

    Attributes:
      node: the node.
      handles: what it uses; empty if it keeps something in its own kernel.
      types: the types of its attributes, by their names.
    """

    node: Node
    handles: Handles = frozenset()
    types: Mapping[str, int] = field(default_factory=dict, compare=False)


@dataclass
class Walk:
    """The result of a walk.

    Attributes:
      changes: each use that may change something, in the order in which they were found.
      lookups: each use that reads a lookup table.
      kinds: the kinds of all ops.
    """

    changes: list[Use] = field(default_factory=list)
    lookups: list[Use] = field(default_factory=list)
    kinds: set[str] = field(default_factory=set)


def walk(definition: Any, roots: Iterable[str] | None = None) -> Walk:
    """Visit each node of a graph, of the functions that it calls, of those that these call, and so on.

    Args:
      definition: a GraphDef.
      roots: the names of the nodes that a step runs: those and what they depend on are visited. Default: all.
    """
    nodes = {node.name: node for node in definition.node}
    if roots is not None:
        nodes = {name: nodes[name] for name in behind(roots, nodes)}
    functions = {function.signature.name: function for function in definition.library.function}
    found, waiting, seen = Walk(), [_Scope("", nodes, {}, functions)], set[Any]()
    while waiting:
        scope = waiting.pop()
        if scope.identity in seen:
            continue
        seen.add(scope.identity)
        for node in scope.nodes.values():
            found.kinds.add(node.op)
            waiting += scope.called(node)
            if node.op == "LookupTableFindV2":
                found.lookups.append(scope.use(node))
            elif _may_change(node) and ((use := scope.use(node)).handles or not scope.handles(node)):
                found.changes.append(use)
    return found


def _may_change(node: Any) -> bool:
    definition = definition_of(node.op)
    if definition is None or node.op in HARMLESS:  # a function's name has no definition: it is a call
        return False
    if node.op in DRAWS_SEEDS_IF and not node.attr[DRAWS_SEEDS_IF[node.op]].b:
        return False
    by_reference = any(argument.is_ref for argument in definition.input_arg)
    if not (definition.is_stateful or by_reference):
        return False
    return bool(handles_among(node, definition)) or not makes_handle(definition)


def _makes(node: Any) -> bool:
    """Return whether a node makes a handle, rather than get it from a function that it calls."""
    definition = definition_of(node.op)
    return definition is not None and makes_handle(definition)


@dataclass(frozen=True)
class _Scope:
    """A graph, or a function as it is called in one place.

    Attributes:
      name: of the function; empty for a graph.
      nodes: its nodes by name.
      arguments: the handles that each argument may be.
      functions: all functions by name.
      returned: the handles that it returns.
      depth: the number of calls that lead to it.
    """

    name: str
    nodes: Mapping[str, Any]
    arguments: Mapping[str, Handles]
    functions: Mapping[str, Any]
    returned: Sequence[str] = ()
    depth: int = 0

    @property
    def identity(self) -> tuple[str, frozenset[tuple[str, Handles]]]:
        """The name and the arguments: a scope with both is visited once."""
        return self.name, frozenset(self.arguments.items())

    def use(self, node: Any) -> Use:
        """Return how a node uses the handles that it takes."""
        types = {name: value.type for name, value in node.attr.items() if value.HasField("type")}
        return Use(Node(node.op, node.name, self.name), self.made_for(self.handles(node)), types)

    def handles(self, node: Any) -> list[str]:
        """Return the inputs of a node that are handles."""
        function = self.functions.get(node.op)
        definition = function.signature if function is not None else definition_of(node.op)
        return handles_among(node, definition) if definition is not None else []

    def called(self, node: Any) -> list[_Scope]:
        """Return the functions that a node calls, with their arguments."""
        return [self._call(node, self.functions[name]) for name in called_by(node) if name in self.functions]

    def _call(self, node: Any, function: Any) -> _Scope:
        """Return a function as a node calls it.

        The node's handles are matched with the function's in their order. If the counts differ, as in a stage of a
        dataset that has several functions, each may be any.
        """
        given = [self.made_for([name]) for name in self.handles(node)]
        wanted = [each.name for each in function.signature.input_arg if each.type == _RESOURCE]
        if len(given) != len(wanted):
            given = [frozenset().union(*given)] * len(wanted)
        nodes = {each.name: each for each in function.node_def}
        arguments = dict(zip(wanted, given, strict=True))
        returned = [function.ret[each.name] for each in function.signature.output_arg if each.type == _RESOURCE]
        return _Scope(function.signature.name, nodes, arguments, self.functions, returned, self.depth + 1)

    def made_for(self, tensors: Iterable[str]) -> Handles:
        """Return the nodes that make these handles, or bring them in. What ends with the step is left out."""
        found, seen, waiting = set[Node](), set[str](), [_node_name(tensor) for tensor in tensors]
        while waiting:
            name = waiting.pop()
            if name in seen:
                continue
            seen.add(name)
            node = self.nodes.get(name)
            if node is None:
                found |= self.arguments.get(name, frozenset())
                continue
            given = self.handles(node)
            waiting += map(_node_name, given)
            calls = [] if _makes(node) or self.depth == _DEEPEST else self.called(node)
            for scope in calls:
                found |= scope.made_for(scope.returned)
            if not (given or calls or node.op in TEMPORARY):
                found.add(Node(node.op, node.name, self.name))
        return frozenset(found)


_RESOURCE = tf.resource.as_datatype_enum
_DEEPEST = 20  # calls within calls that a handle is followed through: a function may call itself


def called_by(node: Any) -> Iterator[str]:
    """Yield the names of the functions that a node may call."""
    yield node.op
    for value in node.attr.values():
        if value.HasField("func"):
            yield value.func.name
        yield from (each.name for each in value.list.func)


def behind(roots: Iterable[str], nodes: Mapping[str, Any]) -> list[str]:
    """Return the names of these nodes and of all that they depend on."""
    found = dict.fromkeys(roots)
    waiting = list(found)
    while waiting:
        new = {_node_name(each) for each in nodes[waiting.pop()].input} - found.keys()
        found |= dict.fromkeys(new)
        waiting += new
    return list(found)


def _node_name(tensor: str) -> str:
    """Return the name of the node that gives a tensor, or that a control input waits for."""
    return tensor.removeprefix("^").partition(":")[0]
