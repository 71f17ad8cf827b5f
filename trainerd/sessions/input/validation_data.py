"""Validation data that is the same at the same step, whether or not the run was resumed since it began."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any

import tensorflow as tf

from trainerd.checkpoints.contents import inexact_ops
from trainerd.checkpoints.contents.graph_walk import walk
from trainerd.checkpoints.contents.stateful_ops import PYTHON, RANDOM
from trainerd.sessions.input.iterator_state import setter_of_drawn
from trainerd.sessions.input.pipeline import describe, graphs_of, is_reshuffled, stage_name, stages
from trainerd.sessions.input.shuffle_order import has_seed
from trainerd.text import an

log = logging.getLogger(__name__)

_EVENT = "validation-data"
_SO = (
    "Then its metrics, `best` and callbacks such as EarlyStopping are not those of a run without a stop. Give each "
    "shuffle of the validation data a seed, or set `seed` in the config (in a program, call "
    "keras.utils.set_random_seed). For random numbers in `map` use tf.random.stateless_* with seeds from "
    "Dataset.random(seed=1)."
)


class ValidationData:
    """The data of a validation, which each validation reads from its beginning.

    A shuffle with another order in each epoch counts them in memory, and that count is in no checkpoint. So every
    validation has the order of the first one.

    Args:
      data: what it reads: a dataset; anything else is left as it is.
      training: the dataset of the training.
      refuse: whether it is an error if a validation after a resume can have other elements.

    Raises:
      EntryError: it can, and it is.
    """

    def __init__(self, data: Any, training: tf.data.Dataset, *, refuse: bool) -> None:
        self._setters = []
        is_dataset = isinstance(data, tf.data.Dataset)
        self._is = f"Its stages: {describe(data)}." if is_dataset else f"It is of the type {type(data).__name__}."
        if reasons := _reasons(data, training):
            said = f"the validation data can differ after a resume: it has {', and '.join(reasons)}. {_SO} {self._is}"
            inexact_ops.warn_or_refuse(said, refuse=refuse, event=_EVENT)
        if is_dataset:
            ours = _own_stages(data, training)
            self._setters = [setter_of_drawn(stage, 1) for stage in ours if is_reshuffled(stage)]

    def require_same(self, first: Mapping[str, float], second: Mapping[str, float]) -> None:
        """Warn if two validations of the same state gave other metrics."""
        changed = [f"{name} {first[name]!r} and {second[name]!r}" for name in first if not _same(first, second, name)]
        if changed:
            log.warning(
                "a second validation with the same weights gave other metrics: %s. A validation after a resume may "
                "differ too. %s %s",
                ", ".join(changed),
                _SO,
                self._is,
                extra={"event": _EVENT},
            )

    def begin(self) -> None:
        """Prepare a validation, which begins now: its shuffles draw the seeds of the first one."""
        for set_drawn in self._setters:
            set_drawn()


def _own_stages(data: tf.data.Dataset, training: tf.data.Dataset) -> list[tf.data.Dataset]:
    """Return the stages that the training does not read too. The order of the others must stay as it is."""
    read = {id(stage) for stage in stages(training)}
    return list({id(stage): stage for stage in stages(data) if id(stage) not in read}.values())


def _reasons(data: Any, training: tf.data.Dataset) -> list[str]:
    """Return the reasons for which the data may give other elements after a resume, each once."""
    if not isinstance(data, tf.data.Dataset):
        return ["an iterator, which restarts"] if hasattr(data, "__next__") else []
    read = {id(stage) for stage in stages(training) if is_reshuffled(stage)}
    shared = ["a shuffle that the training reads too"] if any(id(stage) in read for stage in stages(data)) else []
    return list(dict.fromkeys([*shared, *(why for stage in _own_stages(data, training) for why in _reasons_of(stage))]))


def _reasons_of(stage: tf.data.Dataset) -> list[str]:
    name, found = stage_name(stage), []
    if name in ("Shuffle", "Random") and not has_seed(stage):
        found.append(f"{an(name.lower())} without a seed")
    if name == "Random" and getattr(stage, "_rerandomize", None):
        found.append("a Dataset.random(rerandomize_each_iteration=True)")
    for node in (node for graph in graphs_of(stage) for node in _nodes(graph)):
        if node.op in RANDOM and name.startswith("Parallel"):
            found.append(f"{node.op} in {an(name)}, which draws in any order")
        elif node.op in RANDOM and not (node.attr["seed"].i or node.attr["seed2"].i):
            found.append(f"{node.op} without a seed")
    walks = [walk(graph.as_graph_def()) for graph in graphs_of(stage)]
    changes = {use.node.op for each in walks for use in each.changes} - RANDOM
    is_generator = any("GeneratorDataset" in each.kinds for each in walks)  # it starts over; `check` compares it
    if changes & PYTHON and not is_generator:
        found.append("a function that calls Python (if it keeps nothing, say tf.numpy_function(..., stateful=False))")
    if changes - PYTHON:
        found.append("a function that changes a variable (a tf.random.Generator, a layer that augments)")
    return found


def _nodes(graph: Any) -> list[Any]:
    """Return the nodes of a graph and of the functions that it calls."""
    definition = graph.as_graph_def()
    return [*definition.node, *(node for function in definition.library.function for node in function.node_def)]


def _same(first: Mapping[str, float], second: Mapping[str, float], name: str) -> bool:
    return repr(first[name]) == repr(second.get(name))  # of NaN too
