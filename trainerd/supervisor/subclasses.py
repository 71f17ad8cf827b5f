"""Subclasses of a Supervisor: they override methods of TensorFlow's, and use its attributes, by private names.

Those of tensorflow/python/training/supervisor.py, which ours inherits.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import tensorflow as tf

from trainerd.managed.defaults import or_default
from trainerd.sessions.tf1 import defaults
from trainerd.sessions.tf1.saver import Saver

tf1 = tf.compat.v1

# What each method chooses. It has them as arguments, and leaves them in attributes of the same names.
_CHOOSE = {
    "_init_ready_op": ("ready_op", "ready_for_local_init_op"),
    "_init_init_op": ("init_op", "init_feed_dict"),
    "_init_local_init_op": ("local_init_op",),
    "_init_saver": ("saver",),
    "_init_summary_op": ("summary_op",),
    "_init_global_step": ("global_step",),
}
_DEFAULTS: dict[str, Callable[[], Any]] = {
    "ready_op": defaults.ready_op,
    "ready_for_local_init_op": defaults.ready_for_local_init_op,
    "init_op": defaults.init_op,
    "local_init_op": defaults.local_init_op,
    "saver": lambda: defaults.saver(Saver),
    "summary_op": defaults.summary_op,
    "global_step": defaults.global_step,
}
_MANAGE = "_init_session_manager"


def chosen(supervisor: Any, graph: Any, given: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments that a subclass chooses in place of those of a Supervisor.

    Args:
      supervisor: of the subclass.
      graph: the graph; None for the default one.
      given: the Supervisor's arguments.

    Returns:
      The arguments, as the methods that the subclass overrides have changed them.
    """
    found = dict(given)
    if not any(_overrides(supervisor, method) for method in _CHOOSE):
        return found
    with (graph or tf1.get_default_graph()).as_default():
        for method, names in _CHOOSE.items():
            if _overrides(supervisor, method):
                getattr(supervisor, method)(**{name: found[name] for name in names})
                found |= {name: getattr(supervisor, f"_{name}", found[name]) for name in names}
            for name in names:  # the next one may look at it
                found[name] = or_default(found[name], _DEFAULTS.get(name, lambda: None))
                setattr(supervisor, f"_{name}", found[name])
    return found


def name_as_tensorflow(supervisor: Any, made: Any) -> None:
    """Give a Supervisor the attributes of TensorFlow's, and let a subclass make its session manager."""
    names = ["graph", "session_manager", "init_fn", *(name for names in _CHOOSE.values() for name in names)]
    for name in names:
        setattr(supervisor, f"_{name}", getattr(made, name))
    if _overrides(supervisor, _MANAGE):
        getattr(supervisor, _MANAGE)(session_manager=None if made.restores else made.session_manager)
        made.session_manager, made.restores = supervisor._session_manager, False


def _overrides(supervisor: Any, method: str) -> bool:
    return getattr(type(supervisor), method) is not getattr(tf1.train.Supervisor, method)
