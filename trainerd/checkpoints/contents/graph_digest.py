"""A digest of what a job builds: the graph of its step and of its dataset's functions, with their constants.

Two starts of one job build the same graph. If they do not, what was learned may now belong to something else, such as
to other words, if the order of a set numbers the rows of an embedding.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import tensorflow as tf
import xxhash
from numpy.typing import NDArray

LOOKED_AT = 100_000  # numbers, or texts, of a tensor's beginning and of its end
# In a name: TensorFlow counts what it makes, and Keras its layers. The first "dense" of a process has no number.
_NUMBER = re.compile(r"_?\d+")
_SHAPED = ("dtype", "T", "shape", "_output_shapes")


def digest_of(graphs: Iterable[Any], fetches: Sequence[Any] | None = None) -> str:
    """Return a digest of graphs: the kinds and names of their nodes, types, shapes, constants, and the tensors they
    capture.

    Args:
      graphs: of functions, or one of TensorFlow 1.
      fetches: limits the first graph to these and what they are made from. Default: all of it.
    """
    digest = xxhash.xxh3_64()
    for graph in graphs:
        definition = graph.as_graph_def()
        if fetches is not None:
            names = [fetch.op.name if isinstance(fetch, tf.Tensor) else fetch.name for fetch in fetches]
            definition = tf.compat.v1.graph_util.extract_sub_graph(definition, names)
        for node in definition.node:
            _add_node(digest, node)
        for function in sorted(definition.library.function, key=lambda function: _in_order(function.signature.name)):
            for node in function.node_def:
                _add_node(digest, node)
        for outside, _ in getattr(graph, "captures", ()):
            if hasattr(outside, "numpy") and outside.dtype not in (tf.variant, tf.resource):
                add_array(digest, outside.numpy())
    return str(digest.hexdigest())


def add_array(digest: Any, values: NDArray[Any]) -> None:
    """Add an array to a digest; of a large one, its beginning and its end."""
    array = np.ravel(values)
    for part in (array[:LOOKED_AT], array[-LOOKED_AT:]):
        digest.update(repr(part.tolist()).encode() if part.dtype.hasobject else part.tobytes())


def _in_order(name: str) -> list[Any]:
    """Return a name as a sort key: without its numbers, and then these, the last one first.

    TensorFlow's count is at the end, and may be at 999 or at 1000. It counts functions in the order in which they
    are made: those of the layers "dense" and "dense_1" may be those of "dense_1" and "dense_2" later.
    """
    return [_NUMBER.sub("", name), *map(int, reversed(re.findall(r"\d+", name)))]


def _add_node(digest: Any, node: Any) -> None:
    digest.update(f"{node.op} {_NUMBER.sub('', node.name)}\n".encode())
    for name in _SHAPED:
        if name in node.attr:
            digest.update(node.attr[name].SerializeToString(deterministic=True))
    if node.op == "Const":
        digest.update(node.attr["value"].tensor.SerializeToString(deterministic=True))
