"""A Supervisor's defaults from a graph: the first of a collection, or what TensorFlow makes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import tensorflow as tf

tf1 = tf.compat.v1
KEYS = tf1.GraphKeys


def ready_op() -> Any:
    """Return the op that lists uninitialized variables."""
    return _first_or(KEYS.READY_OP, tf1.report_uninitialized_variables)


def ready_for_local_init_op() -> Any:
    """Return the op that names what the local init op still needs; None if the graph has none."""
    return _first_or(KEYS.READY_FOR_LOCAL_INIT_OP)


def init_op() -> Any:
    """Return the op that initializes all variables."""
    return _first_or(KEYS.INIT_OP, tf1.global_variables_initializer)


def local_init_op() -> Any:
    """Return the op that initializes tables and local variables."""
    return _first_or(KEYS.LOCAL_INIT_OP, lambda: tf.group(tf1.local_variables_initializer(), tf1.tables_initializer()))


def saver(make: Callable[[], Any] = tf1.train.Saver) -> Any:
    """Return a Saver of all variables; None if there are none."""
    return _first_or(KEYS.SAVERS, lambda: make() if tf1.global_variables() else None)


def summary_op() -> Any:
    """Return the op that merges all summaries; None if there are none."""
    return _first_or(KEYS.SUMMARY_OP, tf1.summary.merge_all)


def global_step() -> Any:
    """Return the tensor that counts the steps: an integer named `global_step`; None if there is none."""
    return _first_or(KEYS.GLOBAL_STEP, _named_global_step)


def _named_global_step() -> Any:
    try:
        found = tf1.get_default_graph().get_tensor_by_name("global_step:0")
    except KeyError:
        return None
    if found.op.type == "VarHandleOp":  # the variable is a resource: this is its handle
        found = next((v for v in tf1.global_variables() if v.name == "global_step:0"), None)
    if found is None or found.dtype.base_dtype in (tf.int32, tf.int64):
        return found
    tf1.logging.warning("Found 'global_step' is not an int type: %s", found.dtype)
    return None


def _first_or(key: str, make: Callable[[], Any] = lambda: None) -> Any:
    """Return the first of a collection; if that is empty, the result of `make`, which is added to it."""
    found = tf1.get_collection(key)
    if len(found) > 1:
        tf1.logging.info("Found %d %s operations. Returning the first one.", len(found), key)
    if found:
        return found[0]
    made = make()
    if made is not None:
        tf1.add_to_collection(key, made)
    return made
