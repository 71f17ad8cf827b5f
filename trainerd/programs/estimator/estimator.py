"""`trainerd.Estimator`: the methods, their arguments and their errors are those of `tf.estimator.Estimator`."""

from __future__ import annotations

import copy
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import tensorflow as tf

from trainerd.checkpoints.format.reader import newest_checkpoint
from trainerd.job.definition import GraphJob
from trainerd.programs.estimator.base import BaseEstimator
from trainerd.programs.estimator.checkpoints import require_whole
from trainerd.programs.estimator.evaluation.graph import EvaluationGraphs
from trainerd.programs.estimator.export.saved_model import write_below, write_graph
from trainerd.programs.estimator.graph import prediction
from trainerd.programs.estimator.graph.blueprint import Blueprint
from trainerd.programs.estimator.graph.training import GraphTraining
from trainerd.programs.estimator.graph.trial import graph_job
from trainerd.programs.estimator.graph.warm_start import as_settings
from trainerd.programs.estimator.hooks import checked_hooks
from trainerd.programs.estimator.model_fn import ModeKeys, call_model_fn, require_model_fn
from trainerd.programs.estimator.run_config import RunConfig
from trainerd.programs.estimator.training import Extras


class Estimator(BaseEstimator):
    """Trains, evaluates, predicts with and exports a model that a `model_fn` builds in a TensorFlow 1 graph.

    Its checkpoints, its training and its evaluations are those of `BaseEstimator`.

    Args:
      model_fn: called with features and, as it takes them, labels, mode, params and config; returns an EstimatorSpec.
      model_dir: the run directory. Default: that of `config`, or the daemon's, or a temporary one.
      config: a RunConfig.
      params: hyperparameters for the model_fn and the input functions.
      warm_start_from: a checkpoint, or WarmStartSettings, that a new model begins with.

    Raises:
      ValueError: the model_fn takes other arguments; or `model_dir` and that of `config` differ.
    """

    def __init__(
        self,
        model_fn: Callable[..., Any],
        model_dir: str | os.PathLike[str] | None = None,
        config: RunConfig | None = None,
        params: Any = None,
        warm_start_from: Any = None,
    ) -> None:
        super().__init__(model_dir, config)
        require_model_fn(model_fn, params)
        self._params = copy.deepcopy(params) if params is not None else {}
        self._blueprint = Blueprint(model_fn, self._params, self._config, as_settings(warm_start_from))
        self._graphs = EvaluationGraphs()

    @property
    def warm_start_from(self) -> Any:
        """The WarmStartSettings that a new model begins with; None for none."""
        return self._blueprint.warm_start

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

    def _new_training(self, input_fn: Any, extras: Extras, *, restarts_input: bool) -> GraphTraining:
        return GraphTraining(self._blueprint, input_fn, extras, restarts_input=restarts_input)

    def _measured(self, input_fn: Any, steps: int | None, hooks: Sequence[Any], path: str | None) -> dict[str, Any]:
        graph = self._graphs.of(self._blueprint, input_fn, hooks=bool(hooks), is_new=path is None)
        return graph.evaluate(steps, hooks, path, lambda: self.is_paused)

    def trial(self, train_input_fn: Any, eval_input_fn: Any, eval_steps: int | None) -> GraphJob:
        """Return its training as a job, to try it. The evaluation reads a checkpoint of the job's session."""
        return graph_job(self._blueprint, train_input_fn, eval_input_fn, eval_steps)

    # ------------------------------------------------------------------ prediction

    def predict(
        self,
        input_fn: Callable[..., Any],
        predict_keys: Sequence[str] | None = None,
        hooks: Sequence[tf.compat.v1.train.SessionRunHook] | None = None,
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
          checkpoint_path: the prefix. Default: the newest; without one, that of `warm_start_from`.
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
        path = checkpoint_path or self._checkpoint_to_export()
        require_whole(path)

        def write(folder: Path) -> None:
            write_graph(folder, self._blueprint, serving_input_receiver_fn, path, as_text=as_text)

        return os.fsencode(write_below(Path(os.fsdecode(export_dir_base)), path, write, assets_extra))

    def _checkpoint_to_export(self) -> str:
        """Return the newest checkpoint; of a model that was never trained, the one that it begins with."""
        warm = self._blueprint.warm_start
        if warm is None or self.latest_checkpoint() is not None:
            return super()._checkpoint_to_export()
        path = warm.ckpt_to_initialize_from
        return (newest_checkpoint(path) if Path(path).is_dir() else path) or super()._checkpoint_to_export()

    def export_savedmodel(
        self,
        export_dir_base: str | bytes | os.PathLike[str],
        serving_input_receiver_fn: Callable[[], Any],
        assets_extra: Mapping[str, str] | None = None,
        as_text: bool = False,
        checkpoint_path: str | None = None,
        strip_default_attrs: bool = True,
    ) -> bytes:
        """Call `export_saved_model`, by its name in TensorFlow 1. Default attributes are always left out."""
        return self.export_saved_model(
            export_dir_base, serving_input_receiver_fn, assets_extra, as_text, checkpoint_path
        )
