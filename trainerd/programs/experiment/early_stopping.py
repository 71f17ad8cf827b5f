"""Hooks that end a training by the metrics of its evaluations, as those of `tf.estimator.experimental` did."""

from __future__ import annotations

import contextlib
import operator
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import tensorflow as tf

from trainerd.programs.estimator.base import BaseEstimator
from trainerd.programs.estimator.functions.job_estimator import JobEstimator
from trainerd.programs.hooks.base import Hook, Timer

tf1 = tf.compat.v1

_Results = Mapping[int, Mapping[str, float]]  # the metrics of all evaluations, by step
_Compare = Callable[[Any, Any], bool]
_CROSSED = 'At step %s, metric "%s" has value %s which is %s the configured threshold (%s) for early stopping.'
_NOT_BETTER = (
    'No %s in metric "%s" for %s steps, which is greater than or equal to max steps (%s) configured for early stopping.'
)


def make_early_stopping_hook(
    estimator: Any,
    should_stop_fn: Callable[[], bool],
    run_every_secs: float | None = 60,
    run_every_steps: int | None = None,
) -> tf.compat.v1.train.SessionRunHook:
    """Return a hook that ends the training when a function says so.

    Args:
      estimator: what is trained.
      should_stop_fn: asked again and again.
      run_every_secs: seconds between two calls.
      run_every_steps: it is asked at the multiples of so many steps. Unlike seconds, the same in each run.

    Raises:
      TypeError: `estimator` is not one of trainerd's.
      ValueError: both seconds and steps are given, or neither.
    """
    if not isinstance(estimator, BaseEstimator):
        raise TypeError(f"`estimator` must have type `tf.estimator.Estimator`. Got: {type(estimator)}")
    if run_every_secs is not None and run_every_steps is not None:
        raise ValueError("Only one of `run_every_secs` and `run_every_steps` must be set.")
    if run_every_secs is None and run_every_steps is None:
        raise ValueError("One of `run_every_secs` and `run_every_steps` must be set.")
    kind = _StopFunctionsHook if isinstance(estimator, JobEstimator) else _StopHook
    return kind(should_stop_fn, run_every_secs, run_every_steps)


class _StopHook(tf.compat.v1.train.SessionRunHook):  # type: ignore[misc]
    """Asks a function whether to stop."""

    def __init__(self, should_stop: Callable[[], bool], every_secs: float | None, every_steps: int | None) -> None:
        self._should_stop = should_stop
        self._timer = Timer(every_secs, every_steps)
        self._every_steps = every_steps
        self._round: int | None = None  # of so many steps

    def begin(self) -> None:
        """Find what counts the steps."""
        self._global_step = tf1.train.get_global_step()
        if self._global_step is None:
            raise RuntimeError("Global step should be created to use early stopping.")

    def before_run(self, run_context: Any) -> Any:
        """Ask for the global step."""
        return tf1.train.SessionRunArgs(self._global_step) if self._every_steps else None

    def after_run(self, run_context: Any, run_values: Any) -> None:
        """Ask, if it is time."""
        if self._is_due(run_context, run_values) and self._should_stop():
            tf1.logging.info("Requesting early stopping.")
            run_context.request_stop()

    def _is_due(self, run_context: Any, run_values: Any) -> bool:
        if not self._every_steps:
            is_due = self._timer.is_due(0)
            if is_due:
                self._timer.done(0)
            return is_due
        seen = int(run_values.results)
        if self._round is None:
            self._round = seen // self._every_steps
        if (seen + 1) // self._every_steps == self._round:  # what is read beside a step is the one before it, or it
            return False
        now_round = int(run_context.session.run(self._global_step)) // self._every_steps
        was, self._round = self._round, now_round
        return now_round > was


