"""From an input function to features and labels in the default graph."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import tensorflow as tf

from trainerd.programs.estimator.arguments import taken_by

tf1 = tf.compat.v1

_SHAPE = "input_fn should return (features, labels) as a len 2 tuple."


def call_input_fn(input_fn: Callable[..., Any], mode: str, params: Any, config: Any) -> Any:
    """Call an input function on the CPU, with those of `mode`, `params` and `config` that it takes.

    Raises:
      TypeError: it is not a function.
    """
    if not callable(input_fn):
        raise TypeError(f"`input_fn` must be callable, given: {input_fn}")
    with tf1.device("/cpu:0"):
        return input_fn(**taken_by(input_fn, mode=mode, params=params, config=config))


def features_and_labels(given: Any) -> tuple[Any, Any]:
    """Return the tensors of a batch.

    A dataset's iterator is initialized with the tables, so a session that is restored continues in mid-epoch.

    Args:
      given: what an input function returned: a `tf.data.Dataset`, features, or (features, labels).

    Returns:
      (features, labels); labels are None if there are none.

    Raises:
      ValueError: it returned something else.
    """
    if isinstance(given, tf.data.Dataset | tf1.data.Dataset):
        iterator = tf1.data.make_initializable_iterator(given)
        tf1.add_to_collection(tf1.GraphKeys.TABLE_INITIALIZERS, iterator.initializer)
        given = iterator.get_next()
    if given is None:
        raise ValueError(f"{_SHAPE} It returned None.")
    if isinstance(given, list | tuple):
        if len(given) != 2:
            raise ValueError(_SHAPE)
        return given[0], given[1]
    return given, None


def has_an_end(graph: Any) -> bool:
    """Return whether the input of a graph may come to an end: it reads a dataset, or queues."""
    kinds = {op.type for op in graph.get_operations()}
    return bool(kinds & {"IteratorGetNext", "IteratorGetNextSync"} or graph.get_collection(tf1.GraphKeys.QUEUE_RUNNERS))
