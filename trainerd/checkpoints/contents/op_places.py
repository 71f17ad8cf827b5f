"""Names the line of the user's source that made an op."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import tensorflow as tf

from trainerd.checkpoints.contents.graph_walk import Node
from trainerd.job.user_code import is_users_file

_LIBRARIES = str(Path(tf.__file__).parent.parent)  # where TensorFlow is, and mostly Keras and all others


def described(node: Node, graph: Any) -> str:
    """Return an op's kind, and the user's file and line if they are known, such as "RandomUniform in job.py:12".

    Args:
      node: where a walk has found it.
      graph: the `tf.Graph` that the walk began with.
    """
    place = _place(node, graph)
    return f"{node.op} in {place}" if place else node.op


def _place(node: Node, graph: Any) -> str:
    """Return the innermost line of the user's source that made an op; empty if there is none, as in a loaded model."""
    try:
        inner = graph._get_function(node.function).graph if node.function else graph
        frames = inner.get_operation_by_name(node.name).traceback
    except (AttributeError, KeyError, ValueError):
        return ""
    for frame in reversed(frames or ()):  # None for an imported graph
        if is_users_file(frame.filename) and not frame.filename.startswith(_LIBRARIES):
            return f"{_short(frame.filename)}:{frame.lineno}"
    return ""


def _short(path: str) -> str:
    """Return a path from the current folder on, if it is below that."""
    below = os.path.relpath(path)
    return path if below.startswith(os.pardir) else below
