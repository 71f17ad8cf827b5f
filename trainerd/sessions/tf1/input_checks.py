"""Inputs of a graph whose position TensorFlow does not save, or not whole."""

from __future__ import annotations

from dataclasses import dataclass
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
    "it draws from several datasets that end (sample_from_datasets, choose_from_datasets), and TensorFlow waits "
    "forever if one has ended. Draw from datasets with repeat(), or with stop_on_empty_dataset=True"
)


@dataclass(frozen=True)
class InexactInput:
    """An input that a resume does not continue exactly.

    Attributes:
      name: of its iterator.
      text: what is lost, and what to write instead.
      is_saved: whether its position is saved all the same.
    """

    name: str
    text: str
    is_saved: bool

    def warn_or_refuse(self, *, refuse: bool) -> None:
        """Warn of it.

        Args:
          refuse: whether it is an error.

        Raises:
          EntryError: it is.
        """
        inexact_ops.warn_or_refuse(self.text, refuse=refuse, event="lost-order" if self.is_saved else "input")


def inexact_inputs(graph: Any) -> list[InexactInput]:
    """Return the inputs of a graph whose position TensorFlow saves, but not so that a resume is exact."""
    found = []
    for name, behind in iterators(graph):
        if why := _why_lost(behind):
            found.append(without_position(name, graph, why))
        elif stages := {stage for node, scope in behind if (stage := scope.stage_that_loses_order(node))}:
            text = (
                f"after a pause the next epochs of an input may have another order: {_place_of(name, graph)} has "
                f"{' and '.join(sorted(stages))} between shuffle(...) and repeat(). In a graph write cache(...), "
                "shuffle(...), repeat(), batch(...), prefetch(...) in this order."
            )
            found.append(InexactInput(name, text, is_saved=True))
    return found


def without_position(name: str, graph: Any, why: str) -> InexactInput:
    """Return an input whose position is not saved.

    Args:
      name: of its iterator.
      graph: the `tf.Graph` that it is in.
      why: the reason, and what to write instead.
    """
    text = f"the position of an input is not saved, so each start restarts it: {_place_of(name, graph)}: {why}"
    return InexactInput(name, text, is_saved=False)


def _why_lost(behind: list[tuple[Any, Scope]]) -> str:
    """Return why the position that TensorFlow saves cannot be resumed from; empty if it can."""
    if any(node.op in CSV for node, _ in behind):
        return _LEAVES_OUT
    return _HANGS if any(_hangs(node, scope) for node, scope in behind) else ""


def _hangs(node: Any, scope: Scope) -> bool:
    """Return whether a node draws from datasets that all end, and continues until all have; see `saveable._hangs`."""
    if not node.op.endswith("DirectedInterleaveDataset") or node.attr["stop_on_empty_dataset"].b:
        return False
    choice, *chosen = inputs_of(node)
    return scope.is_endless(choice) and not any(map(scope.is_endless, chosen))


def _place_of(name: str, graph: Any) -> str:
    """Return an iterator's kind with the line that made it; its name if that is not known."""
    kind = graph.get_operation_by_name(name).type
    found = described(Node(kind, name), graph)
    return found if found != kind else name
