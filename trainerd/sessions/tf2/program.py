"""TensorFlow 2 functions under a Supervisor: the checkpoint that they train, and how their session is made."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import tensorflow as tf

from trainerd.run.defaults import USE_DEFAULT
from trainerd.run.host import Host
from trainerd.run.program_loop import ProgramLoop
from trainerd.run.settings import KeepSettings
from trainerd.rundir.paths import RunDirectory
from trainerd.sessions.tf2.model import CheckpointModel
from trainerd.sessions.tf2.run import FunctionRun
from trainerd.sessions.tf2.session import StepSession


class StepProgram:
    """Functions that change what a `tf.train.Checkpoint` tracks; see `Supervisor` for the arguments.

    Raises:
      EntryError: it is no `tf.train.Checkpoint`.
      ValueError: an argument is given that only a graph has a use for, or this is not the chief.
    """

    ready_op = ready_for_local_init_op = init_op = init_feed_dict = local_init_op = session_manager = None

    queue_runners: Sequence[Any] = ()
    has_queues = False

    restores = True

    def __init__(
        self,
        checkpoint: Any,
        *,
        is_chief: bool,
        global_step: Any,
        summary_op: Any,
        init_fn: Callable[[Any], Any] | None,
        others: Mapping[str, Any],
    ) -> None:
        if given := [name for name, value in others.items() if value is not None and value is not USE_DEFAULT]:
            raise ValueError(f"{', '.join(given)}: with `checkpoint` there is no graph, so leave it out.")
        if not is_chief:
            raise ValueError("is_chief=False: with `checkpoint` one process trains by itself.")
        self._counts = global_step is USE_DEFAULT or global_step is None
        if self._counts:
            with tf.device("CPU:0"):
                global_step = tf.Variable(0, dtype=tf.int64, trainable=False, name="global_step")
        self.global_step = global_step
        self.summary_op = None if summary_op is USE_DEFAULT else summary_op
        self.saver = checkpoint
        self.model = CheckpointModel(checkpoint, global_step, self.summary_op)
        self._init_fn = init_fn
        self._is_new = True

    def writer(self, logdir: str | None) -> Any:
        """None: event files are trainerd's own, written in the background."""
        return None

    def managed(
        self, rundir: RunDirectory | None, writer: Any, loop: ProgramLoop, host: Host | None = None
    ) -> FunctionRun:
        """The managed run of its session."""
        self._managed = FunctionRun(rundir, self.model, KeepSettings(), loop, host)
        return self._managed

    def session(self, master: str, config: Any, prefix: Any, max_wait_secs: float) -> StepSession:
        """A session. The run restores it when it takes it."""
        self._is_new = prefix is None
        tf.summary.experimental.set_step(self.global_step)
        return StepSession(self.model, self.global_step, counts=self._counts)

    def require_restored(self, session: Any, prefix: str | None) -> None:
        """Nothing: the run restores the session when it takes it."""

    def begun(self, session: Any) -> None:
        """The session is managed now. If there was no checkpoint, call the program's own functions for that."""
        if self._is_new and self._init_fn is not None:
            self._init_fn(session)

    def write_graph(self, logdir: str) -> None:
        """Nothing: a program may run several functions."""

    def show_graph(self, writer: Any) -> None:
        """Nothing: there is no such writer."""

    def summarized(self, session: Any, summary: Any, global_step: int | None) -> None:
        """Write scalars of a step. Default: the present one.

        Args:
          session: not used.
          summary: a dict of name to number, or a Summary of scalars, serialized or not.
          global_step: the step.

        Raises:
          RuntimeError: there is no `logdir`.
        """
        if not isinstance(summary, Mapping):
            parsed = tf.compat.v1.Summary.FromString(summary) if isinstance(summary, bytes) else summary
            summary = {value.tag: value.simple_value for value in parsed.value if value.HasField("simple_value")}
        self._managed.write({str(name): float(value) for name, value in summary.items()}, global_step)
