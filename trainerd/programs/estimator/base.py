"""The base of trainerd's estimators: it trains, evaluates and reads the checkpoints of one run directory."""

from __future__ import annotations

import contextlib
import copy
import math
import os
import tempfile
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Self

import tensorflow as tf

from trainerd.checkpoints.contents.object_graph import GRAPH_KEY
from trainerd.checkpoints.format.reader import newest_checkpoint
from trainerd.job.definition import GraphJob, Job
from trainerd.programs.estimator.checkpoints import require_whole, step_of
from trainerd.programs.estimator.evaluation.curves import EvaluationWriter
from trainerd.programs.estimator.hooks import CheckpointHook, checked_hooks, checked_listeners
from trainerd.programs.estimator.run_config import RunConfig, TaskType, default_session_config
from trainerd.programs.estimator.training import Extras, Training
from trainerd.run.host import hosted_logdir, hosted_phase, hosted_tell
from trainerd.rundir.state import EvaluationSummary, Phase

tf1 = tf.compat.v1


class BaseEstimator(ABC):
    """Trains and evaluates a model.

    It trains in a `trainerd.MonitoredTrainingSession`: a pause by signal or file, durable checkpoints of one step each,
    an input that resumes in mid-epoch.

    One class, since TensorFlow's is one, and programs derive from it.

    Args:
      model_dir: the run directory. Default: that of `config`, or the daemon's, or a temporary one.
      config: a RunConfig.

    Raises:
      ValueError: `model_dir` and that of `config` differ.
    """

    _keeps_training = False
    _training: Training | None = None
    _trained_on: Callable[..., Any] | None = None  # the input function of the last training of this process

    def __init__(self, model_dir: str | os.PathLike[str] | None, config: RunConfig | None) -> None:
        self._config = _with_model_dir(config, model_dir)
        self._evaluations = EvaluationWriter()
        tf1.logging.info("Using config: %s", vars(self._config))

    # ------------------------------------------------------------------ what differs between kinds of models

    @abstractmethod
    def _new_training(self, input_fn: Any, extras: Extras, *, restarts_input: bool) -> Training:
        """Return a training that is not open yet."""

    @abstractmethod
    def _measured(self, input_fn: Any, steps: int | None, hooks: Sequence[Any], path: str | None) -> dict[str, Any]:
        """Return the metrics of a checkpoint; of a new model without one."""

    @abstractmethod
    def trial(self, train_input_fn: Any, eval_input_fn: Any, eval_steps: int | None) -> Job | GraphJob:
        """Return its training as a job, to check it, to prove it and to evaluate its past."""

    # ------------------------------------------------------------------ what it is

    @property
    def model_dir(self) -> str:
        """The run directory."""
        return str(self._config.model_dir)

    @property
    def config(self) -> RunConfig:
        """A copy of the settings."""
        return copy.copy(self._config)

    def eval_dir(self, name: str | None = None) -> str:
        """Return the folder for the curves of an evaluation."""
        return str(Path(self.model_dir, f"eval_{name}" if name else "eval"))

    def latest_checkpoint(self) -> str | None:
        """Return the prefix of the newest checkpoint that verifies; None if there is none."""
        return newest_checkpoint(self.model_dir)

    def get_variable_names(self) -> list[str]:
        """Return the names of the variables that the newest checkpoint holds.

        Raises:
          ValueError: there is no checkpoint.
        """
        types = tf.train.load_checkpoint(self._required_checkpoint()).get_variable_to_dtype_map()
        return sorted(
            name
            for name, dtype in types.items()
            if dtype != tf.variant and name != GRAPH_KEY and not name.startswith("trainerd/")
        )

    def get_variable_value(self, name: str) -> Any:
        """Return the value of a variable in the newest checkpoint, as an array.

        Raises:
          ValueError: there is no checkpoint.
        """
        return tf.train.load_variable(self._required_checkpoint(), name)

    def _required_checkpoint(self, missing: str = "Could not find trained model in model_dir:") -> str:
        found = self.latest_checkpoint()
        if found is None:
            raise ValueError(f"{missing} {self.model_dir}.")
        return found

    def _checkpoint_to_export(self) -> str:
        """Return the newest checkpoint.

        Raises:
          ValueError: there is none.
        """
        return self._required_checkpoint("Couldn't find trained model at")

    # ------------------------------------------------------------------ training

    def train(
        self,
        input_fn: Callable[..., Any] | None,
        hooks: Sequence[tf.compat.v1.train.SessionRunHook] | None = None,
        steps: int | None = None,
        max_steps: int | None = None,
        saving_listeners: Sequence[tf.compat.v1.train.CheckpointSaverListener] | None = None,
    ) -> Self:
        """Train the model, from the newest checkpoint on.

        Args:
          input_fn: returns a `tf.data.Dataset` of (features, labels), or the tensors of a batch.
          hooks: `SessionRunHook`s.
          steps: so many more. Default: until the input ends.
          max_steps: until this global step.
          saving_listeners: `CheckpointSaverListener`s.

        Returns:
          This Estimator.

        Raises:
          ValueError: `steps` and `max_steps` together, or one that is not positive.
          Paused: a pause was requested; the last step is on disk, and the program ends with code 0.
        """
        if self._config.task_type in (TaskType.EVALUATOR, TaskType.PS):
            raise ValueError(
                "Train has been called wrong configuration. Please use tf.estimator.train_and_evaluate which calls "
                f"proper API according to given configuration. Current configuration: {vars(self._config)}."
            )
        if steps is not None and max_steps is not None:
            raise ValueError("Can not provide both steps and max_steps.")
        for name, value in (("steps", steps), ("max_steps", max_steps)):
            if value is not None and value <= 0:
                raise ValueError(f"Must specify {name} > 0, given: {value}")
        training = self._begun(input_fn, _extras(hooks, saving_listeners), max_steps)
        if training is not None:
            last = training.step + steps if steps is not None else max_steps or math.inf
            continues = training.run(last)
            if continues and self._keeps_training:
                training.session.save_now("schedule")
            else:
                self._end_training()
        return self

    def _begun(self, input_fn: Callable[..., Any] | None, extras: Extras, max_steps: int | None) -> Training | None:
        """Return a training that is open, or a new one; None if the model has had its steps."""
        if self._training is not None and self._training.made_for != (input_fn, extras):
            self._end_training()
        if self._training is None:
            if max_steps is not None and max_steps <= step_of(self.latest_checkpoint()):
                tf1.logging.info("Skipping training since max_steps has already saved.")
                return None
            is_another = self._trained_on is not None and self._trained_on is not input_fn
            self._training = training = self._new_training(input_fn, extras, restarts_input=is_another)
            self._trained_on = input_fn
            try:
                training.open()
            except BaseException:
                self._training = None
                raise
        return self._training

    def keep_open(self, keeps: bool) -> None:
        """Set whether `train` keeps its session and its input from one call to the next. If not, they are closed."""
        self._keeps_training = keeps
        if not keeps:
            self._end_training()

    def _end_training(self) -> None:
        training, self._training = self._training, None
        if training is not None and training.is_open:
            training.close()

    @property
    def is_paused(self) -> bool:
        """True if the training that is open was asked to pause.

        While an evaluation runs beside it, this is a boundary of the training: a requested checkpoint is made.
        """
        return self._training is not None and self._training.serve()

    # ------------------------------------------------------------------ evaluation and prediction

    def evaluate(
        self,
        input_fn: Callable[..., Any] | None,
        steps: int | None = None,
        hooks: Sequence[tf.compat.v1.train.SessionRunHook] | None = None,
        checkpoint_path: str | None = None,
        name: str | None = None,
    ) -> dict[str, Any]:
        """Evaluate a checkpoint, in a graph and on an input of its own.

        Args:
          input_fn: the data.
          steps: how many batches. Default: all.
          hooks: `SessionRunHook`s.
          checkpoint_path: the prefix. Default: the newest; without one, a new model.
          name: of the evaluation, for its curves.

        Returns:
          The metrics by name, with `loss` and `global_step`.

        Raises:
          ValueError: `steps` is not positive, or the input has no batch.
          DataError: the checkpoint does not verify.
          Paused: a pause was requested.
        """
        if steps is not None and steps <= 0:
            raise ValueError(f"Must specify steps > 0, given: {steps}")
        path = self._checkpoint(checkpoint_path, "evaluate")
        with self._evaluating():
            found = self._measured(input_fn, steps, checked_hooks(hooks), path)
        self._evaluations.write(self.eval_dir(name), found, path)
        return found

    def _evaluating(self) -> contextlib.AbstractContextManager[None]:
        """Show that an evaluation is under way: of the training that waits for it, or of the daemon."""
        if self._training is not None and self._training.is_open:
            return self._training.session.evaluating()
        return hosted_phase(Phase.EVALUATING)

    def show_evaluated(self, evaluated: EvaluationSummary) -> None:
        """Show in `trainerd status` what was evaluated so far."""
        if self._training is not None and self._training.is_open:
            self._training.session.show_evaluated(evaluated)
        else:
            hosted_tell(evaluations=evaluated)

    def _checkpoint(self, given: str | None, what: str) -> str | None:
        """Return the checkpoint that was asked for, or the newest; verified."""
        if given is not None:
            require_whole(given)
            return given
        found = self.latest_checkpoint()
        if found is None:
            tf1.logging.info(
                "Could not find trained model in model_dir: %s, running initialization to %s.", self.model_dir, what
            )
        return found


