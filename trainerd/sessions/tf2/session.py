"""The session of a TensorFlow 2 program: it runs step functions, and the end of each run is a boundary."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import tensorflow as tf

from trainerd.loop.contract import Steps
from trainerd.run.session_link import SessionLink
from trainerd.sessions.tf1.callables import LIMIT
from trainerd.sessions.tf2.metrics import as_dict
from trainerd.sessions.tf2.model import CheckpointModel
from trainerd.sessions.tf2.while_loop import GraphLoop

Step = Callable[..., Any]


@dataclass
class FunctionSessionLink(SessionLink):
    """The session link of a managed session of functions.

    Attributes:
      ran: called with the steps that were run, at each boundary.
      should_stop: whether the program's loop is to end.
    """

    ran: Callable[[Steps], None] = field(default=lambda steps: None)
    should_stop: Callable[[], bool] = field(default=lambda: False)


class _Function:
    """A step function, and the loop around it, which is made when it is needed."""

    def __init__(self, function: Any) -> None:
        self.call = function if hasattr(function, "get_concrete_function") else tf.function(function)
        self.is_traced = False
        self.loops: dict[tuple[str, ...], GraphLoop] = {}


class StepSession:
    """Runs step functions of ordinary TensorFlow 2.

    Args:
      model: the model that they train.
      global_step: int64, counts the steps.
      counts: whether the session counts them; False if the functions do it themselves.
    """

    session_link: FunctionSessionLink

    def __init__(self, model: CheckpointModel, global_step: tf.Variable, *, counts: bool) -> None:
        self._model = model
        self._global_step = global_step
        self._counts = counts
        self._functions: dict[Hashable, tuple[_Function, Any]] = {}

    @property
    def step(self) -> int:
        """The global step."""
        return self._model.step

    def run(self, step_fn: Step, feed_dict: Mapping[str, Any] | None = None, steps: int | None = None) -> Any:
        """Run a step function once, or so many times.

        Args:
          step_fn: a function, which becomes a `tf.function`, or one that is.
          feed_dict: its arguments by name.
          steps: how many times: in the graph, with a check of the flag after each. It returns earlier if the loop
            is to end, but runs the function at least once. The function then takes no arguments, and returns a dict of
            scalars, one scalar, or None.

        Returns:
          What the function returned, the last time if there are several, as NumPy values.

        Raises:
          what the function raises; `tf.errors.OutOfRangeError` if its input has ended.
          RuntimeError: `steps` on another thread; or `global_step` does not count the runs.
          ValueError: `steps` is not a positive whole number, or goes with a `feed_dict`.
        """
        if steps is not None and (feed_dict or not isinstance(steps, int | np.integer) or steps < 1):
            raise ValueError(
                f"steps must be a whole number, 1 or more, without a feed_dict; they are {steps!r} and {feed_dict!r}."
            )
        boundary = self.session_link.boundary
        if not boundary.is_mine:
            if steps is not None:
                raise RuntimeError("steps is for the loop of the thread that asked for the session; run one step here.")
            with boundary.lock:
                return self.run_step(step_fn, feed_dict)
        with boundary.lock:
            if steps is not None:
                return self._run_until(step_fn, self.step + steps)
            result = self.run_step(step_fn, feed_dict)
            self.session_link.ran(as_steps(self.step, result))
            if boundary.flag.is_raised or self.step >= self.session_link.next_step:
                boundary.reached()
        return result

    def run_step(self, step_fn: Step, feed_dict: Mapping[str, Any] | None = None) -> Any:
        """Run a step function once; for callers that reach the boundary themselves."""
        function = self._function(step_fn)
        try:
            if not function.is_traced:  # so that what it makes is restored before it runs
                self._traced(function, function.call.get_concrete_function(**(feed_dict or {})))
            result = function.call(**(feed_dict or {}))
            if self._counts:
                self._global_step.assign_add(1, read_value=False)
        except BaseException as error:
            self.session_link.fail(error, self._model.changes)
            raise
        self._model.count(1)
        return as_numpy(result)

    def run_steps(self, step_fn: Step, limit: int, stops_at: tuple[str, ...] = ()) -> tuple[Steps, Any]:
        """Run steps in the graph until the flag is raised, or to this global step; for callers that reach the boundary.

        Args:
          step_fn: see `run`.
          limit: the global step.
          stops_at: the metrics that end the loop after their first value that is not a number.

        Returns:
          The steps, and what the last one returned.
        """
        before = self.step
        try:
            loop, structure = self._loop(step_fn, stops_at)
            self.session_link.boundary.flag.bind(loop.set_raised)
            ran = loop.run(limit - before)
            if ran is not None and self.step != before + ran:
                raise RuntimeError(
                    f"the step function was run {ran} times, and global_step went from {before} to {self.step}: each "
                    "run has to add 1. Leave global_step out, and the session counts."
                )
        except tf.errors.OutOfRangeError:
            if self.step == before:
                raise  # there is no batch any more; what was run before that is a run of its own
        except BaseException as error:
            self.session_link.fail(error, self._model.changes)
            raise
        done = self.step - before
        self._model.count(done)
        steps = Steps(before + 1, loop.names, loop.rows(done))
        return steps, (_like(structure, steps) if done else None)

    def close(self) -> None:
        """Save the last step. No step follows."""
        self.session_link.close(None)

    def _run_until(self, step_fn: Step, end: int) -> Any:
        boundary, result, before = self.session_link.boundary, None, self.step
        while self.step < end:
            if boundary.flag.is_raised:
                boundary.reached()
            if self.session_link.should_stop():
                if self.step > before:
                    break
                end = before + 1  # as a run of one step, which is made in any case
            steps, last = self.run_steps(step_fn, int(min(end, self.session_link.next_step)))
            result = last if last is not None else result
            self.session_link.ran(steps)
            if boundary.flag.is_raised or self.step >= self.session_link.next_step:
                boundary.reached()
        return result

    def _function(self, step_fn: Any) -> _Function:
        """Return the entry of a step function. The function is kept too, so that no other gets its identity."""
        # A method is a new object each time it is asked for.
        key = (id(step_fn.__self__), step_fn.__func__) if inspect.ismethod(step_fn) else id(step_fn)
        if key not in self._functions:
            if not callable(step_fn):
                raise TypeError(f"run takes a step function, and this is of type {type(step_fn).__name__}: {step_fn!r}")
            if len(self._functions) >= LIMIT:
                self._functions.clear()
            self._functions[key] = (_Function(step_fn), step_fn)
        return self._functions[key][0]

    def _loop(self, step_fn: Any, stops_at: tuple[str, ...]) -> tuple[GraphLoop, Any]:
        function = self._function(step_fn)
        traced = function.call.get_concrete_function()
        self._traced(function, traced)
        if stops_at not in function.loops:
            function.loops[stops_at] = GraphLoop(
                traced, None, self._global_step, counts=self._counts, stops_at=stops_at
            )
        return function.loops[stops_at], traced.structured_outputs

    def _traced(self, function: _Function, traced: Any) -> None:
        if not function.is_traced:
            self._model.traced(traced.graph)
            function.is_traced = True


def as_numpy(result: Any) -> Any:
    """Return the result of a function as NumPy values."""
    return tf.nest.map_structure(lambda part: part.numpy() if hasattr(part, "numpy") else part, result)


def as_steps(step: int, result: Any) -> Steps:
    """Return the metrics of one step, if it returned any."""
    found = result if isinstance(result, Mapping) else {"loss": result}
    metrics = {str(name): float(value) for name, value in found.items() if _is_number(value)}
    return Steps(step, tuple(metrics), np.array([list(metrics.values())], dtype=np.float64))


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float | np.number | np.bool_) and not isinstance(value, np.complexfloating)


def _like(structure: Any, steps: Steps) -> Any:
    """Return the metrics of the last step, in the structure and with the types in which the function returned them."""
    specs, last = as_dict(structure), steps.last()
    values = {name: spec.dtype.as_numpy_dtype(last[name]) for name, spec in specs.items()}
    if structure is None:
        return None
    return values if isinstance(structure, dict) else values["loss"]
