"""The session that a program gets: TensorFlow's own, whose `run` is faster and ends at a boundary."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import tensorflow as tf

from trainerd.sessions.callables import Callables
from trainerd.sessions.graph import GraphSession
from trainerd.sessions.graphstate import GraphState
from trainerd.sessions.remembered import Remembered
from trainerd.supervisor.care import Care
from trainerd.supervisor.flag import Request

tf1 = tf.compat.v1


@dataclass
class GraphCare(Care):
    """What a managed session of a graph is looked after by.

    Attributes:
      state: what of the graph is saved; None where nothing is.
      model: the graph as it is saved and restored; None where nothing is.
      callables: the prepared fetches; None once the session is closed.
      save_path, save: what its checkpoints' names begin with, and what makes one now; None where none are made.
      runs_limit: after so many runs that change something the loop must be at a boundary.
    """

    state: GraphState | None = field(default=None)
    model: GraphSession | None = field(default=None)
    callables: Callables | None = field(default=None)
    save_path: Path | None = field(default=None)
    save: Callable[[], str] | None = field(default=None)
    runs_limit: float = field(default=math.inf)
    _known: Remembered[dict[str, str]] = field(default_factory=Remembered)

    @property
    def changes(self) -> int:
        """How many runs have changed something; 0 where they are not counted."""
        return self.model.changes if self.model is not None else 0

    def close(self, error: BaseException | None) -> None:
        """See `Care.close`."""
        super().close(error)
        self.callables = None

    def wrapped(self, session: Any) -> Callable[[Any, Callable[[], Any]], Callable[[], Any]]:
        """For `Callables`: counts the runs that change something, and sees to inputs that are initialized."""

        def wrap(fetches: Any, call: Callable[[], Any]) -> Callable[[], Any]:
            model, state = self.model, self.state
            if model is None or state is None:
                return call
            elements = _elements(session, fetches)
            names = state.initializes(elements)
            if not names and not state.changes_something(elements):
                return call

            def call_and_count() -> Any:
                result = call()
                if names:
                    model.initialized(names)
                else:
                    self.count(model)
                return result

            return call_and_count

        return wrap

    def ran(self, session: Any, fetches: Any) -> None:
        """These fetches were run past `Callables`."""
        state = self.state
        if self.model is None or state is None:
            return
        if names := self._known.get(fetches, lambda new: state.initializes(_elements(session, new))):
            self.model.initialized(names)
        else:
            self.count(self.model)

    def count(self, model: GraphSession) -> None:
        """A run may have changed something: count it, and be at a boundary after so many."""
        model.runs += 1
        if model.runs >= self.runs_limit:
            self.boundary.flag.raise_for(Request.TICK)


def _elements(session: Any, fetches: Any) -> list[Any]:
    """The tensors and operations in a structure of fetches."""
    if isinstance(fetches, list | tuple | Mapping):
        parts = fetches.values() if isinstance(fetches, Mapping) else fetches
        return [element for part in parts for element in _elements(session, part)]
    found = []
    for part in tf.nest.flatten(fetches, expand_composites=True):
        try:
            found.append(session.graph.as_graph_element(part))
        except (TypeError, ValueError, KeyError):  # what Session.run knows and the graph does not
            continue
    return found


class ManagedSession(tf.compat.v1.Session):  # type: ignore[misc]
    """A `tf.compat.v1.Session` that is looked after.

    It is not made, but one that a SessionManager made becomes it: see `adopt`.
    """

    care: GraphCare

    def run(self, fetches: Any, feed_dict: Any = None, options: Any = None, run_metadata: Any = None) -> Any:
        """See `tf.compat.v1.Session.run`. On the loop's thread the end of a run is a boundary."""
        boundary = self.care.boundary
        if not boundary.is_mine:
            return super().run(fetches, feed_dict, options, run_metadata)
        with boundary.lock:
            result = self.run_step(fetches, feed_dict, options, run_metadata)
            if boundary.flag.is_raised:
                boundary.reached()
        return result

    def run_step(self, fetches: Any, feed_dict: Any = None, options: Any = None, run_metadata: Any = None) -> Any:
        """As `run`, for who looks after the boundary itself."""
        care = self.care
        try:
            if not feed_dict and options is None and run_metadata is None and care.callables is not None:
                return care.callables.run(fetches)
            result = super().run(fetches, feed_dict, options, run_metadata)
        except BaseException as error:
            care.fail(error, care.changes)
            raise
        care.ran(self, fetches)
        return result

    def make_callable(self, fetches: Any, feed_list: Any = None, accept_options: bool = False) -> Callable[..., Any]:
        """See `tf.compat.v1.Session.make_callable`. A call of it is a step too."""
        call = super().make_callable(fetches, feed_list, accept_options)

        def step(*args: Any, **options: Any) -> Any:
            return self._as_step(fetches, lambda: call(*args, **options))

        return step

    def partial_run(self, handle: Any, fetches: Any, feed_dict: Any = None) -> Any:
        """See `tf.compat.v1.Session.partial_run`."""
        return self._as_step(fetches, lambda: super(ManagedSession, self).partial_run(handle, fetches, feed_dict))

    def _as_step(self, fetches: Any, run: Callable[[], Any]) -> Any:
        boundary = self.care.boundary
        if not boundary.is_mine:
            return run()
        with boundary.lock:
            try:
                result = run()
            except BaseException as error:
                self.care.fail(error, self.care.changes)
                raise
            self.care.ran(self, fetches)
            if boundary.flag.is_raised:
                boundary.reached()
        return result

    def __enter__(self) -> Any:
        """See `tf.compat.v1.Session`."""
        self.care.is_within = True
        return super().__enter__()

    def __exit__(self, kind: Any, error: Any, traceback: Any) -> Any:
        """See `tf.compat.v1.Session`. What is to be saved is saved before."""
        self.care.close(error)
        return super().__exit__(kind, error, traceback)

    def close(self) -> None:
        """See `tf.compat.v1.Session.close`. What is to be saved is saved before.

        From then on it is as any other session: another one may be looked after, when Python collects this one.
        """
        self.care.close(None)
        self.__class__ = tf1.Session
        self.close()


ManagedSession.__name__ = "Session"  # it is what programs compare with when they look for the session within another


def adopt(session: Any, care: GraphCare) -> Any:
    """Make a `tf.compat.v1.Session` a managed one: the very same, so that all that holds it sees the change."""
    if isinstance(session, ManagedSession):
        session.__class__ = tf1.Session
    session.care = care
    session.__class__ = ManagedSession
    care.callables = Callables(session, care.wrapped(session))
    return session
