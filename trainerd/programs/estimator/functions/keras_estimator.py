"""A compiled Keras model as an estimator, as `tf.keras.estimator.model_to_estimator` made one."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from trainerd.errors import EntryError
from trainerd.job.definition import Job
from trainerd.programs.estimator.functions.job_estimator import JobEstimator, loaded
from trainerd.programs.estimator.graph.prediction import examples
from trainerd.programs.estimator.model_fn import ModeKeys
from trainerd.programs.estimator.run_config import RunConfig
from trainerd.sessions.keras.job_checks import has_strategy, require_trainable
from trainerd.sessions.keras.train_step import flat, step_of


class KerasEstimator(JobEstimator):
    """Trains, evaluates, predicts with and exports a compiled Keras model.

    Input functions return a `tf.data.Dataset` of what `model.fit` takes. There are no epochs: metrics of the training
    are those of one step, and callbacks are not called.

    Args:
      keras_model: the model, compiled.
      model_dir, config: see `BaseEstimator`.

    Raises:
      ValueError: the model is not compiled, runs eagerly, or is not on TensorFlow.
    """

    def __init__(
        self, keras_model: keras.Model, model_dir: str | os.PathLike[str] | None = None, config: RunConfig | None = None
    ) -> None:
        try:
            require_trainable(keras_model, "KerasEstimator")
            if has_strategy(keras_model):
                raise EntryError(
                    "KerasEstimator: the model was made under a tf.distribute strategy. Make it outside of "
                    "`strategy.scope()`: an Estimator trains it on one device."
                )
        except EntryError as error:
            raise ValueError(str(error)) from None
        if keras_model.run_eagerly:
            raise ValueError("KerasEstimator trains in the graph. Compile the model without run_eagerly=True.")
        self._model = keras_model
        super().__init__(Job(self._step(), state={"model": keras_model}), model_dir, config)

    def _step(self) -> Callable[[Any], Any]:
        """Return the model's own step. Its metrics are those of this step alone."""
        step = step_of(self._model)

        def train_step(data: Any) -> Any:
            self._model.reset_metrics()
            return step(data)

        return train_step

    def _job_on(self, input_fn: Any) -> Job:
        if input_fn is None:
            raise ValueError("the training of a Keras model needs an input function.")
        return super()._job_on(input_fn)

    def _evaluation(self, input_fn: Any, steps: int | None) -> Callable[[], Mapping[str, Any]]:
        if input_fn is None:
            raise ValueError("the evaluation of a Keras model needs an input function.")

        def evaluate() -> Mapping[str, Any]:
            dataset = self._dataset(input_fn, ModeKeys.EVAL)
            found = flat(self._model.evaluate(dataset, steps=steps, verbose=0, return_dict=True))
            return {name: float(value) for name, value in found.items() if np.ndim(value) == 0}

        return evaluate

    def predict(
        self,
        input_fn: Callable[..., Any],
        predict_keys: Sequence[str] | None = None,
        hooks: Sequence[tf.compat.v1.train.SessionRunHook] | None = None,
        checkpoint_path: str | None = None,
        yield_single_examples: bool = True,
    ) -> Iterator[Any]:
        """Predict with a checkpoint, until the input ends. The model has the checkpoint's values meanwhile.

        Args:
          input_fn: the features; labels that come with them are left out.
          predict_keys: which of the model's outputs. Default: all.
          hooks: None: they are for graphs.
          checkpoint_path: the prefix. Default: the newest; without one, a new model.
          yield_single_examples: whether each example is yielded, or each batch.

        Yields:
          A dict of the name of an output to its values.

        Raises:
          ValueError: there are no such outputs, or there are hooks.
        """
        if hooks:
            raise ValueError("hooks of predictions are for graphs: leave them out.")
        path = self._checkpoint(checkpoint_path, "predict")
        with loaded(self._job.state, path):
            for element in self._dataset(input_fn, ModeKeys.PREDICT):
                found = self._outputs(element[0] if isinstance(element, tuple) else element)
                if predict_keys:
                    if not set(predict_keys) & set(found):
                        raise ValueError(f"Expected to run at least one output from {list(found)}, got {predict_keys}.")
                    found = {name: value for name, value in found.items() if name in predict_keys}
                yield from examples(found) if yield_single_examples else (found,)

    def _outputs(self, inputs: Any) -> dict[str, Any]:
        """Return the model's outputs of one batch, by name."""
        given = self._model.predict_on_batch(inputs)
        if isinstance(given, Mapping):
            return dict(given)
        values = given if isinstance(given, list | tuple) else [given]
        names = getattr(self._model, "output_names", None) or [f"output_{number + 1}" for number in range(len(values))]
        return dict(zip(names, values, strict=True))

    def _export(self, folder: Path) -> None:
        self._model.export(str(folder), verbose=False)
