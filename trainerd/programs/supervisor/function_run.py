"""The run of TensorFlow 2 functions under a Supervisor, without the parts that need a graph."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import tensorflow as tf

from trainerd.sessions.tf2.run import StepRun


class SupervisedFunctions(StepRun):
    """The run of a Supervisor's functions; see `StepRun`. It has none of a graph's ops, and writes no graph."""

    ready_op = ready_for_local_init_op = init_op = init_feed_dict = local_init_op = session_manager = None
    summary_writer = None  # event files are trainerd's own, written in the background
    queue_runners: Sequence[Any] = ()
    can_summarize, has_queues = True, False

    def require_restored(self, session: Any) -> None:
        """Do nothing: the run restores the session when it takes it."""

    def write_graph(self) -> None:
        """Do nothing: a program may run several functions."""

    def show_graph(self) -> None:
        """Do nothing: there is no such writer."""

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
        self.write({str(name): float(value) for name, value in summary.items()}, global_step)
