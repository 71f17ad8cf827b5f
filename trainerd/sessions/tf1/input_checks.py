"""Inputs of a graph whose position TensorFlow does not save, or not whole."""

from __future__ import annotations

from typing import Any

from trainerd.checkpoints.contents import inexact_ops
from trainerd.checkpoints.contents.graph_walk import Node
from trainerd.checkpoints.contents.op_kinds import CSV
from trainerd.checkpoints.contents.op_places import described
from trainerd.sessions.tf1.input_graph import Scope, inputs_of, iterators

_LEAVES_OUT = (
    "it reads CSV files with TensorFlow's CsvDataset, whose saved position leaves rows out. Use a TextLineDataset and "
    "tf.io.decode_csv"
)
_HANGS = (
    "it draws from several datasets that end (sample_from_datasets, choose_from_datasets), and TensorFlow waits for "
    "ever where all of them end and one has. Draw from datasets with repeat(), or with stop_on_empty_dataset=True"
)


def require_saved_inputs(graph: Any, *, refuse: bool) -> set[str]:
    """Warn of inputs that a resume does not continue exactly.

    Args:
      graph: a `tf.Graph`.
      refuse: whether such an input is an error.

    Returns:
      The names of the iterators whose saved position cannot be resumed from.

    Raises:
      EntryError: there is such an input, and `refuse` is true.
    """
    lost = set()
    for name, behind in iterators(graph):
        if why := _why_lost(behind):
            lost.add(name)
            warn_of_lost_position(name, graph, why, refuse=refuse)
        elif stages := {stage for node, scope in behind if (stage := scope.stage_that_loses_order(node))}:
            inexact_ops.warn_or_refuse(
                f"after a pause the next epochs of an input may have another order: {_place_of(name, graph)} has "
                f"{' and '.join(sorted(stages))} between shuffle(...) and repeat(). In a graph write cache(...), "
                "shuffle(...), repeat(), batch(...), prefetch(...) in this order.",
                refuse=refuse,
                event="lost-order",
            )
    return lost


def _why_lost(behind: list[tuple[Any, Scope]]) -> str:
    """Return why the position that TensorFlow saves cannot be resumed from; empty if it can."""
    if any(node.op in CSV for node, _ in behind):
        return _LEAVES_OUT
    return _HANGS if any(_hangs(node, scope) for node, scope in behind) else ""


def warn_of_lost_position(name: str, graph: Any, why: str, *, refuse: bool) -> None:
    """Warn of an input whose position is not saved.

    Args:
      name: of its iterator.
      graph: the `tf.Graph` that it is in.
      why: the reason, and the cure if there is one.
      refuse: whether that is an error.

    Raises:
      EntryError: `refuse` is true.
    """
    text = f"the position of an input is not saved, so each start restarts it: {_place_of(name, graph)}: {why}"
    inexact_ops.warn_or_refuse(text, refuse=refuse, event="input")


def _place_of(name: str, graph: Any) -> str:
    """Return an iterator's kind with the line that made it; its name if that is not known."""
    kind = graph.get_operation_by_name(name).type
    found = described(Node(kind, name), graph)
    return found if found != kind else name


def _hangs(node: Any, scope: Scope) -> bool:
    """Return whether a node draws from datasets that all end, and continues until all have; see `saveable._hangs`."""
    if not node.op.endswith("DirectedInterleaveDataset") or node.attr["stop_on_empty_dataset"].b:
        return False
    choice, *chosen = inputs_of(node)
    return scope.is_endless(choice) and not any(map(scope.is_endless, chosen))
