"""The session that a program gets: TensorFlow's own, whose `run` is faster and ends at a boundary."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import tensorflow as tf

from trainerd.sessions.callables import Callables
from trainerd.sessions.graph import GraphSession
from trainerd.sessions.graphstate import GraphState
from trainerd.supervisor.boundary import Boundary

tf1 = tf.compat.v1


@dataclass
class Care:
    """What a managed session is looked after by.

    Attributes:
      boundary: what follows each step.
      state: what of the graph is saved; None where nothing is.
      model: the graph as it is saved and restored; None where nothing is.
      callables: the prepared fetches; None once the session is closed.
      failure: the last error that a step raised, whose state is no boundary's.
      next_step: the global step at which a service is due; infinity where none is by steps.
      save_path, save: what its checkpoints' names begin with, and what makes one now; None where none are made.
    """

    boundary: Boundary
    state: GraphState | None
    model: GraphSession | None
    callables: Callables | None = field(default=None)
    failure: BaseException | None = field(default=None)
    next_step: float = field(default=math.inf)
    save_path: Path | None = field(default=None)
    save: Callable[[], str] | None = field(default=None)

    def seen(self, session: Any) -> Callable[[Any, Callable[[], Any]], Callable[[], Any]]:
        """For `Callables`: where fetches initialize an input that was in mid-epoch, it goes on from there."""

        def wrap(fetches: Any, call: Callable[[], Any]) -> Callable[[], Any]:
            model, names = self.model, self._initialized(session, fetches)
            if model is None or not names:
                return call

            def call_and_move() -> Any:
                result = call()
                model.initialized(names)
                return result

            return call_and_move

        return wrap

    def initialized(self, session: Any, fetches: Any) -> None:
        """These fetches were run past `Callables`."""
        if self.model is not None and (names := self._initialized(session, fetches)):
            self.model.initialized(names)

    def _initialized(self, session: Any, fetches: Any) -> set[str]:
        """The inputs that these fetches initialize; looked for only while one waits to go on in mid-epoch."""
        if self.state is None or self.model is None or not self.model.has_waiting:
            return set()
        elements = []
        for part in tf.nest.flatten(fetches, expand_composites=True):
            try:
                elements.append(session.graph.as_graph_element(part))
            except (TypeError, ValueError, KeyError):  # what Session.run knows and the graph does not
                continue
        return self.state.initializes(elements)


class ManagedSession(tf.compat.v1.Session):  # type: ignore[misc]
    """A `tf.compat.v1.Session` that is looked after.

    It is not made, but one that a SessionManager made becomes it: see `adopt`.
    """

    care: Care | None

    def run(self, fetches: Any, feed_dict: Any = None, options: Any = None, run_metadata: Any = None) -> Any:
        """See `tf.compat.v1.Session.run`. On the loop's thread the end of a run is a boundary."""
        care = self.care
        if care is None or not care.boundary.is_mine:
            return super().run(fetches, feed_dict, options, run_metadata)
        boundary = care.boundary
        with boundary.lock:
            result = self.run_step(fetches, feed_dict, options, run_metadata)
            if boundary.flag.is_raised:
                boundary.reached()
        return result

    def run_step(self, fetches: Any, feed_dict: Any = None, options: Any = None, run_metadata: Any = None) -> Any:
        """As `run`, for who looks after the boundary itself."""
        care = self.care
        assert care is not None
        try:
            if not feed_dict and options is None and run_metadata is None and care.callables is not None:
                result = care.callables.run(fetches)
            else:
                result = super().run(fetches, feed_dict, options, run_metadata)
                care.initialized(self, fetches)
        except BaseException as error:
            care.failure = error
            raise
        if care.model is not None:
            care.model.runs += 1
        return result

    def close(self) -> None:
        """See `tf.compat.v1.Session.close`."""
        if self.care is not None:
            self.care.callables = None
        super().close()


def adopt(session: Any, care: Care) -> Any:
    """Make a `tf.compat.v1.Session` a managed one: the very same, so that all that holds it sees the change."""
    if isinstance(session, ManagedSession):
        session.__class__ = tf1.Session
    session.care = care
    session.__class__ = ManagedSession
    care.callables = Callables(session, care.seen(session))
    return session
