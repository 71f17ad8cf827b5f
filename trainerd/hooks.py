"""Hooks for the steps of TensorFlow 2 functions: those of `tf.compat.v1.train`, by the same names and arguments.

For a graph TensorFlow's own are taken as they are. A function has no tensors that one could fetch, so these name what
it returns: `LoggingTensorHook(["loss"], every_n_iter=100)`. In place of a name there may be a variable, which is read
after the step, or a function without arguments, which is called then.

A hook that is called every so many steps, or seconds, leaves the loop in the graph between: it says when with `due_at`.
One of a program's own that has no `due_at` is called around every step.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf

tf1 = tf.compat.v1

SessionRunHook = tf1.train.SessionRunHook
SessionRunArgs = tf1.train.SessionRunArgs
SessionRunContext = tf1.train.SessionRunContext
SessionRunValues = tf1.train.SessionRunValues
CheckpointSaverListener = tf1.train.CheckpointSaverListener
NanLossDuringTrainingError = tf1.train.NanLossDuringTrainingError

__all__ = [
    "CheckpointSaverHook",
    "CheckpointSaverListener",
    "FeedFnHook",
    "FinalOpsHook",
    "GlobalStepWaiterHook",
    "LoggingTensorHook",
    "NanLossDuringTrainingError",
    "NanTensorHook",
    "ProfilerHook",
    "SessionRunArgs",
    "SessionRunContext",
    "SessionRunHook",
    "SessionRunValues",
    "StepCounterHook",
    "StopAtStepHook",
    "SummarySaverHook",
]


class _Timer:
    """When something is to be done that is done every so many steps or seconds, the first time at once.

    Args:
      every_secs, every_steps: one of them.
      clock: seconds on a clock that is never set.

    Raises:
      ValueError: both, or neither.
    """

    def __init__(
        self,
        every_secs: float | None,
        every_steps: int | None,
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        if every_secs is None and every_steps is None:
            raise ValueError("Either every_secs or every_steps should be provided.")
        if every_secs is not None and every_steps is not None:
            raise ValueError("Can not provide both every_secs and every_steps.")
        self.every_secs, self.every_steps = every_secs, every_steps
        self._clock = clock
        self.reset()

    def reset(self) -> None:
        """It was never done."""
        self._step: int | None = None
        self._at = 0.0

    def due_at(self, step: int) -> float:
        """The step at which it is due, after this one; infinity where the clock will tell."""
        if self._step is None:
            return step + 1
        if self.every_steps is not None:
            return max(step + 1, self._step + self.every_steps)
        return step + 1 if self._is_time() else math.inf

    def is_due(self, step: int) -> bool:
        """Whether it is to be done now that this step was."""
        if self._step is None:
            return True
        return step >= self._step + self.every_steps if self.every_steps is not None else self._is_time()

    def done(self, step: int) -> tuple[float | None, int]:
        """It is done. The seconds and the steps since the last time; None where there was none."""
        now, before = self._clock(), self._step
        elapsed = (None, 0) if before is None else (now - self._at, step - before)
        self._step, self._at = step, now
        return elapsed

    def _is_time(self) -> bool:
        return self.every_secs is not None and self._clock() >= self._at + self.every_secs


class _Hook(tf.compat.v1.train.SessionRunHook):  # type: ignore[misc]
    """A hook that says when it wants to be called.

    Attributes:
      by_clock: whether that depends on the time.
      stops_at: the metric after whose first value that is no number it must be called; None for none.
    """

    by_clock = False
    stops_at: str | None = None

    def due_at(self, step: int) -> float | None:
        """The global step of the next run that it wants, after this step; None for whenever there is a boundary."""
        return None


class _Timed(_Hook):
    """A hook that is called on a schedule."""

    _timer: _Timer | None = None

    @property
    def by_clock(self) -> bool:  # type: ignore[override]
        return self._timer is not None and self._timer.every_secs is not None

    def due_at(self, step: int) -> float | None:
        """See `_Hook`."""
        return math.inf if self._timer is None else self._timer.due_at(step)


class LoggingTensorHook(_Timed):
    """Logs values every N steps, every N seconds, or at the end; see `tf.compat.v1.train.LoggingTensorHook`.

    Args:
      tensors: what to log, or a dict of tag to that.
      every_n_iter, every_n_secs: how often; one of them, unless it is at the end alone.
      at_end: whether at the end too.
      formatter: from a dict of tag to value to the line.

    Raises:
      ValueError: the arguments say no, or two things.
    """

    def __init__(
        self,
        tensors: Mapping[str, Any] | Iterable[Any],
        every_n_iter: int | None = None,
        every_n_secs: float | None = None,
        at_end: bool = False,
        formatter: Callable[[dict[str, Any]], str] | None = None,
    ) -> None:
        only_at_end = at_end and every_n_iter is None and every_n_secs is None
        if not only_at_end and (every_n_iter is None) == (every_n_secs is None):
            raise ValueError("either at_end and/or exactly one of every_n_iter and every_n_secs must be provided.")
        if every_n_iter is not None and every_n_iter <= 0:
            raise ValueError(f"invalid every_n_iter={every_n_iter}.")
        if isinstance(tensors, Mapping):
            self._tags, self._tensors = sorted(tensors), dict(tensors)
        else:
            self._tensors = _tagged(tensors)
            self._tags = list(self._tensors)
        self._timer = None if only_at_end else _Timer(every_n_secs, every_n_iter)
        self._at_end = at_end
        self._formatter = formatter
        self._last: dict[str, Any] | None = None

    def begin(self) -> None:
        """A session begins."""
        if self._timer is not None:
            self._timer.reset()

    def before_run(self, run_context: Any) -> Any:
        """Ask for the values."""
        return SessionRunArgs(self._tensors)

    def after_run(self, run_context: Any, run_values: Any) -> None:
        """Log them."""
        self._last = run_values.results
        step = run_context.session.step
        if self._timer is not None and self._timer.is_due(step):
            elapsed, _ = self._timer.done(step)
            self._log(run_values.results, elapsed)

    def end(self, session: Any) -> None:
        """Log the last ones."""
        if self._at_end and (values := _at_the_end(session, self._tensors, {})) is not None:
            self._log(values, None)

    def _log(self, values: dict[str, Any], elapsed: float | None) -> None:
        if self._formatter is not None:
            tf1.logging.info(self._formatter(values))
            return
        with np.printoptions(suppress=True):
            text = ", ".join(f"{tag} = {values[tag]}" for tag in self._tags)
        tf1.logging.info("%s", text if elapsed is None else f"{text} ({elapsed:.3f} sec)")


def _tagged(tensors: Iterable[Any]) -> dict[str, Any]:
    """Each under a tag: the name that it is, or has. Variables may have the same, and get a number then."""
    found: dict[str, Any] = {}
    for tensor in tensors:
        name = tensor if isinstance(tensor, str) else getattr(tensor, "name", getattr(tensor, "__name__", str(tensor)))
        found[name if name not in found else f"{name}_{len(found)}"] = tensor
    return found


def _at_the_end(session: Any, fetches: Any, feeds: Any) -> Any:
    """What is wanted when no step follows; None where a step would have given it, and none was run."""
    names = [part for part in tf.nest.flatten(fetches) if isinstance(part, str)]
    if names and not session.has_run:
        tf1.logging.info("No step was run, so there is no value of %s.", ", ".join(names))
        return None
    return session.run(fetches, feed_dict=feeds)


class StopAtStepHook(_Hook):
    """Asks to stop after so many steps, or at a step; see `tf.compat.v1.train.StopAtStepHook`.

    Raises:
      ValueError: neither is given, or both.
    """

    def __init__(self, num_steps: int | None = None, last_step: int | None = None) -> None:
        if num_steps is None and last_step is None:
            raise ValueError("One of num_steps or last_step must be specified.")
        if num_steps is not None and last_step is not None:
            raise ValueError("Only one of num_steps or last_step can be specified.")
        self._num_steps, self._last_step = num_steps, last_step

    def after_create_session(self, session: Any, coord: Any) -> None:
        """Count from here."""
        if self._last_step is None:
            self._last_step = session.step + self._num_steps

    def due_at(self, step: int) -> float | None:
        """The last step."""
        assert self._last_step is not None
        return max(step + 1, self._last_step)

    def after_run(self, run_context: Any, run_values: Any) -> None:
        """Ask to stop."""
        if run_context.session.step >= self._last_step:
            run_context.request_stop()


class CheckpointSaverHook(_Hook):
    """Says where and how often the session saves, and who is told; see `tf.compat.v1.train.CheckpointSaverHook`.

    The session itself saves: in the background, through trainerd's store. A listener's `before_save` is called at the
    boundary of the step, and its `after_save` when that step is on disk, which may be some steps later.

    Args:
      checkpoint_dir: the run directory.
      save_secs, save_steps: how often; one of them.
      saver, scaffold, save_graph_def: of graphs; not used here.
      checkpoint_basename: the first part of the checkpoints' names.
      listeners: told of each checkpoint.

    Raises:
      ValueError: the arguments say no, or two things.
    """

    def __init__(
        self,
        checkpoint_dir: str,
        save_secs: float | None = None,
        save_steps: int | None = None,
        saver: Any = None,
        checkpoint_basename: str = "model.ckpt",
        scaffold: Any = None,
        listeners: Sequence[Any] | None = None,
        save_graph_def: bool = True,
    ) -> None:
        if saver is not None and scaffold is not None:
            raise ValueError("You cannot provide both saver and scaffold.")
        _Timer(save_secs, save_steps)
        self.checkpoint_dir, self.checkpoint_basename = checkpoint_dir, checkpoint_basename
        self.save_secs, self.save_steps = save_secs or 0, save_steps or 0
        self._listeners = list(listeners or [])
        self._save: Callable[[], None] = lambda: None

    def begin(self) -> None:
        """A session begins."""
        for listener in self._listeners:
            listener.begin()

    def saves_with(self, save: Callable[[], None]) -> None:
        """Told by the session how to save at its end."""
        self._save = save

    def saving(self, session: Any, step: int) -> None:
        """A step is about to be saved."""
        for listener in self._listeners:
            listener.before_save(session, step)

    def saved(self, session: Any, step: int) -> bool:
        """It is on disk. Whether a listener wants to stop."""
        wishes = [listener.after_save(session, step) for listener in self._listeners]  # all of them are told
        return any(wishes)

    def due_at(self, step: int) -> float | None:
        """Never: the session saves."""
        return math.inf

    def end(self, session: Any) -> None:
        """Save the last step."""
        self._save()
        for listener in self._listeners:
            listener.end(session, session.step)


class StepCounterHook(_Timed):
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
        summary_writer: Any = None,
    ) -> None:
        if (every_n_steps is None) == (every_n_secs is None):
            raise ValueError("exactly one of every_n_steps and every_n_secs should be provided.")
        self._timer = _Timer(every_n_secs, every_n_steps)
        self._writer = _Writer(output_dir, summary_writer)

    def after_run(self, run_context: Any, run_values: Any) -> None:
        """Write it."""
        step = run_context.session.step
        assert self._timer is not None
        if not self._timer.is_due(step):
            return
        secs, steps = self._timer.done(step)
        if secs:
            tf1.logging.info("global_step/sec: %g", steps / secs)
            self._writer.write(step, lambda: tf.summary.scalar("global_step/sec", steps / secs))

    def end(self, session: Any) -> None:
        """Show the rest."""
        self._writer.flush()


class NanTensorHook(_Hook):
    """Ends training where the loss is NaN; see `tf.compat.v1.train.NanTensorHook`.

    Args:
      loss_tensor: the name of the loss.
      fail_on_nan_loss: whether that is an error.
    """

    def __init__(self, loss_tensor: Any, fail_on_nan_loss: bool = True) -> None:
        self._loss = loss_tensor
        self._fails = fail_on_nan_loss
        self.stops_at = loss_tensor if isinstance(loss_tensor, str) else None

    def due_at(self, step: int) -> float | None:
        """Where the loop in the graph cannot look itself, every step."""
        return None if self.stops_at is not None else step + 1

    def before_run(self, run_context: Any) -> Any:
        """Ask for the loss."""
        return SessionRunArgs(self._loss)

    def after_run(self, run_context: Any, run_values: Any) -> None:
        """Look at it.

        Raises:
          NanLossDuringTrainingError: it is NaN.
        """
        if not np.isnan(run_values.results):
            return
        if self._fails:
            tf1.logging.error("Model diverged with loss = NaN.")
            raise NanLossDuringTrainingError
        tf1.logging.warning("Model diverged with loss = NaN.")
        run_context.request_stop()


class SummarySaverHook(_Timed):
    """Writes summaries every N steps or seconds; see `tf.compat.v1.train.SummarySaverHook`.

    Args:
      save_steps, save_secs: how often; one of them.
      output_dir: where they go.
      summary_writer: a `tf.summary` writer, in place of `output_dir`.
      scaffold: has the `summary_op`, where that is not given.
      summary_op: a function that writes with `tf.summary`, or a list of them.
    """

    def __init__(
        self,
        save_steps: int | None = None,
        save_secs: float | None = None,
        output_dir: str | None = None,
        summary_writer: Any = None,
        scaffold: Any = None,
        summary_op: Any = None,
    ) -> None:
        if (scaffold is None) == (summary_op is None):
            raise ValueError("Exactly one of scaffold or summary_op must be provided.")
        found = summary_op if summary_op is not None else scaffold.summary_op
        self._ops = list(found) if isinstance(found, list | tuple) else [found]
        if not all(map(callable, self._ops)):
            raise ValueError(f"summary_op must be a function that writes with tf.summary, and is {found!r}.")
        self._timer = _Timer(save_secs, save_steps)
        self._writer = _Writer(output_dir, summary_writer)

    def after_run(self, run_context: Any, run_values: Any) -> None:
        """Write them."""
        step = run_context.session.step
        assert self._timer is not None
        if self._timer.is_due(step):
            self._timer.done(step)
            for op in self._ops:
                self._writer.write(step, op)

    def end(self, session: Any = None) -> None:
        """Show the rest."""
        self._writer.flush()


class GlobalStepWaiterHook(_Hook):
    """Waits until the global step is there, which another process counts; see the one of `tf.compat.v1.train`.

    Args:
      wait_until_step: the step.
    """

    POLL_SECS = 0.5

    def __init__(self, wait_until_step: int) -> None:
        self._step = wait_until_step
        self._is_there = wait_until_step <= 0

    def due_at(self, step: int) -> float | None:
        """The first step alone."""
        return math.inf if self._is_there else step + 1

    def before_run(self, run_context: Any) -> None:
        """Wait; not where the run is to end."""
        if self._is_there:
            return
        tf1.logging.info("Waiting for global step %d before starting training.", self._step)
        while run_context.session.step < self._step and not run_context.session.should_stop():
            time.sleep(self.POLL_SECS)
        self._is_there = True


class FinalOpsHook(_Hook):
    """Finds values at the end; see `tf.compat.v1.train.FinalOpsHook`.

    Args:
      final_ops: variables and functions, and names of what the last step returned, in any structure.
      final_ops_feed_dict: the functions' arguments by name.
    """

    def __init__(self, final_ops: Any, final_ops_feed_dict: Mapping[str, Any] | None = None) -> None:
        self._ops, self._feeds = final_ops, final_ops_feed_dict
        self._values: Any = None

    @property
    def final_ops_values(self) -> Any:
        """What they gave, as NumPy values; None before the end, and where a name is among them and no step was run."""
        return self._values

    def due_at(self, step: int) -> float | None:
        """Never: it is called at the end."""
        return math.inf

    def end(self, session: Any) -> None:
        """Find them."""
        if self._ops is not None:
            self._values = _at_the_end(session, self._ops, self._feeds)


class FeedFnHook(_Hook):
    """Gives the step function its arguments; see `tf.compat.v1.train.FeedFnHook`.

    Args:
      feed_fn: returns them by name. It is called before every step.
    """

    def __init__(self, feed_fn: Callable[[], Mapping[str, Any]]) -> None:
        self.feed_fn = feed_fn

    def due_at(self, step: int) -> float | None:
        """Every step."""
        return step + 1

    def before_run(self, run_context: Any) -> Any:
        """Give them."""
        return SessionRunArgs(fetches=None, feed_dict=self.feed_fn())


class ProfilerHook(_Timed):
    """Profiles a step every N steps or seconds; see `tf.compat.v1.train.ProfilerHook`.

    It writes what TensorBoard's Profile page shows, in `plugins/profile` of its folder. The step before one that is
    profiled, and that one, are run by themselves.

    Args:
      save_steps, save_secs: how often; one of them. The first time is after so many.
      output_dir: where profiles go.
      show_dataflow, show_memory: of TensorFlow 1's timelines; not used here.
    """

    def __init__(
        self,
        save_steps: int | None = None,
        save_secs: float | None = None,
        output_dir: str = "",
        show_dataflow: bool = True,
        show_memory: bool = False,
    ) -> None:
        self._timer = _Timer(save_secs, save_steps)
        self._folder = str(Path(output_dir or ".").absolute())
        self._is_profiling = self._is_next = False

    def after_create_session(self, session: Any, coord: Any) -> None:
        """Count from here."""
        assert self._timer is not None
        self._timer.done(session.step)

    def due_at(self, step: int) -> float | None:
        """The step before the one that is profiled, and that one."""
        assert self._timer is not None
        due = self._timer.due_at(step)
        self._is_next = due == step + 1
        return due if self._is_next else due - 1

    def before_run(self, run_context: Any) -> None:
        """Start the profiler."""
        if self._is_next and not self._is_profiling:
            tf.profiler.experimental.start(self._folder)
            self._is_profiling = True

    def after_run(self, run_context: Any, run_values: Any) -> None:
        """Stop it."""
        assert self._timer is not None
        if self._is_profiling:
            self._stop()
            tf1.logging.info("Saved the profile of step %d in %s.", run_context.session.step, self._folder)
            self._timer.done(run_context.session.step)

    def end(self, session: Any) -> None:
        """Stop it, where a step was not to be."""
        if self._is_profiling:
            self._stop()

    def _stop(self) -> None:
        self._is_profiling = False
        tf.profiler.experimental.stop()


class _Writer:
    """A `tf.summary` writer that is made when there is something to write."""

    def __init__(self, folder: str | None, writer: Any) -> None:
        self._folder, self._writer = folder, writer

    def write(self, step: int, write: Callable[[], object]) -> None:
        """Write what a function writes, as of a step."""
        if self._writer is None and self._folder:
            self._writer = tf.summary.create_file_writer(self._folder)
        if self._writer is not None:
            with self._writer.as_default(step=step):
                write()

    def flush(self) -> None:
        """Show it to readers."""
        if self._writer is not None:
            self._writer.flush()
