"""`trainerd.Experiment`: `tf.contrib.learn.Experiment`, with the names, defaults and errors of TensorFlow 1.15."""

from __future__ import annotations

import math
import os
import time
import warnings
from collections.abc import Callable, Iterable
from typing import Any

import tensorflow as tf

from trainerd.checkpoints.format.reader import newest_checkpoint
from trainerd.job.definition import GraphJob, Job, Scheduled
from trainerd.programs.estimator.base import BaseEstimator
from trainerd.programs.estimator.checkpoints import step_of
from trainerd.programs.estimator.waiting import Waiting
from trainerd.programs.experiment import server
from trainerd.programs.experiment.adapters import as_estimator
from trainerd.programs.experiment.continuous import ContinuousEvaluation, as_predicate, has_ended
from trainerd.programs.experiment.export.exporters import export_by_each
from trainerd.programs.experiment.export.strategies import ExportStrategy
from trainerd.programs.experiment.new_checkpoints import NewCheckpointHook, NewCheckpointListener, Throttle
from trainerd.programs.experiment.records import OncePerCheckpoint, Records
from trainerd.programs.experiment.schedules import default_schedule

tf1 = tf.compat.v1

_LOCAL_EVAL_FREQUENCY = (
    "local_eval_frequency is deprecated as local_run will be renamed to train_and_evaluate. Use min_eval_frequency and "
    "call train_and_evaluate instead."
)
_LOCAL_RUN = (
    "local_run will be renamed to train_and_evaluate and the new default behavior will be to run evaluation every time "
    "there is a new checkpoint."
)