class _StopFunctionsHook(Hook):
    """Asks a function whether to stop, for functions of TensorFlow 2."""

    def __init__(self, should_stop: Callable[[], bool], every_secs: float | None, every_steps: int | None) -> None:
        self._should_stop = should_stop
        self._timer = Timer(every_secs, every_steps)
        self._every_steps = every_steps
        self.by_clock = every_secs is not None

    def due_at(self, step: int) -> float | None:
        """Return the next multiple of so many steps; None, for any boundary, if the clock decides."""
        return None if self._every_steps is None else (step // self._every_steps + 1) * self._every_steps

    def after_run(self, run_context: Any, run_values: Any) -> None:
        """Ask, if it is time."""
        step = run_context.session.step
        if self._every_steps is None and not self._timer.is_due(step):
            return
        self._timer.done(step)
        if self._should_stop():
            tf1.logging.info("Requesting early stopping.")
            run_context.request_stop()


def stop_if_higher_hook(
    estimator: Any,
    metric_name: str,
    threshold: float,
    eval_dir: str | None = None,
    min_steps: int = 0,
    run_every_secs: float | None = 60,
    run_every_steps: int | None = None,
) -> tf.compat.v1.train.SessionRunHook:
    """Return a hook that ends the training when a metric is higher than a threshold.

    Args:
      estimator: what is trained.
      metric_name: which metric of the evaluations.
      threshold: the threshold.
      eval_dir: the folder with their curves. Default: `estimator.eval_dir()`.
      min_steps: evaluations before this step do not count.
      run_every_secs, run_every_steps: see `make_early_stopping_hook`.
    """
    found = partial(_has_crossed, name=metric_name, threshold=threshold, crosses=operator.gt, how="greater than")
    return _hook_of(estimator, eval_dir, min_steps, found, run_every_secs, run_every_steps)


def stop_if_lower_hook(
    estimator: Any,
    metric_name: str,
    threshold: float,
    eval_dir: str | None = None,
    min_steps: int = 0,
    run_every_secs: float | None = 60,
    run_every_steps: int | None = None,
) -> tf.compat.v1.train.SessionRunHook:
    """Return a hook that ends the training when a metric is lower than a threshold; see `stop_if_higher_hook`."""
    found = partial(_has_crossed, name=metric_name, threshold=threshold, crosses=operator.lt, how="less than")
    return _hook_of(estimator, eval_dir, min_steps, found, run_every_secs, run_every_steps)


def stop_if_no_increase_hook(
    estimator: Any,
    metric_name: str,
    max_steps_without_increase: int,
    eval_dir: str | None = None,
    min_steps: int = 0,
    run_every_secs: float | None = 60,
    run_every_steps: int | None = None,
) -> tf.compat.v1.train.SessionRunHook:
    """Return a hook that ends the training when a metric has not increased for so many steps.

    Args:
      max_steps_without_increase: how many.
      estimator, metric_name, eval_dir, min_steps, run_every_secs, run_every_steps: see `stop_if_higher_hook`.
    """
    found = partial(
        _is_no_better, name=metric_name, max_steps=max_steps_without_increase, is_better=operator.gt, how="increase"
    )
    return _hook_of(estimator, eval_dir, min_steps, found, run_every_secs, run_every_steps)


def stop_if_no_decrease_hook(
    estimator: Any,
    metric_name: str,
    max_steps_without_decrease: int,
    eval_dir: str | None = None,
    min_steps: int = 0,
    run_every_secs: float | None = 60,
    run_every_steps: int | None = None,
) -> tf.compat.v1.train.SessionRunHook:
    """Return a hook that ends the training when a metric has not decreased for so many steps.

    See `stop_if_no_increase_hook`.
    """
    found = partial(
        _is_no_better, name=metric_name, max_steps=max_steps_without_decrease, is_better=operator.lt, how="decrease"
    )
    return _hook_of(estimator, eval_dir, min_steps, found, run_every_secs, run_every_steps)


def read_eval_metrics(eval_dir: str) -> dict[int, dict[str, float]]:
    """Return the metrics of all evaluations in a folder of curves: global step to name to value, by step."""
    found: dict[int, dict[str, float]] = {}
    for path in sorted(Path(eval_dir).glob("*.tfevents.*")) if Path(eval_dir).is_dir() else ():
        with contextlib.suppress(tf.errors.DataLossError):  # a kill, or a writer, has left its end torn
            for event in tf1.train.summary_iterator(str(path)):
                values = {each.tag: each.simple_value for each in event.summary.value if each.HasField("simple_value")}
                if values:
                    found.setdefault(event.step, {}).update(values)
    return dict(sorted(found.items()))


def _has_crossed(results: _Results, name: str, threshold: float, crosses: _Compare, how: str) -> bool:
    """Return whether a metric has crossed a threshold."""
    for step, metrics in results.items():
        if crosses(metrics[name], threshold):
            tf1.logging.info(_CROSSED, step, name, metrics[name], how, threshold)
            return True
    return False


def _is_no_better(results: _Results, name: str, max_steps: int, is_better: _Compare, how: str) -> bool:
    """Return whether a metric has not improved for so many steps."""
    best: tuple[int, float] | None = None
    for step, metrics in results.items():
        value = metrics[name]
        if best is None or is_better(value, best[1]):
            best = step, value
        if step - best[0] >= max_steps:
            tf1.logging.info(_NOT_BETTER, how, name, step - best[0], max_steps)
            return True
    return False


def _hook_of(
    estimator: Any,
    eval_dir: str | None,
    min_steps: int,
    is_over: Callable[[_Results], bool],
    every_secs: float | None,
    every_steps: int | None,
) -> Any:
    folder = eval_dir if eval_dir is not None else estimator.eval_dir()

    def should_stop() -> bool:
        return is_over({step: found for step, found in read_eval_metrics(folder).items() if step >= min_steps})

    return make_early_stopping_hook(estimator, should_stop, every_secs, every_steps)
