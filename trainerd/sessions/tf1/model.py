"""A TensorFlow 1 graph and its `tf.compat.v1.Session`, as the loop sees them at a boundary."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Set
from functools import cached_property
from pathlib import Path
from typing import Any

import tensorflow as tf
import xxhash

from trainerd.checkpoints.contents.kept import KEPT
from trainerd.checkpoints.contents.op_kinds import calls_python, random_ops
from trainerd.checkpoints.snapshot import Kept
from trainerd.config.software import of_software
from trainerd.errors import DataError, EntryError
from trainerd.job.devices import wanted_devices
from trainerd.loop.contract import Model
from trainerd.sessions.tf1.positions import IteratorPosition
from trainerd.sessions.tf1.state import GraphSnapshot, GraphState

tf1 = tf.compat.v1
log = logging.getLogger(__name__)


class GraphModel(Model):
    """The state of a graph, as it is saved and restored. The user's own loop runs the steps.

    Args:
      state: what is saved.
      global_step: the tensor or variable that counts the steps; None if the graph has none: then the runs of the
        session are counted.

    Attributes:
      state: what is saved.
    """

    def __init__(self, state: GraphState, global_step: Any) -> None:
        self.state = state
        self._global_step = global_step
        self._session: Any = None
        self._waiting: dict[str, IteratorPosition] = {}
        self._made_by: dict[str, str] = {}
        self._at_end = set[str]()
        self._ends = 0
        self._begun_at = 0
        self.runs = 0

    def count(self) -> None:
        """Count a run, which may have changed something."""
        self.runs += 1

    def open(self, session: Any, prefix: Path | None, step: int = 0, *, was_finished: bool = False) -> None:
        """Use this `tf.compat.v1.Session`, which holds the graph's variables now.

        Args:
          session: the session.
          prefix: the checkpoint that they were restored from, whose input positions are restored here.
          step: of that checkpoint.
          was_finished: whether the session that saved it had come to its own end.

        Raises:
          DataError: a variable has another shape in the checkpoint.
          EntryError: the config names several devices.
        """
        if (devices := wanted_devices()) is not None:
            raise EntryError(f"devices = {devices!r}: a graph of TensorFlow 1 trains on one device. Leave it out.")
        self._session, self.runs = session, step
        self._waiting, self._made_by, self._at_end, self._ends = {}, {}, set(), 0
        if prefix is not None:
            self.state.require_shapes(session, prefix)
            self._go_on(prefix, was_finished=was_finished)
        if KEPT.objects:
            log.warning(
                "a session of TensorFlow 1 does not save the objects of trainerd.keep: %s restart after a pause",
                ", ".join(sorted(KEPT.objects)),
                extra={"event": "kept"},
            )
        if ops := random_ops(self.state.graph):
            log.info("after a pause these restart, since no checkpoint holds their position: %s", ", ".join(ops))

    def _go_on(self, prefix: Path, *, was_finished: bool) -> None:
        """Move the inputs to their positions in a checkpoint; again when the program initializes them.

        An input that was at its end, and that the program would have initialized next, begins. So does every input at
        its end if the run had finished: a new start wants another round, as with TensorFlow.
        """
        found = self.state.positions(prefix)
        self._waiting = {
            name: was for name, was in found.items() if not (was.is_at_end and (was_finished or was.made_by))
        }
        self._begun_at = self.step
        self.state.move(self._session, {name: was.state for name, was in self._waiting.items()})

    def initialized(self, made_by: Mapping[str, str]) -> None:
        """Record that the program has initialized these iterators, each by this operation.

        The first time, if the program has not trained since the resume, iterators in mid-epoch continue from there.
        Later an epoch begins.
        """
        if self._waiting and self.step != self._begun_at:
            self._waiting.clear()
        for name, by in made_by.items():
            was = self._waiting.pop(name, None)
            if was is not None and was.made_by in ("", by):
                self.state.move(self._session, {name: was.state})
            elif was is not None:
                log.info("the input %s restarts: it was given other data than before", name)
        self._made_by |= made_by
        self._at_end -= made_by.keys()

    def read(self, names: Set[str]) -> None:
        """Record that the program has read from these iterators: their next initialization begins an epoch."""
        for name in names:
            self._waiting.pop(name, None)

    def ended(self, names: Set[str]) -> None:
        """Record that the program has reached the end of these iterators."""
        if names:
            self.read(names)
            self._at_end |= names
            self._ends += 1

    @property
    def is_waiting(self) -> bool:
        """True if an input was moved that the program may yet initialize."""
        return bool(self._waiting)

    @cached_property
    def calls_python(self) -> bool:
        """True if the graph calls Python, or threads fill its queues."""
        graph = self.state.graph
        return calls_python(graph) or bool(graph.get_collection(tf1.GraphKeys.QUEUE_RUNNERS))

    @property
    def changes(self) -> int:
        """The number of runs that may have changed a variable or the input: a program need not count its steps."""
        return self.runs + self._ends

    @property
    def step(self) -> int:
        """The global step."""
        if self._global_step is None or self._session is None:
            return self.runs
        return int(self.run(self._global_step).item())  # some programs' has the shape [1]

    def run(self, fetches: Any) -> Any:
        """Run an op for a service. It does not count as a step."""
        return tf1.Session.run(self._session, fetches)

    def snapshot(self, kept: Kept = "host") -> GraphSnapshot:
        """Return the state at this boundary. It is always kept in the machine's own memory."""
        return self.state.take(self._session, self.step, self._made_by, self._at_end)

    def restore(self, prefix: Path) -> None:
        """Read a checkpoint into the open session.

        Raises:
          DataError: it does not fit the graph.
        """
        try:
            self.state.saver.restore(self._session, str(prefix))
        except (ValueError, tf.errors.OpError) as error:
            raise DataError(f"{prefix} does not fit the graph: {str(error).splitlines()[0]}") from error
        self.state.require_shapes(self._session, prefix)
        self._go_on(prefix, was_finished=False)

    def fingerprint(self) -> dict[str, str]:
        """Return the fingerprint of what is saved of the graph."""
        digest = xxhash.xxh3_64_hexdigest(self.state.description.encode())
        return {
            "job.state": f"{len(self.state.description.splitlines())} tensors, {digest}",
            **of_software(),
        }

    def graph(self) -> Any:
        """Return the graph."""
        return self.state.graph