class Experiment(Scheduled):
    """An estimator, the input of its training and of its evaluation, and methods that run them on a schedule.

    All of it pauses, by signal or file, and resumes exactly: no checkpoint is evaluated twice, none is left out.

    One class, since TensorFlow's is one: its methods are the schedules, and programs name them.

    Args:
      estimator: a `trainerd.Estimator`; a compiled Keras model; a `trainerd.Job`; or any object with `fit` or `train`,
        `evaluate`, `model_dir` and `config`.
      train_input_fn: the input of the training.
      eval_input_fn: the input of the evaluation.
      eval_metrics: for estimators of contrib.learn alone: name to metric.
      train_steps: the global step at which training ends. None: never.
      eval_steps: batches of an evaluation. None: all.
      train_monitors: hooks of the training.
      eval_hooks: hooks of the evaluation.
      local_eval_frequency: as `min_eval_frequency`, for `local_run`. Deprecated.
      eval_delay_secs: how long an evaluation waits before it begins.
      continuous_eval_throttle_secs: between the beginnings of two evaluations of `continuous_eval`.
      min_eval_frequency: steps between two evaluations of `train_and_evaluate`, at least. 0: only at the end. Default:
        1, and 1000 in Google Cloud Storage.
      delay_workers_by_global_step: whether a worker waits for a global step, and not for a time.
      export_strategies: one `ExportStrategy`, or several.
      train_steps_per_iteration: steps of an iteration of `continuous_train_and_eval`. Default: a tenth of
        `train_steps`, or 1000.
      checkpoint_and_export: whether `train_and_evaluate` evaluates and exports each checkpoint.
      saving_listeners: `CheckpointSaverListener`s.
      check_interval_secs: seconds between two looks for a new checkpoint in `train_and_evaluate`.

    Raises:
      ValueError: the estimator cannot train or evaluate, or an argument is of the wrong type.
    """

    def __init__(
        self,
        estimator: Any,
        train_input_fn: Any,
        eval_input_fn: Any,
        eval_metrics: Any = None,
        train_steps: int | None = None,
        eval_steps: int | None = 100,
        train_monitors: Iterable[tf.compat.v1.train.SessionRunHook] | None = None,
        eval_hooks: Iterable[tf.compat.v1.train.SessionRunHook] | None = None,
        local_eval_frequency: int | None = None,
        eval_delay_secs: float = 120,
        continuous_eval_throttle_secs: float = 60,
        min_eval_frequency: int | None = None,
        delay_workers_by_global_step: bool = False,
        export_strategies: Iterable[ExportStrategy] | ExportStrategy | None = None,
        train_steps_per_iteration: int | None = None,
        checkpoint_and_export: bool = False,
        saving_listeners: Any = None,
        check_interval_secs: float = 5,
    ) -> None:
        self._estimator = as_estimator(estimator)
        self._core_estimator_used = isinstance(self._estimator, BaseEstimator)
        if self._core_estimator_used and eval_metrics is not None:
            raise ValueError(
                "`eval_metrics` must be `None` with `tf.estimator.Estimator`. Use `eval_metric_ops` in "
                "`tf.estimator.EstimatorSpec` instead."
            )
        if saving_listeners is not None and not self._core_estimator_used:
            raise ValueError("`saving_listeners` must be `None` with an estimator that is not a `trainerd.Estimator`.")
        if train_steps_per_iteration is not None and not isinstance(train_steps_per_iteration, int):
            raise ValueError("`train_steps_per_iteration` must be an integer.")
        if local_eval_frequency is not None:
            warnings.warn(_LOCAL_EVAL_FREQUENCY, DeprecationWarning, stacklevel=2)
        self._train_input_fn = train_input_fn
        self._eval_input_fn = eval_input_fn
        self._eval_metrics = eval_metrics
        self._train_steps = train_steps
        self._eval_steps = eval_steps
        self._train_monitors = list(train_monitors or ())
        self._eval_hooks = list(eval_hooks or ())
        self._local_eval_frequency = local_eval_frequency
        self._eval_delay_secs = eval_delay_secs
        self._continuous_eval_throttle_secs = continuous_eval_throttle_secs
        is_remote = str(getattr(self._estimator, "model_dir", None) or "").startswith("gs://")
        self._min_eval_frequency = min_eval_frequency if min_eval_frequency is not None else 1000 if is_remote else 1
        self._delay_workers_by_global_step = delay_workers_by_global_step
        self._set_export_strategies(export_strategies)
        self._train_steps_per_iteration = train_steps_per_iteration
        self._checkpoint_and_export = checkpoint_and_export
        self._saving_listeners = saving_listeners
        self._check_interval_secs = check_interval_secs
        self._waiting = Waiting()

    # ------------------------------------------------------------------ what it is

    @property
    def estimator(self) -> Any:
        """The estimator."""
        return self._estimator

    @property
    def eval_metrics(self) -> Any:
        """The metrics of the evaluation."""
        return self._eval_metrics

    @property
    def train_steps(self) -> int | None:
        """The global step at which training ends."""
        return self._train_steps

    @property
    def eval_steps(self) -> int | None:
        """The batches of an evaluation."""
        return self._eval_steps

    def _set_export_strategies(self, values: Any) -> None:
        given = [values] if isinstance(values, ExportStrategy) else list(values or ())
        for value in given:
            if not isinstance(value, ExportStrategy):
                raise ValueError(
                    "`export_strategies` must be an ExportStrategy, an iterable of ExportStrategy, or `None`, found "
                    f"{value}."
                )
        self._export_strategies = tuple(given)

    def extend_train_hooks(self, additional_hooks: Iterable[tf.compat.v1.train.SessionRunHook]) -> None:
        """Add hooks to the training."""
        self._train_monitors.extend(additional_hooks)

    def reset_export_strategies(self, new_export_strategies: Any = None) -> tuple[ExportStrategy, ...]:
        """Export by these strategies from now on. Returns the ones from before."""
        before = self._export_strategies
        self._set_export_strategies(new_export_strategies)
        return before

    schedules = (
        "continuous_eval",
        "continuous_eval_on_train_data",
        "continuous_train_and_eval",
        "evaluate",
        "local_run",
        "run_std_server",
        "test",
        "train",
        "train_and_evaluate",
    )
    train_nothing = frozenset({"continuous_eval", "continuous_eval_on_train_data", "evaluate", "run_std_server"})

    @property
    def model_dir(self) -> str | None:  # type: ignore[override]
        """The run directory of the estimator."""
        return getattr(self._estimator, "model_dir", None)

    def default_schedule(self) -> str:
        """See `run_experiment`."""
        return default_schedule(getattr(self._estimator, "config", None))

    def trial(self) -> Job | GraphJob | None:
        """See `Scheduled`."""
        if not isinstance(self._estimator, BaseEstimator):
            return None
        return self._estimator.trial(self._train_input_fn, self._eval_input_fn, self._eval_steps)

    # ------------------------------------------------------------------ schedules

    def train(self, delay_secs: float | None = None) -> Any:
        """Train.

        Args:
          delay_secs: how long to wait before. Default: 5 s for each task before this one, up to 60.

        Returns:
          What the estimator's `train` or `fit` returns.
        """
        return self._train(delay_secs, [], [])

    def _train(self, delay_secs: float | None, hooks: list[Any], listeners: list[Any]) -> Any:
        start, config = time.monotonic(), self._estimator.config
        if server.is_wanted(config):
            server.start(config)
        extra = list(hooks)
        if delay_secs is None:
            task_id = getattr(config, "task_id", 0) or 0
            if self._delay_workers_by_global_step:
                extra.append(tf1.train.GlobalStepWaiterHook(int(8000.0 * math.log(task_id + 1))))
                delay_secs = 0
            else:
                most = getattr(config, "experimental_max_worker_delay_secs", None)
                delay_secs = min(60 if most is None else most, task_id * 5)
        if delay_secs > 0:
            tf1.logging.info("Waiting %d secs before starting training.", delay_secs - (time.monotonic() - start))
            with self._waiting.listening():
                self._waiting.sleep(delay_secs)
        listeners = [*(self._saving_listeners or ()), *listeners] if listeners else self._saving_listeners
        return self._call_train(self._train_monitors + extra, listeners, max_steps=self._train_steps)

    def evaluate(self, delay_secs: float | None = None, name: str | None = None) -> Any:
        """Evaluate the newest checkpoint.

        Args:
          delay_secs: how long to wait before. Default: `eval_delay_secs`.
          name: of the evaluation, for its curves.

        Returns:
          The metrics.
        """
        delay_secs = self._eval_delay_secs if delay_secs is None else delay_secs
        with self._waiting.listening():
            if delay_secs:
                tf1.logging.info("Waiting %d secs before starting eval.", delay_secs)
                self._waiting.sleep(delay_secs)
            return self._evaluated(None, name or "one_pass", self._eval_input_fn)

    def continuous_eval(
        self,
        delay_secs: float | None = None,
        throttle_delay_secs: float | None = None,
        evaluate_checkpoint_only_once: bool = True,
        continuous_eval_predicate_fn: Callable[..., bool] | None = None,
        name: str = "continuous",
    ) -> None:
        """Evaluate the newest checkpoint again and again, until the training, which another process does, is over.

        Args:
          delay_secs: how long to wait before. Default: `eval_delay_secs`.
          throttle_delay_secs: between the beginnings of two evaluations. Default: `continuous_eval_throttle_secs`.
          evaluate_checkpoint_only_once: whether a checkpoint is evaluated once.
          continuous_eval_predicate_fn: called with the metrics, None at first, and, if it takes two arguments, the
            checkpoint; says whether to continue.
          name: of the evaluation, for its curves.

        Raises:
          ValueError: the predicate is not a function.
        """
        self._continuous_eval(
            self._eval_input_fn,
            name,
            delay_secs,
            throttle_delay_secs,
            evaluate_checkpoint_only_once,
            continuous_eval_predicate_fn,
        )

    def continuous_eval_on_train_data(
        self,
        delay_secs: float | None = None,
        throttle_delay_secs: float | None = None,
        continuous_eval_predicate_fn: Callable[..., bool] | None = None,
        name: str = "continuous_on_train_data",
    ) -> None:
        """Call `continuous_eval` on the input of the training."""
        self._continuous_eval(
            self._train_input_fn, name, delay_secs, throttle_delay_secs, True, continuous_eval_predicate_fn
        )

    def _continuous_eval(
        self,
        input_fn: Any,
        name: str,
        delay_secs: float | None,
        throttle_secs: float | None,
        only_once: bool,
        predicate: Callable[..., bool] | None,
    ) -> None:
        def again(prefix: str) -> Any:
            metrics = self._evaluated(prefix, name, input_fn)
            self._maybe_export(metrics, checkpoint_path=prefix)
            return metrics

        evaluation = ContinuousEvaluation(
            self._once(name, input_fn),
            self._estimator.model_dir,
            self._eval_delay_secs if delay_secs is None else delay_secs,
            self._continuous_eval_throttle_secs if throttle_secs is None else throttle_secs,
            self._train_steps,
            predicate,
            None if only_once else again,
        )
        with self._waiting.listening():
            evaluation.run(self._waiting)

    def train_and_evaluate(self) -> tuple[Any, Any]:
        """Train, and evaluate each new checkpoint between two steps, as often as `min_eval_frequency` allows.

        Returns:
          The metrics of the last evaluation, and what its exports gave.
        """
        if self._checkpoint_and_export and not self._core_estimator_used:
            raise ValueError("`checkpoint_and_export` needs a `trainerd.Estimator`.")
        once = self._once(None, self._eval_input_fn, exports=self._checkpoint_and_export)
        hooks, listeners = self._evaluating(once)
        self._train(0, hooks, listeners)
        newest = newest_checkpoint(self._estimator.model_dir)
        if newest is None:
            metrics = self._evaluated(None, None, self._eval_input_fn)
            return metrics, self._maybe_export(metrics)
        with self._waiting.listening():
            last = once(newest, exports=True)
            self._waiting.check()
        return last.metrics, last.exports

    def _evaluating(self, once: OncePerCheckpoint) -> tuple[list[Any], list[Any]]:
        """Return the hooks and the listeners that evaluate new checkpoints."""
        if self._checkpoint_and_export:
            return [], [NewCheckpointListener(once, Throttle(with_first=True))]
        config = self._estimator.config
        saves = not self._core_estimator_used or bool(config.save_checkpoints_secs or config.save_checkpoints_steps)
        if not self._min_eval_frequency or not saves:
            return [], []
        throttle = Throttle(self._check_interval_secs, self._min_eval_frequency)
        return [NewCheckpointHook(once, self._estimator.model_dir, throttle)], []

    def local_run(self) -> tuple[Any, Any]:
        """Call `train_and_evaluate` with `local_eval_frequency`. Deprecated."""
        warnings.warn(_LOCAL_RUN, DeprecationWarning, stacklevel=2)
        before, self._min_eval_frequency = self._min_eval_frequency, self._local_eval_frequency or 0
        try:
            return self.train_and_evaluate()
        finally:
            self._min_eval_frequency = before

    def continuous_train_and_eval(
        self, continuous_eval_predicate_fn: Callable[..., bool] | None = None
    ) -> tuple[Any, Any]:
        """Train, evaluate and export in turns. The session and the input of the training stay open meanwhile.

        Args:
          continuous_eval_predicate_fn: called with the metrics, None at first; says whether to continue.

        Returns:
          The metrics of the last evaluation, and what its exports gave; (None, None) if there was none.

        Raises:
          ValueError: the predicate is not a function.
        """
        continues = as_predicate(continuous_eval_predicate_fn)
        once = self._once("one_pass", self._eval_input_fn)
        metrics, exports, newest = None, None, None
        self._keep_open(True)
        try:
            while continues(metrics, newest):
                if has_ended(metrics, self._train_steps):
                    tf1.logging.info("Stop training model as max steps reached")
                    break
                newest = newest_checkpoint(self._estimator.model_dir)
                steps = self._steps_left(step_of(newest))
                if steps and not self._is_due(newest, once):
                    tf1.logging.info("Training model for %s steps", steps)
                    self._call_train(self._train_monitors, self._saving_listeners, steps=steps)
                    newest = newest_checkpoint(self._estimator.model_dir)
                tf1.logging.info("Evaluating model now.")
                with self._waiting.listening():
                    metrics, exports = self._evaluated_and_exported(newest, once)
                    self._waiting.check()
        finally:
            self._keep_open(False)
        return metrics, exports

    def _evaluated_and_exported(self, newest: str | None, once: OncePerCheckpoint) -> tuple[Any, Any]:
        if newest is not None:
            last = once(newest)
            return last.metrics, last.exports
        metrics = self._evaluated(None, "one_pass", self._eval_input_fn)
        return metrics, self._maybe_export(metrics)

    def _is_due(self, newest: str | None, once: OncePerCheckpoint) -> bool:
        """Return whether this checkpoint ends an iteration, and a kill has prevented its evaluation or its export."""
        step = step_of(newest)
        ends = newest is not None and step > 0 and self._steps_left(step) == self._steps_left(0)
        return ends and (once.records.found(str(newest)) is None or once.is_unfinished(str(newest)))

    def _steps_left(self, step: int) -> int:
        """Return how many steps the present iteration still has.

        A run that was interrupted in an iteration ends it at the same step as one that was not.
        """
        steps = 1000
        if self._train_steps_per_iteration is not None:
            steps = self._train_steps_per_iteration
        elif self._train_steps is not None:
            steps = max(1, int(self._train_steps / 10))
        if self._train_steps is not None and step >= self._train_steps:
            return 0
        return steps - step % steps

    def _keep_open(self, keeps: bool) -> None:
        if self._core_estimator_used:
            self._estimator.keep_open(keeps)

    def run_std_server(self) -> None:
        """Run a `tf.distribute.Server` of the cluster forever, such as that of a parameter server.

        Raises:
          ValueError: the settings of the estimator have no cluster.
        """
        server.start(self._estimator.config).join()

    def test(self) -> Any:
        """Try the Experiment: one step, one evaluation, one export. Returns the metrics."""
        self._call_train(self._train_monitors, self._saving_listeners, steps=1)
        metrics = self._call_evaluate(None, "one_pass", self._eval_input_fn, steps=1, hooks=None)
        self._maybe_export(metrics)
        return metrics

    # ------------------------------------------------------------------ what they are made of

    def _once(self, name: str | None, input_fn: Any, *, exports: bool = True) -> OncePerCheckpoint:
        """Return an object that evaluates each checkpoint once, and exports it once."""
        return OncePerCheckpoint(
            Records(self._estimator.model_dir, name),
            lambda prefix: self._evaluated(prefix, name, input_fn),
            lambda metrics, prefix: self._maybe_export(metrics, checkpoint_path=prefix),
            exporters=lambda: [strategy.name for strategy in self._export_strategies],
            show=self._estimator.show_evaluated if self._core_estimator_used else lambda evaluated: None,
            exports=exports,
        )

    def _evaluated(self, prefix: str | None, name: str | None, input_fn: Any) -> Any:
        return self._call_evaluate(prefix, name, input_fn, steps=self._eval_steps, hooks=self._eval_hooks)

    def _call_train(
        self, hooks: list[Any], listeners: Any, *, steps: int | None = None, max_steps: int | None = None
    ) -> Any:
        given = {"input_fn": self._train_input_fn, "steps": steps, "max_steps": max_steps}
        if self._core_estimator_used:
            return self._estimator.train(hooks=hooks, saving_listeners=listeners, **given)
        if hasattr(self._estimator, "fit"):
            return self._estimator.fit(monitors=hooks, **given)
        return self._estimator.train(hooks=hooks, **given)

    def _call_evaluate(
        self, prefix: str | None, name: str | None, input_fn: Any, *, steps: int | None, hooks: Any
    ) -> Any:
        given = {"metrics": self._eval_metrics} if self._eval_metrics is not None else {}
        return self._estimator.evaluate(
            input_fn=input_fn, steps=steps, name=name, checkpoint_path=prefix, hooks=hooks, **given
        )

    def _maybe_export(self, eval_result: Any, checkpoint_path: str | None = None) -> list[Any]:
        """Export by every strategy. Returns what each gave."""
        base = os.path.join(os.fsencode(self._estimator.model_dir), b"export")  # noqa: PTH118  as TensorFlow's: bytes

        def export(strategy: ExportStrategy) -> Any:
            folder = os.path.join(base, os.fsencode(strategy.name))  # noqa: PTH118
            return strategy.export(self._estimator, folder, checkpoint_path=checkpoint_path, eval_result=eval_result)

        return export_by_each(self._export_strategies, export)
