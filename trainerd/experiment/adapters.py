"""The kinds of estimators that an Experiment takes."""

from __future__ import annotations

from typing import Any

import keras

from trainerd.estimator.base import BaseEstimator
from trainerd.estimator.functions.job_estimator import JobEstimator
from trainerd.estimator.functions.keras_estimator import KerasEstimator
from trainerd.job.definition import Job


def as_estimator(given: Any) -> Any:
    """An estimator for what an Experiment was given.

    Raises:
      ValueError: it cannot train, or cannot evaluate.
    """
    if isinstance(given, BaseEstimator):
        return given
    if isinstance(given, keras.Model):
        return KerasEstimator(given)
    if isinstance(given, Job):
        return JobEstimator(given)
    if not callable(getattr(given, "evaluate", None)) or not hasattr(given, "model_dir"):
        raise ValueError("`estimator` must implement `tf.contrib.learn.Evaluable` or `tf.estimator.Estimator`.")
    if not (callable(getattr(given, "fit", None)) or callable(getattr(given, "train", None))):
        raise ValueError("`estimator` must implement `tf.contrib.learn.Trainable` or `tf.estimator.Estimator`.")
    return given