def _extras(hooks: Sequence[Any] | None, listeners: Sequence[Any] | None) -> Extras:
    """Return the hooks and the listeners; hooks that only wait for checkpoints are listeners."""
    given = checked_hooks(hooks)
    waiting = [hook.listener for hook in given if isinstance(hook, CheckpointHook)]
    others = [hook for hook in given if not isinstance(hook, CheckpointHook)]
    return Extras(others, [*checked_listeners(listeners), *waiting])


def _with_model_dir(config: RunConfig | None, model_dir: str | os.PathLike[str] | None) -> RunConfig:
    """Return the settings, with a folder and a ConfigProto."""
    if config is not None and not isinstance(config, RunConfig):
        raise ValueError(f"config must be an instance of `RunConfig`, but provided {config}.")
    found = config or RunConfig()
    path = os.fspath(model_dir) if model_dir is not None else None
    if path is not None and found.model_dir is not None and path != found.model_dir:
        raise ValueError(
            "`model_dir` are set both in constructor and `RunConfig`, but with different values. In constructor: "
            f"'{path}', in `RunConfig`: '{found.model_dir}' "
        )
    path = path or found.model_dir or hosted_logdir()
    if path is None:
        path = tempfile.mkdtemp()
        tf1.logging.warning("Using temporary folder as model directory: %s", path)
    session_config = found.session_config or default_session_config()
    return found.replace(model_dir=path, session_config=session_config)
