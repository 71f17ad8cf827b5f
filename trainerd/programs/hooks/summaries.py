"""Curves, summaries and profiles for TensorBoard."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import tensorflow as tf

from trainerd.programs.hooks.base import Timed, Timer

tf1 = tf.compat.v1


class StepCounterHook(Timed):
    """Logs and writes the rate of the steps; see `tf.compat.v1.train.StepCounterHook`.

    Args:
      every_n_steps, every_n_secs: how often; one of them.
      output_dir: where the curve goes; None for nowhere.
      summary_writer: a `tf.summary` writer, in place of `output_dir`.
    """

    def __init__(
        self,
        every_n_steps: int | None = 100,
        every_n_secs: float | None = None,
        output_dir: str | None = None,
        summary_writer: tf.compat.v1.summary.FileWriter | None = None,
    ) -> None:
        if (every_n_steps is None) == (every_n_secs is None):
            raise ValueError("exactly one of every_n_steps and every_n_secs should be provided.")
        self._timer = Timer(every_n_secs, every_n_steps)
        self._writer = SummaryWriter(output_dir, summary_writer)

    def _act(self, step: int, run_values: Any, secs: float | None, steps: int) -> None:
        if secs:
            tf1.logging.info("global_step/sec: %g", steps / secs)
            self._writer.write(step, lambda: tf.summary.scalar("global_step/sec", steps / secs))

    def end(self, session: Any) -> None:
        """Show the rest."""
        self._writer.flush()


class SummarySaverHook(Timed):
    """Writes summaries every N steps or seconds; see `tf.compat.v1.train.SummarySaverHook`.

    Args:
      save_steps, save_secs: how often; one of them.
      output_dir: where they go.
      summary_writer: a `tf.summary` writer, in place of `output_dir`.
      scaffold: has the `summary_op`, if that is not given.
      summary_op: a function that writes with `tf.summary`, or a list of them.
    """

    def __init__(
        self,
        save_steps: int | None = None,
        save_secs: float | None = None,
        output_dir: str | None = None,
        summary_writer: tf.compat.v1.summary.FileWriter | None = None,
        scaffold: tf.compat.v1.train.Scaffold | None = None,
        summary_op: Callable[[], object] | Sequence[Callable[[], object]] | None = None,
    ) -> None:
        if (scaffold is None) == (summary_op is None):
            raise ValueError("Exactly one of scaffold or summary_op must be provided.")
        found: Any = summary_op if scaffold is None else scaffold.summary_op
        self._ops = list(found) if isinstance(found, list | tuple) else [found]
        if not all(map(callable, self._ops)):
            raise ValueError(f"summary_op must be a function that writes with tf.summary, and is {found!r}.")
        self._timer = Timer(save_secs, save_steps)
        self._writer = SummaryWriter(output_dir, summary_writer)

    def _act(self, step: int, run_values: Any, secs: float | None, steps: int) -> None:
        for op in self._ops:
            self._writer.write(step, op)

    def end(self, session: Any | None = None) -> None:
        """Show the rest."""
        self._writer.flush()


class ProfilerHook(Timed):
    """Profiles a step every N steps or seconds; see `tf.compat.v1.train.ProfilerHook`.

    It writes what TensorBoard's Profile page shows, in `plugins/profile` of its folder. The step before one that is
    profiled, and that one, are run by themselves.

    Args:
      save_steps, save_secs: how often; one of them. The first time is after so many.
      output_dir: where profiles go.
      show_dataflow, show_memory: of TensorFlow 1's timelines; not used here.
    """

    _timer: Timer

    def __init__(
        self,
        save_steps: int | None = None,
        save_secs: float | None = None,
        output_dir: str = "",
        show_dataflow: bool = True,
        show_memory: bool = False,
    ) -> None:
        self._timer = Timer(save_secs, save_steps)
        self._folder = str(Path(output_dir or ".").absolute())
        self._is_profiling = self._is_next = False

    def after_create_session(self, session: Any, coord: tf.train.Coordinator) -> None:
        """Count from here."""
        self._timer.done(session.step)

    def due_at(self, step: int) -> float | None:
        """Return the step before the one that is profiled, and that one."""
        due = self._timer.due_at(step)
        self._is_next = due == step + 1
        return due if self._is_next else due - 1

    def before_run(self, run_context: tf.compat.v1.train.SessionRunContext) -> None:
        """Start the profiler."""
        if self._is_next and not self._is_profiling:
            tf.profiler.experimental.start(self._folder)
            self._is_profiling = True

    def after_run(
        self, run_context: tf.compat.v1.train.SessionRunContext, run_values: tf.compat.v1.train.SessionRunValues
    ) -> None:
        """Stop it."""
        if self._is_profiling:
            self._stop()
            tf1.logging.info("Saved the profile of step %d in %s.", run_context.session.step, self._folder)
            self._timer.done(run_context.session.step)

    def end(self, session: Any) -> None:
        """Stop it, if the step did not come."""
        if self._is_profiling:
            self._stop()

    def _stop(self) -> None:
        self._is_profiling = False
        tf.profiler.experimental.stop()


class SummaryWriter:
    """A `tf.summary` writer that is made when there is something to write."""

    def __init__(self, folder: str | None, writer: Any) -> None:
        self._folder, self._writer = folder, writer

    def write(self, step: int, write: Callable[[], object]) -> None:
        """Call a function that writes summaries, as of a step."""
        if self._writer is None and self._folder:
            self._writer = tf.summary.create_file_writer(self._folder)
        if self._writer is not None:
            with self._writer.as_default(step=step):
                write()

    def flush(self) -> None:
        """Show it to readers."""
        if self._writer is not None:
            self._writer.flush()
