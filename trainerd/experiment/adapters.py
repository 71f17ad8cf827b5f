"""The kinds of estimators that an Experiment takes."""

from __future__ import annotations

from typing import Any

from trainerd.estimator.estimator import Estimator


def as_estimator(given: Any) -> Any:
    """An estimator for what an Experiment was given.

    Raises:
      ValueError: it cannot train, or cannot evaluate.
    """
    if isinstance(given, Estimator):
        return given
    if not callable(getattr(given, "evaluate", None)) or not hasattr(given, "model_dir"):
        raise ValueError("`estimator` must implement `tf.contrib.learn.Evaluable` or `tf.estimator.Estimator`.")
    if not (callable(getattr(given, "fit", None)) or callable(getattr(given, "train", None))):
        raise ValueError("`estimator` must implement `tf.contrib.learn.Trainable` or `tf.estimator.Estimator`.")
    return given
