"""`trainerd.train_and_evaluate`: what `tf.estimator.train_and_evaluate` was."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import tensorflow as tf

from trainerd.checkpoints.format.reader import newest_checkpoint
from trainerd.job.definition import GraphJob, Job, Scheduled
from trainerd.programs.estimator.checkpoints import step_of
from trainerd.programs.estimator.run_config import TaskType
from trainerd.programs.estimator.waiting import Waiting
from trainerd.programs.experiment import server
from trainerd.programs.experiment.adapters import as_own_estimator
from trainerd.programs.experiment.continuous import ContinuousEvaluation
from trainerd.programs.experiment.export.exporters import export_by_each
from trainerd.programs.experiment.new_checkpoints import NewCheckpointListener, Throttle
from trainerd.programs.experiment.records import OncePerCheckpoint, Records
from trainerd.programs.experiment.specs import EvalSpec, TrainSpec

tf1 = tf.compat.v1

_DELAY_SECS, _MOST_SECS = 5, 60  # for each worker before one, and at most


def train_and_evaluate(estimator: Any, train_spec: TrainSpec, eval_spec: EvalSpec) -> tuple[Any, Any]:
    """Train an estimator, evaluate its checkpoints, and export it.

    Without a cluster in TF_CONFIG, each new checkpoint is evaluated between two steps, as often as `throttle_secs` and
    `throttle_steps` allow, and the last one in any case. In a cluster, the task decides: chief and workers train, an
    evaluator evaluates, a parameter server serves.

    Args:
      estimator: what is trained.
      train_spec: the training.
      eval_spec: the evaluations.

    Returns:
      The metrics of the last evaluation, and what its exporters gave; (None, []) of a task in a cluster.

    Raises:
      TypeError: an argument has another type.
      ValueError: TF_CONFIG has a task that there is not, or a second evaluator.
      Paused: a pause was requested; everything is on disk, and the program ends with code 0.
    """
    return TrainAndEvaluate(estimator, train_spec, eval_spec).train_and_evaluate()


class TrainAndEvaluate(Scheduled):
    """An estimator with its specs.

    Args:
      estimator, train_spec, eval_spec: see `train_and_evaluate`.

    Raises:
      TypeError: an argument has another type.
    """

    def __init__(self, estimator: Any, train_spec: TrainSpec, eval_spec: EvalSpec) -> None:
        own = as_own_estimator(estimator)
        if own is None:
            raise TypeError(f"`estimator` must have type `tf.estimator.Estimator`, given {type(estimator)}")
        if not isinstance(train_spec, TrainSpec):
            raise TypeError(f"`train_spec` must have type `tf.estimator.TrainSpec`, given {type(train_spec)}")
        if not isinstance(eval_spec, EvalSpec):
            raise TypeError(f"`eval_spec` must have type `tf.estimator.EvalSpec`, given {type(eval_spec)}")
        self._estimator = own
        self._train_spec = train_spec
        self._eval_spec = eval_spec
        self._once = OncePerCheckpoint(
            Records(self._estimator.model_dir, eval_spec.name),
            self._evaluate,
            self._export,
            exporters=lambda: [exporter.name for exporter in eval_spec.exporters],
            show=own.show_evaluated,
        )

    schedules = ("run_chief", "run_evaluator", "run_local", "run_ps", "run_worker", "train_and_evaluate")
    train_nothing = frozenset({"run_evaluator", "run_ps"})

    @property
    def model_dir(self) -> str:  # type: ignore[override]
        """The run directory of the estimator."""
        return str(self._estimator.model_dir)

    def trial(self) -> Job | GraphJob:
        """See `Scheduled`."""
        return self._estimator.trial(self._train_spec.input_fn, self._eval_spec.input_fn, self._eval_spec.steps)

    def train_and_evaluate(self) -> tuple[Any, Any]:
        """Do the task of this process."""
        config = self._estimator.config
        if not config.cluster_spec.as_dict() and config.task_type != TaskType.EVALUATOR:
            return self.run_local()
        tasks = {
            TaskType.CHIEF: self.run_chief,
            TaskType.MASTER: self.run_chief,
            TaskType.WORKER: self.run_worker,
            TaskType.PS: self.run_ps,
            TaskType.EVALUATOR: self.run_evaluator,
        }
        if config.task_type not in tasks:
            raise ValueError(f"Task type {config.task_type} is not supported. Supported task types are {sorted(tasks)}")
        if config.task_type == TaskType.EVALUATOR and config.task_id > 0:
            raise ValueError(
                "For distributed training, there can only be one `evaluator` task (with task id 0). Given task id "
                f"{config.task_id}."
            )
        tasks[config.task_type]()
        return None, []

    def run_local(self) -> tuple[Any, Any]:
        """Train, and evaluate between two steps."""
        throttle = Throttle(self._eval_spec.throttle_secs, self._eval_spec.throttle_steps)
        self._train([NewCheckpointListener(self._once, throttle)])
        newest = newest_checkpoint(self._estimator.model_dir)
        if newest is None:
            return None, []
        waiting = Waiting()
        with waiting.listening():
            last = self._once(newest)
            waiting.check()
        return last.metrics, last.exports

    def run_chief(self) -> None:
        """Train, as the task that saves; a master evaluates too."""
        server.start_to_train(self._estimator.config)
        if self._estimator.config.task_type == TaskType.MASTER:
            self.run_local()
        else:
            self._train([])

    def run_worker(self) -> None:
        """Train, when the workers before have begun."""
        server.start_to_train(self._estimator.config)
        config = self._estimator.config
        most = config.experimental_max_worker_delay_secs
        secs = min(_MOST_SECS if most is None else most, (config.task_id + 1) * _DELAY_SECS)
        if secs > 0:
            tf1.logging.info("Waiting %d secs before starting training.", secs)
            waiting = Waiting()
            with waiting.listening():
                waiting.sleep(secs)
        self._train([])

    def run_ps(self) -> None:
        """Serve forever."""
        server.start(self._estimator.config).join()

    def run_evaluator(self) -> None:
        """Evaluate what another process trains, until that is over."""
        spec, waiting = self._eval_spec, Waiting()
        evaluation = ContinuousEvaluation(
            self._once, self.model_dir, spec.start_delay_secs, spec.throttle_secs, self._train_spec.max_steps
        )
        with waiting.listening():
            evaluation.run(waiting)

    def _train(self, listeners: list[Any]) -> None:
        spec = self._train_spec
        self._estimator.train(
            input_fn=spec.input_fn,
            max_steps=spec.max_steps,
            hooks=list(spec.hooks),
            saving_listeners=[*spec.saving_listeners, *listeners],
        )

    def _evaluate(self, prefix: str) -> Any:
        spec = self._eval_spec
        return self._estimator.evaluate(
            input_fn=spec.input_fn, steps=spec.steps, name=spec.name, checkpoint_path=prefix, hooks=spec.hooks
        )

    def _export(self, metrics: Any, prefix: str) -> list[Any]:
        """Export by every exporter. Returns what each gave."""
        last = self._train_spec.max_steps
        is_final = last is not None and step_of(prefix) >= last
        return export_by_each(
            self._eval_spec.exporters,
            lambda exporter: exporter.export(
                estimator=self._estimator,
                export_path=str(Path(self._estimator.model_dir, "export", exporter.name)),
                checkpoint_path=prefix,
                eval_result=metrics,
                is_the_final_export=is_final,
            ),
        )
