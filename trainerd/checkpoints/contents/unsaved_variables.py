"""Variables, tables and queues that a step changes and no checkpoint holds: after a pause they begin anew."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import tensorflow as tf

from trainerd.checkpoints.contents import inexact_ops
from trainerd.checkpoints.contents.object_graph import variables_among

_SHOWN = 5  # names in a message
# What takes a variable and does not change it.
_READS = {"ReadVariableOp", "ResourceGather", "ResourceGatherNd", "VarIsInitializedOp", "VariableShape"}
# What changes another resource, and what that is.
_WRITES = {
    **dict.fromkeys(("LookupTableInsertV2", "LookupTableImportV2", "LookupTableRemoveV2"), "a lookup table"),
    **dict.fromkeys(("QueueEnqueueV2", "QueueEnqueueManyV2"), "a queue"),
    **dict.fromkeys(("QueueDequeueV2", "QueueDequeueManyV2", "QueueDequeueUpToV2"), "a queue"),
    **dict.fromkeys(("StackPushV2", "StackPopV2"), "a stack"),
    **dict.fromkeys(("BarrierInsertMany", "BarrierTakeMany"), "a barrier"),
}


def require_held(graph: Any, held: Iterable[Any], *, refuse: bool, where: str = "the state") -> None:
    """Warn of variables, lookup tables and queues that a step changes and no checkpoint holds.

    Args:
      graph: that of the step.
      held: the objects that a checkpoint holds.
      refuse: whether that is an error.
      where: where they should be, for the message.

    Raises:
      EntryError: there are some, and it is.
    """
    objects = list(held)
    known = {id(variable.handle) for variable in variables_among(objects)}
    known |= {id(each.resource_handle) for each in objects if hasattr(each, "resource_handle")}  # of tables
    captured = [(outside, inside) for outside, inside in graph.captures if outside.dtype == tf.resource]
    lost = {inside.op.name: outside for outside, inside in captured if id(outside) not in known}
    if not lost:
        return
    definition = graph.as_graph_def()
    functions = {function.signature.name: function for function in definition.library.function}
    variables = {id(variable.handle): variable.name.removesuffix(":0") for variable in graph.variables}
    changed = [
        what
        for name, outside in lost.items()
        if (what := _changed(definition.node, name, functions, variables.get(id(outside))))
    ]
    if not changed:
        return
    names = ", ".join(sorted(changed)[:_SHOWN])
    more = f" and {len(changed) - _SHOWN} more" if len(changed) > _SHOWN else ""
    inexact_ops.tell(
        f"the step changes what is not in {where}: {names}{more}. No checkpoint holds it, and after a pause it begins "
        f"anew. Put what it belongs to (an optimizer, a tf.random.Generator, a layer) into {where}; a metric of Keras, "
        "into an attribute of a model that is in it; and what is in a queue, into variables.",
        refuse=refuse,
        event="forgotten",
    )


def _changed(nodes: Any, name: str, functions: dict[str, Any], variable: str | None) -> str:
    """The kind of the resource with this name in a graph, if some node may change it: a variable or another one."""
    if variable is not None:
        return variable if _changes(nodes, name, functions, lambda op: op not in _READS) else ""
    for what in dict.fromkeys(_WRITES.values()):
        if _changes(nodes, name, functions, _that_changes(what)):
            return what
    return ""


def _that_changes(what: str) -> Callable[[str], bool]:
    return lambda op: _WRITES.get(op) == what


def _changes(nodes: Any, name: str, functions: dict[str, Any], is_write: Callable[[str], bool]) -> bool:
    """Whether some node takes the tensor with this name, and may write into it."""
    for node in nodes:
        places = [place for place, given in enumerate(node.input) if given.partition(":")[0] == name]
        if places and any(_writes(node, place, functions, is_write) for place in places):
            return True
    return False


def _writes(node: Any, place: int, functions: dict[str, Any], is_write: Callable[[str], bool]) -> bool:
    """Whether a node may write into its input at this place: a call does if one of its functions does."""
    called = [value.func.name for value in node.attr.values() if value.HasField("func")]
    called += [each.name for value in node.attr.values() for each in value.list.func]
    found = [functions[name] for name in called if name in functions]
    if not found:
        return is_write(node.op)
    given = sum(not name.startswith("^") for name in node.input)  # those are control inputs
    return any(_changes_argument(function, given, place, functions, is_write) for function in found)


def _changes_argument(
    function: Any, given: int, place: int, functions: dict[str, Any], is_write: Callable[[str], bool]
) -> bool:
    """Whether a function writes into its argument; If and Case have an input before the arguments."""
    arguments = function.signature.input_arg
    index = place - (given - len(arguments))
    return 0 <= index < len(arguments) and _changes(function.node_def, arguments[index].name, functions, is_write)
