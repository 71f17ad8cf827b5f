"""The loop in the graph: a `while` that runs a step and checks the flag, again and again.

Calling a small `tf.function` from Python costs a few hundred microseconds; an iteration of a `while` in a graph
costs a few. So the loop itself is a `tf.function`, and Python sees the boundaries only. Around a step that Python runs
it is the same loop, run eagerly.
"""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import tensorflow as tf
from numpy.typing import NDArray

from trainerd.sessions.input.iterators import next_batch
from trainerd.sessions.tf2.eager_step import EagerStep
from trainerd.sessions.tf2.metrics import as_dict, as_row, layout, row_shape

_ENDED_EARLY = np.iinfo(np.int64).max  # the count of a run that a metric ended; `tf.int64.max` takes 8 µs
ROWS = 65536  # at most so many steps between two boundaries: a second's worth of the smallest step


class GraphLoop:
    """Runs one traced step in the graph; or one that Python runs, from Python.

    Args:
      traced: a step as a concrete function, from a batch to its metrics; or an EagerStep.
      iterator: gives the batches; None if the step takes none.
      global_step: int64, counts the steps.
      counts: whether the loop counts them; False if the step does it itself.
      stops_at: the metrics that end the loop after their first value that is not a number.

    Attributes:
      names: the metrics, one a column.

    Raises:
      EntryError: the step returns something that is not a metric.
    """

    def __init__(
        self, traced: Any, iterator: Any, global_step: tf.Variable, *, counts: bool = True, stops_at: Sequence[str] = ()
    ) -> None:
        self.names, self._dtype = layout(traced.structured_outputs)
        self._iterator = iterator
        self._global_step = global_step
        self._counts = counts
        self._stops_at = stops_at
        with tf.device("CPU:0"):
            # How many steps the loop does: a raised flag makes it 0, so that the loop has one thing to check.
            self._limit = tf.Variable(0, dtype=tf.int64, trainable=False, name="limit")
            # The step that is under way: differs from the global step where one was cut short by an error. Known
            # where there is a dataset, whose errors come between steps.
            self._entered = tf.Variable(0, dtype=tf.int64, trainable=False, name="entered")
            rows = tf.zeros([ROWS, *row_shape(self.names)], self._dtype)
            self._rows = tf.Variable(rows, trainable=False, name="metrics")
        self._limit_lock = threading.Lock()
        self._known_limit = 0  # the value of `_limit`: to assign it costs as much as a small step
        self._is_raised = self._ended_early = False
        self._is_eager = isinstance(traced, EagerStep)
        self._step = traced if self.names or self._is_eager else _with_output(traced, iterator)
        self._run = self._make()

    def set_raised(self, raised: bool) -> None:
        """Set the flag's value. Called by any thread, whenever it changes."""
        with self._limit_lock:
            self._is_raised = raised
            if raised:
                self._set_limit(0)

    @property
    def wants_boundary(self) -> bool:
        """True if no run may follow before a boundary: the flag is raised, or a metric was not a number."""
        return self._is_raised or self._ended_early

    def run(self, count: int) -> int | None:
        """Run so many steps, or fewer if the flag is raised, or a metric that it checks is not a number.

        Returns:
          How many were run; None if such a metric ended it.

        Raises:
          what the step raises; `tf.errors.OutOfRangeError` if there is no batch any more.
        """
        with self._limit_lock:
            self._set_limit(0 if self._is_raised else min(count, ROWS))
        done = int(self._run())
        self._ended_early = done == _ENDED_EARLY
        return None if self._ended_early else done

    def _set_limit(self, limit: int) -> None:
        """Set the limit of the loop, under its lock."""
        if limit != self._known_limit:
            self._limit.assign(limit)
            self._known_limit = limit

    def read_from(self, iterator: Any) -> None:
        """Take the batches from another iterator of the same dataset from now on."""
        self._iterator = iterator
        self._run = self._make()

    def rows(self, count: int) -> NDArray[np.float64]:
        """Return the metrics of the first so many steps of the last run, float64, shape [count, metrics]."""
        # Only these rows: `value()` copies all of them, which costs as much as some small steps.
        rows: NDArray[np.float64] = self._rows.sparse_read(np.arange(count)).numpy().astype(np.float64)
        return rows.reshape(count, len(self.names))

    def is_between_steps(self) -> bool:
        """Return whether no step was cut short; False if that is not known."""
        return self._iterator is not None and int(self._entered.numpy()) == int(self._global_step.numpy())

    def can_run(self) -> bool:
        """Return whether the graph runs, without a step. TensorFlow rejects all of it if it cannot place one op."""
        try:
            self.run(0)
        except tf.errors.OpError:
            return False
        return True

    def enter(self) -> None:
        """Record that the global step was set to that of a boundary."""
        self._entered.assign(self._global_step)

    def _checked(self, outputs: Any) -> list[tf.Tensor]:
        """Return the metrics to check after every step."""
        found = [value for name, value in as_dict(outputs).items() if name in self._stops_at]
        return [value for value in found if value.dtype.is_floating]

    def _make(self) -> Callable[[], Any]:
        """Return the loop: it runs until it has done as many steps as the limit says, or a metric is not a number.

        Each op of an iteration costs a third of a microsecond or more, which is much to a small step. So the flag
        and the limit are one variable, and the count of steps is all that goes from one iteration to the next.
        Iterations never overlap (parallel_iterations=1): what the flag finds is a boundary.
        """

        def one_step(count: tf.Tensor) -> tf.Tensor:
            outputs = self._one_step(count)
            with tf.control_dependencies(tf.nest.flatten(outputs)):
                checked, after = self._checked(outputs), count + 1
                are_numbers = functools.reduce(tf.logical_and, map(tf.math.is_finite, checked), True)
                return tf.where(are_numbers, after, _ENDED_EARLY) if checked else after

        def run() -> tf.Tensor:
            start = tf.constant(0, tf.int64)
            [done] = tf.while_loop(
                lambda count: count < self._limit.read_value(),
                lambda count: [one_step(count)],
                [start],
                parallel_iterations=1,
            )
            return done

        return run if self._is_eager else of_one_trace(tf.function(run, autograph=False, input_signature=[]))

    def _one_step(self, count: tf.Tensor) -> Any:
        """Run one step in the graph, and count and record it. Returns what the step returns."""
        batch = [] if self._iterator is None else [next_batch(self._iterator)]
        with tf.control_dependencies(tf.nest.flatten(batch, expand_composites=True)):
            entered = [self._entered.assign_add(1, read_value=False)] if batch else []
        with tf.control_dependencies(entered):
            outputs = self._step(*batch)
        with tf.control_dependencies(tf.nest.flatten(outputs)):  # the call as a whole, with all that it assigns
            if self.names:
                row = as_row(outputs, self.names, self._dtype)
                tf.raw_ops.ResourceScatterUpdate(resource=self._rows.handle, indices=count, updates=row)
            if self._counts:
                self._global_step.assign_add(1, read_value=False)
        return outputs


def of_one_trace(function: Any) -> Callable[[], Any]:
    """Return a `tf.function` without arguments as one that is traced at its first call, and not looked up at the next.

    The look-up takes a third of the call of a small step.
    """
    traced = functools.cache(function.get_concrete_function)
    return lambda: traced()()


def _with_output(traced: Any, iterator: Any) -> Any:
    """Return a step without metrics, with an output all the same: for what comes after it to wait for."""

    def step_to_done(*batch: Any) -> tf.Tensor:
        traced(*batch)
        return tf.zeros([])

    batch = [] if iterator is None else [iterator.element_spec]
    return tf.function(step_to_done, autograph=False).get_concrete_function(*batch)
