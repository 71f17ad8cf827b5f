"""The kinds of estimators that an Experiment takes."""

from __future__ import annotations

from typing import Any

import keras

from trainerd.job.definition import Job
from trainerd.programs.estimator.base import BaseEstimator
from trainerd.programs.estimator.functions.job_estimator import JobEstimator
from trainerd.programs.estimator.functions.keras_estimator import KerasEstimator


def as_own_estimator(given: Any) -> BaseEstimator | None:
    """Return an estimator of trainerd, of a Keras model or of a Job; None for anything else."""
    if isinstance(given, BaseEstimator):
        return given
    if isinstance(given, keras.Model):
        return KerasEstimator(given)
    return JobEstimator(given) if isinstance(given, Job) else None


def as_estimator(given: Any) -> Any:
    """Return an estimator for what an Experiment was given.

    Raises:
      ValueError: it cannot train, or cannot evaluate.
    """
    if (own := as_own_estimator(given)) is not None:
        return own
    if not callable(getattr(given, "evaluate", None)) or not hasattr(given, "model_dir"):
        raise ValueError("`estimator` must implement `tf.contrib.learn.Evaluable` or `tf.estimator.Estimator`.")
    if not (callable(getattr(given, "fit", None)) or callable(getattr(given, "train", None))):
        raise ValueError("`estimator` must implement `tf.contrib.learn.Trainable` or `tf.estimator.Estimator`.")
    return given
