"""A session that all evaluations of a graph use; each finds it in the state of a new one.

A new session costs more than a small evaluation: TensorFlow optimizes the graph anew for each of its first runs.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from trainerd.programs.monitored.session_creators import ChiefSessionCreator
from trainerd.sessions.tf1.effects import ancestors

tf1 = tf.compat.v1

# What a second evaluation in the same session would find changed: random numbers, queues, readers, Python's state.
_REMEMBERS = ("random", "shuffle", "sample", "pyfunc", "generator", "oneshot", "queue", "reader", "stack")


def can_be_kept(graph: Any, fetches: Sequence[Any]) -> bool:
    """Return whether only variables and iterators remember an evaluation: they are initialized again.

    Args:
      graph: the graph.
      fetches: the ops and tensors that the evaluation runs.
    """
    ops = ancestors([*fetches, *_iterator_initializers(graph)])
    functions = graph.as_graph_def().library.function
    kinds = {op.type.lower() for op in ops} | {node.op.lower() for each in functions for node in each.node_def}
    return not any(word in kind for kind in kinds for word in _REMEMBERS)


def _iterator_initializers(graph: Any) -> list[Any]:
    return [op for op in graph.get_operations() if op.type == "MakeIterator"]


class KeptSession:
    """The session of the evaluations of one graph.

    Args:
      scaffold: of the model.
      master: the address of the server; "" for this process.
      config: a ConfigProto.
    """

    def __init__(self, scaffold: Any, master: str, config: Any) -> None:
        self._scaffold = scaffold
        self._master = master
        self._config = config
        self._session: Any = None
        self._anew: list[Any] = []
        self._resting: threading.Thread | None = None

    def of(self, checkpoint_path: str) -> Any:
        """Return the session, with a checkpoint restored, and everything else as at the beginning."""
        if self._session is None:
            self._anew = [*_iterator_initializers(tf1.get_default_graph()), tf1.local_variables_initializer()]
            creator = ChiefSessionCreator(self._scaffold, self._master, self._config)
            self._session = creator.create_session_from(checkpoint_path)
        else:
            self._rested()
            self._scaffold.saver.restore(self._session, checkpoint_path)
            self._session.run(self._anew)
        return self._session

    def rest(self) -> None:
        """End the input of an evaluation, which is over, in the background, and not when the next one begins.

        TensorFlow waits for the thread that tunes an input, which sleeps the longer the older the input is.
        """
        session, inputs = self._session, _iterator_initializers(tf1.get_default_graph())
        self._resting = threading.Thread(target=lambda: session.run(inputs), name="trainerd-old-input", daemon=True)
        self._resting.start()

    def _rested(self) -> None:
        if self._resting is not None:
            self._resting.join()

    def close(self) -> None:
        """Close it; the next evaluation makes another."""
        self._rested()
        session, self._session = self._session, None
        if session is not None:
            session.close()
