"""`trainerd.Estimator`: the methods, their arguments and their errors are those of `tf.estimator.Estimator`."""

from __future__ import annotations

import contextlib
import copy
import math
import os
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Self

import tensorflow as tf

from trainerd.estimator import prediction
from trainerd.estimator.blueprint import Blueprint
from trainerd.estimator.checkpoints import newest_checkpoint, require_whole, step_of
from trainerd.estimator.evaluation.curves import EvaluationWriter
from trainerd.estimator.evaluation.graph import EvaluationGraphs
from trainerd.estimator.export.saved_model import SavedModel
from trainerd.estimator.hooks import CheckpointHook, checked_hooks, checked_listeners
from trainerd.estimator.model_fn import ModeKeys, call_model_fn, require_model_fn
from trainerd.estimator.run_config import RunConfig, TaskType
from trainerd.estimator.training import Extras, Training
from trainerd.estimator.trial import graph_job
from trainerd.estimator.warm_start import as_settings
from trainerd.job.definition import GraphJob
from trainerd.managed.host import hosted_logdir, hosted_phase, hosted_tell
from trainerd.rundir.state import Evaluations, Phase

tf1 = tf.compat.v1


class Estimator:
    """Trains, evaluates, predicts with and exports a model that a `model_fn` builds in a TensorFlow 1 graph.

    It trains in a `trainerd.MonitoredTrainingSession`: a pause by signal or file, durable checkpoints of one step each,
    an input that goes on in mid-epoch.

    One class, since TensorFlow's is one, and programs derive from it.

    Args:
      model_fn: called with features and, as it takes them, labels, mode, params and config; returns an EstimatorSpec.
      model_dir: the run directory. Default: that of `config`, or the daemon's, or a temporary one.
      config: a RunConfig.
      params: hyperparameters for the model_fn and the input functions.
      warm_start_from: a checkpoint, or WarmStartSettings, that a new model begins with.

    Raises:
      ValueError: the model_fn takes other arguments; or `model_dir` and that of `config` differ.
    """

    _keeps_training = False
    _training: Training | None = None
    _trained_on: Callable[..., Any] | None = None  # the input function of the last training of this process

    def __init__(
        self,
        model_fn: Callable[..., Any],
        model_dir: str | os.PathLike[str] | None = None,
        config: RunConfig | None = None,
        params: Any = None,
        warm_start_from: Any = None,
    ) -> None:
        require_model_fn(model_fn, params)
        self._config = _with_model_dir(config, model_dir)
        self._params = copy.deepcopy(params) if params is not None else {}
        self._blueprint = Blueprint(
            model_fn, self._params, self._config, str(self._config.model_dir), as_settings(warm_start_from)
        )
        self._evaluations = EvaluationWriter()
        self._graphs = EvaluationGraphs()
        said = {name: value for name, value in vars(self._config).items() if name != "session_config"}
        tf1.logging.info("Using config: %s", said)

    # ------------------------------------------------------------------ what it is

    @property
    def model_dir(self) -> str:
        """The run directory."""
        return self._blueprint.model_dir

    @property
    def config(self) -> RunConfig:
        """A copy of the settings."""
        return copy.copy(self._config)

    @property
    def params(self) -> Any:
        """A copy of the hyperparameters."""
        return copy.deepcopy(self._params)

    @property
    def model_fn(self) -> Callable[..., Any]:
        """The model_fn, with the hyperparameters: a function of features, labels, mode and config."""

        def public_model_fn(features: Any, labels: Any, mode: str, config: Any) -> Any:
            return call_model_fn(self._blueprint.model_fn, features, labels, mode, self.params, config)

        return public_model_fn

    def eval_dir(self, name: str | None = None) -> str:
        """The folder for the curves of an evaluation."""
        return str(Path(self.model_dir, f"eval_{name}" if name else "eval"))

    def latest_checkpoint(self) -> str | None:
        """The prefix of the newest checkpoint that verifies; None if there is none."""
        return newest_checkpoint(self.model_dir)

    def get_variable_names(self) -> list[str]:
        """The names of what the newest checkpoint holds.

        Raises:
          ValueError: there is no checkpoint.
        """
        names = [name for name, _ in tf.train.list_variables(self._required_checkpoint())]
        return [name for name in names if not name.startswith("trainerd/")]

    def get_variable_value(self, name: str) -> Any:
        """The value of a variable in the newest checkpoint, as an array.

        Raises:
          ValueError: there is no checkpoint.
        """
        return tf.train.load_variable(self._required_checkpoint(), name)

    def _required_checkpoint(self) -> str:
        found = self.latest_checkpoint()
        if found is None:
            raise ValueError(f"Couldn't find trained model at {self.model_dir}.")
        return found

    # ------------------------------------------------------------------ training

    def train(
        self,
        input_fn: Callable[..., Any],
        hooks: Sequence[Any] | None = None,
        steps: int | None = None,
        max_steps: int | None = None,
        saving_listeners: Sequence[Any] | None = None,
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
            goes_on = training.run(last)
            if goes_on and self._keeps_training:
                training.save()
            else:
                self._end_training()
        return self

    def _begun(self, input_fn: Callable[..., Any], extras: Extras, max_steps: int | None) -> Training | None:
        """A training that is open, or a new one; None if the model has had its steps."""
        made_for = (input_fn, tuple(extras.hooks), tuple(extras.listeners))
        if self._training is not None and self._training.made_for != made_for:
            self._end_training()
        if self._training is None:
            if max_steps is not None and max_steps <= step_of(self.latest_checkpoint()):
                tf1.logging.info("Skipping training since max_steps has already saved.")
                return None
            is_another = self._trained_on is not None and self._trained_on is not input_fn
            self._training = training = Training(self._blueprint, input_fn, extras, begins_anew=is_another)
            self._trained_on = input_fn
            try:
                training.open()
            except BaseException:
                self._training = None
                raise
        return self._training

    def keep_open(self, keeps: bool) -> None:
        """Whether `train` keeps its session and its input from one call to the next. If not, they are closed."""
        self._keeps_training = keeps
        if not keeps:
            self._end_training()

    def _end_training(self) -> None:
        training, self._training = self._training, None
        if training is not None and training.is_open:
            training.close()

    @property
    def is_paused(self) -> bool:
        """Whether the training that is open was told to pause. While an evaluation runs beside it, this is a boundary
        of the training: a requested checkpoint is made."""
        return self._training is not None and self._training.look()

    # ------------------------------------------------------------------ evaluation and prediction

    def evaluate(
        self,
        input_fn: Callable[..., Any],
        steps: int | None = None,
        hooks: Sequence[Any] | None = None,
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
            given = checked_hooks(hooks)
            graph = self._graphs.of(self._blueprint, input_fn, hooks=bool(given), is_new=path is None)
            found = graph.evaluate(steps, given, path, lambda: self.is_paused)
        self._evaluations.write(self.eval_dir(name), found, path)
        return found

    def _evaluating(self) -> contextlib.AbstractContextManager[None]:
        """Show that an evaluation is under way: of the training that waits for it, or of the daemon."""
        if self._training is not None and self._training.session is not None:
            return self._training.session.evaluating()  # type: ignore[no-any-return]
        return hosted_phase(Phase.EVALUATING)

    def tell_evaluated(self, evaluated: Evaluations) -> None:
        """Show in `trainerd status` what was evaluated so far."""
        if self._training is not None and self._training.session is not None:
            self._training.session.tell_evaluated(evaluated)
        else:
            hosted_tell(evaluations=evaluated)

    def graph_job(self, train_input_fn: Callable[..., Any], eval_input_fn: Any, eval_steps: int | None) -> GraphJob:
        """Its training as a job, to try it. The evaluation reads a checkpoint of the job's session."""
        return graph_job(self._blueprint, train_input_fn, eval_input_fn, eval_steps)

    def predict(
        self,
        input_fn: Callable[..., Any],
        predict_keys: Sequence[str] | None = None,
        hooks: Sequence[Any] | None = None,
        checkpoint_path: str | None = None,
        yield_single_examples: bool = True,
    ) -> Iterator[Any]:
        """Predict with a checkpoint, until the input ends.

        Args:
          input_fn: the features.
          predict_keys: which of the predictions. Default: all.
          hooks: `SessionRunHook`s.
          checkpoint_path: the prefix. Default: the newest; without one, a new model.
          yield_single_examples: whether each example is yielded, or each batch.

        Yields:
          A prediction, or a dict of name to prediction.

        Raises:
          ValueError: there are no such predictions, or they are of different lengths.
        """
        yield from prediction.predict(
            self._blueprint,
            input_fn,
            keys=predict_keys,
            hooks=checked_hooks(hooks),
            checkpoint_path=self._checkpoint(checkpoint_path, "predict"),
            by_example=yield_single_examples,
        )

    def _checkpoint(self, given: str | None, what: str) -> str | None:
        """The checkpoint that was asked for, or the newest; verified."""
        if given is not None:
            require_whole(given)
            return given
        found = self.latest_checkpoint()
        if found is None:
            tf1.logging.info(
                "Could not find trained model in model_dir: %s, running initialization to %s.", self.model_dir, what
            )
        return found

    # ------------------------------------------------------------------ export

    def export_saved_model(
        self,
        export_dir_base: str | bytes | os.PathLike[str],
        serving_input_receiver_fn: Callable[[], Any],
        assets_extra: Mapping[str, str] | None = None,
        as_text: bool = False,
        checkpoint_path: str | None = None,
        experimental_mode: str = ModeKeys.PREDICT,
    ) -> bytes:
        """Write a checkpoint as a SavedModel.

        Args:
          export_dir_base: the folder; the export is one below it, named by the time.
          serving_input_receiver_fn: returns a ServingInputReceiver.
          assets_extra: the path below assets.extra to the file that is copied there.
          as_text: whether the graph is written as text.
          checkpoint_path: the prefix. Default: the newest.
          experimental_mode: only `ModeKeys.PREDICT`.

        Returns:
          The path of the export, as bytes.

        Raises:
          ValueError: there is no checkpoint; or the model cannot be exported.
          StorageError: it cannot be written.
        """
        if serving_input_receiver_fn is None:
            raise ValueError("An input_receiver_fn must be defined.")
        if experimental_mode != ModeKeys.PREDICT:
            raise ValueError(f"experimental_mode {experimental_mode!r}: only ModeKeys.PREDICT can be exported.")
        path = checkpoint_path or self._required_checkpoint()
        require_whole(path)
        base = Path(os.fsdecode(export_dir_base))
        model = SavedModel(self._blueprint, serving_input_receiver_fn, path, assets_extra, as_text)
        return os.fsencode(model.write_below(base))

    def export_savedmodel(
        self,
        export_dir_base: str | bytes | os.PathLike[str],
        serving_input_receiver_fn: Callable[[], Any],
        assets_extra: Mapping[str, str] | None = None,
        as_text: bool = False,
        checkpoint_path: str | None = None,
        strip_default_attrs: bool = True,
    ) -> bytes:
        """As `export_saved_model`, by its name in TensorFlow 1. Default attributes are always left out."""
        return self.export_saved_model(
            export_dir_base, serving_input_receiver_fn, assets_extra, as_text, checkpoint_path
        )


def _extras(hooks: Sequence[Any] | None, listeners: Sequence[Any] | None) -> Extras:
    """Hooks and listeners; hooks that only wait for checkpoints are listeners."""
    given = checked_hooks(hooks)
    waiting = [hook.listener for hook in given if isinstance(hook, CheckpointHook)]
    others = [hook for hook in given if not isinstance(hook, CheckpointHook)]
    return Extras(others, [*checked_listeners(listeners), *waiting])


def _with_model_dir(config: RunConfig | None, model_dir: str | os.PathLike[str] | None) -> RunConfig:
    """The settings, with a folder."""
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
    return found.replace(model_dir=path)
