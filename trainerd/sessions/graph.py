"""A TensorFlow 1 graph and its `tf.compat.v1.Session`, as a session that is looked after at boundaries."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import tensorflow as tf
import xxhash
from google.protobuf.message import DecodeError  # type: ignore[import-untyped]

import trainerd
from trainerd.checkpoints.manifest import DamagedError
from trainerd.errors import DataError
from trainerd.sessions.graphstate import GraphSnapshot, GraphState
from trainerd.sessions.randomness import random_ops

tf1 = tf.compat.v1
log = logging.getLogger(__name__)


class GraphSession:
    """The state of a graph, for who saves and restores it. The user's own loop runs the steps.

    Args:
      state: what is saved.
      global_step: the tensor or variable that counts the steps; None where the graph has none: then the runs of the
        session are counted.
    """

    has_evaluation = False
    is_whole = True

    def __init__(self, state: GraphState, global_step: Any) -> None:
        self._state = state
        self._global_step = global_step
        self._session: Any = None
        self._waiting: dict[str, tuple[str, bytes]] = {}
        self._made_by: dict[str, str] = {}
        self._runs_before = 0
        self.runs = 0

    def open(self, session: Any, prefix: Path | None, step: int = 0) -> None:
        """The graph's variables are in this `tf.compat.v1.Session` now.

        Args:
          session: the session.
          prefix: the checkpoint that they were restored from, whose input positions are restored here.
          step: of that checkpoint.
        """
        self._session, self.runs = session, step
        if prefix is not None:
            self._go_on(prefix)
        if ops := random_ops(self._state.graph):
            log.info("after a pause these begin anew, since no checkpoint holds their place: %s", ", ".join(ops))

    def _go_on(self, prefix: Path) -> None:
        """Move the inputs to where a checkpoint says that they were; again where the program initializes them."""
        self._waiting = self._state.positions(prefix)
        self._runs_before = self.runs
        self._state.move(self._session, {name: state for name, (_, state) in self._waiting.items()})

    def initialized(self, made_by: Mapping[str, str]) -> None:
        """The program has initialized these iterators, each by this operation.

        Where it does so before it trains, those that were in mid-epoch go on from there; later an epoch begins.
        """
        if self.runs == self._runs_before:
            was = {name: self._waiting.get(name, ("", b"")) for name in made_by}
            same = {name: state for name, (by, state) in was.items() if state and by in ("", made_by[name])}
            self._state.move(self._session, same)
        self._made_by |= made_by

    @property
    def changes(self) -> int:
        """How many runs may have changed a variable: a program need not count its steps."""
        return self.runs

    @property
    def step(self) -> int:
        """The global step."""
        if self._global_step is None or self._session is None:
            return self.runs
        return int(self.run(self._global_step).item())  # some programs' has the shape [1]

    def run(self, fetches: Any) -> Any:
        """Run an op of a service's, which is no step."""
        return tf1.Session.run(self._session, fetches)

    def snapshot(self) -> GraphSnapshot:
        """The state at this boundary."""
        return self._state.take(self._session, self.step, self._made_by)

    def restore(self, prefix: Path) -> None:
        """Read a checkpoint into the open session."""
        try:
            self._state.saver.restore(self._session, str(prefix))
        except (ValueError, tf.errors.OpError) as error:
            raise DataError(f"{prefix} does not fit the graph: {str(error).splitlines()[0]}") from error
        self._go_on(prefix)

    def fingerprint(self) -> dict[str, str]:
        """What of the graph is saved."""
        digest = xxhash.xxh3_64_hexdigest(self._state.description.encode())
        return {
            "job.state": f"{len(self._state.description.splitlines())} tensors, {digest}",
            "software.tensorflow": tf.__version__,
            "software.trainerd": trainerd.__version__,
        }

    def evaluate(self) -> dict[str, float]:
        """Nothing: a graph has no evaluation of its own."""
        return {}

    def write_summaries(self) -> None:
        """Nothing: they are fetched from the graph."""

    def weights(self) -> Mapping[str, Any]:
        """None: a graph's own summaries say what is to be shown."""
        return {}

    def graph(self) -> Any:
        """The graph."""
        return self._state.graph


def read_whole(prefix: Path) -> int | None:
    """Read every tensor of a checkpoint, TensorFlow compares each with its checksum, and the graph that is beside it.

    Returns:
      The global step in it; None where it holds none under that name.

    Raises:
      DamagedError: one cannot be read.
    """
    try:
        reader = tf.train.load_checkpoint(str(prefix))
        values = {key: reader.get_tensor(key) for key in reader.get_variable_to_shape_map()}
        _require_graph(prefix.with_name(f"{prefix.name}.meta"))
    except (ValueError, IndexError, tf.errors.OpError) as error:
        raise DamagedError(str(error).splitlines()[0]) from error
    return int(values["global_step"]) if "global_step" in values else None


def _require_graph(path: Path) -> None:
    """Where a graph is beside a checkpoint, it can be read.

    Raises:
      DamagedError: it cannot.
    """
    try:
        if path.exists():
            tf1.MetaGraphDef.FromString(path.read_bytes())
    except (DecodeError, OSError) as error:
        raise DamagedError(f"{path.name}: {error}") from error
