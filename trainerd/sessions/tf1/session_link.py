"""The session link of a managed session of a graph."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Set
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf
import xxhash

from trainerd.loop.flag import Request
from trainerd.run.session_link import SessionLink
from trainerd.sessions.tf1.callables import Callables, Remembered, op_of
from trainerd.sessions.tf1.model import GraphModel
from trainerd.sessions.tf1.state import Effects


@dataclass
class GraphSessionLink(SessionLink):
    """The session link of a managed session of a graph.

    Attributes:
      model: the graph as it is saved and restored; None if nothing is.
      callables: the prepared fetches; None once the session is closed.
      save_path, save: the prefix of its checkpoints, and a function that makes one now; None if none are made.
      runs_limit: the count of runs that change something at which the loop must come to a boundary.
    """

    model: GraphModel | None = field(default=None)
    callables: Callables | None = field(default=None)
    save_path: Path | None = field(default=None)
    save: Callable[[], str] | None = field(default=None)
    runs_limit: float = field(default=math.inf)
    _known: Remembered[Effects] = field(default_factory=Remembered)

    def save_no_more(self) -> None:
        """Leave all saves to TensorFlow from now on, since the run is over: a program's Saver writes them."""
        self.save = None

    def be_back_after(self, runs: float) -> None:
        """Have the loop come to a boundary when so many runs have changed something."""
        self.runs_limit = runs

    def close(self, error: BaseException | None) -> None:
        """See `SessionLink.close`."""
        super().close(error)
        self.callables = None

    def manage(self, session: Any) -> None:
        """Prepare the fetches of this session, to count runs that change something, and to note initialized inputs."""

        def wrap(fetches: Any, call: Callable[[], Any]) -> Callable[[], Any]:
            if (model := self.model) is None:
                return call
            effects = model.state.effects(_elements(session, fetches))
            if not effects.makes and not effects.changes:
                return call

            def call_and_count() -> Any:
                result = call()
                self._note(model, effects, {})
                return result

            return call_and_count

        self.callables = Callables(session, wrap)

    def ran(self, session: Any, fetches: Any, feeds: Any = None, *, is_step: bool = True) -> None:
        """Record that these fetches were run without `Callables`; as a step, or during or beside one."""
        model = self.model
        if model is None or not (is_step or model.state.has_initializers):
            return
        effects = self._known.get(fetches, lambda new: model.state.effects(_elements(session, new)))
        if effects.makes or (is_step and effects.changes):
            self._note(model, effects, feeds or {})

    def failed_to_run(self, session: Any, error: BaseException) -> None:
        """Record that a run raised an error, and which inputs have ended."""
        op = op_of(session, error) if isinstance(error, tf.errors.OutOfRangeError) else None
        if op is not None and self.model is not None:
            self.model.ended(frozenset(self.model.state.iterators_of(op)))
        self.fail(error, self.model.changes if self.model is not None else 0)

    def _note(self, model: GraphModel, effects: Effects, feeds: Mapping[Any, Any]) -> None:
        if effects.makes:
            given = _digest(feeds, effects.placeholders)
            model.initialized({name: op + given for name, op in effects.makes.items()})
            return
        if model.is_waiting:
            model.read(effects.reads)
        model.count()
        if model.runs >= self.runs_limit:
            self.boundary.flag.raise_for(Request.TICK)


def _elements(session: Any, fetches: Any) -> list[Any]:
    """Return the tensors and operations in a structure of fetches; None for unknown objects."""
    if isinstance(fetches, list | tuple | Mapping):
        parts = fetches.values() if isinstance(fetches, Mapping) else fetches
        return [element for part in parts for element in _elements(session, part)]
    found = []
    for part in tf.nest.flatten(fetches, expand_composites=True):
        try:
            found.append(session.graph.as_graph_element(part))
        except (TypeError, ValueError, KeyError):  # what Session.run knows and the graph does not
            found.append(None)
    return found


def _digest(feeds: Mapping[Any, Any], placeholders: Set[str]) -> str:
    """Return a digest of the feeds of a run that initializes an iterator.

    The same operation may get other data the next time.
    """
    given = {getattr(key, "name", str(key)).partition(":")[0]: value for key, value in feeds.items()}
    digest = xxhash.xxh3_64()
    for name in sorted(given.keys() & placeholders):
        value = given[name]
        for part in value if hasattr(value, "_fields") else [value]:  # a SparseTensorValue has several
            array = np.ascontiguousarray(part)
            digest.update(f"{name} {array.dtype} {array.shape}".encode())
            digest.update(repr(array.tolist()).encode() if array.dtype.hasobject else array.view(np.uint8).data)
    return f" {digest.hexdigest()}" if given.keys() & placeholders else ""
