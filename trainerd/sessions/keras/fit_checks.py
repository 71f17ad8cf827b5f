"""Checks of `Supervise`: it refuses uses of the data by `fit` that it could not resume."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import tensorflow as tf

from trainerd.errors import UsageError
from trainerd.sessions.keras.fit_data import FitData
from trainerd.sessions.keras.job_checks import has_strategy


def require_position(data: FitData, model: Any, params: Mapping[str, Any]) -> None:
    """Require that an epoch of this data can be resumed.

    Args:
      data: what `supervise.data` was given.
      model: the compiled Keras model.
      params: what `fit` says of itself.

    Raises:
      UsageError: it cannot.
    """
    if has_strategy(model):
        raise UsageError(
            "the model was made under a tf.distribute strategy, which reads iterators of its own: give fit the dataset "
            "itself; an interrupted epoch then restarts."
        )
    if 0 <= data.size != params.get("steps"):
        raise UsageError(
            f"the data has {data.size} batches, and steps_per_epoch is {params.get('steps')}: fit "
            "begins the data again somewhere in an epoch, which cannot be gone on with. Give it data without an "
            "end: supervise.data(dataset.repeat())."
        )


def all_of_the_data(size: int) -> UsageError:
    """Return the error for a `steps_per_epoch` that is the data's own length."""
    return UsageError(
        f"steps_per_epoch is {size}, which is all of the data: leave it out. With it `fit` cuts the epoch short that "
        "comes after one that was gone on with."
    )


def other_data() -> UsageError:
    """Return the error for data that `fit` does not read from `supervise.data`."""
    return UsageError(
        "fit reads something that is made of supervise.data(...), and not that itself, so its position is not "
        "known. Make all of the dataset first, and what `class_weight` is for too, as sample weights in a `map`; "
        "then give supervise.data(dataset) to fit."
    )


def traced_step(model: Any, batch: Any) -> Any:
    """Return a step's trace, which makes all variables: in fit's first step it is too late to restore metrics.

    Args:
      model: the compiled Keras model.
      batch: the `tf.TypeSpec`s of a batch.

    Raises:
      UsageError: the step cannot be traced.
    """
    try:
        return tf.function(model.train_step, autograph=False).get_concrete_function(batch)
    except Exception as error:
        if not model.run_eagerly:
            raise
        raise UsageError(
            "the model's train_step runs eagerly alone and cannot be traced, which supervise.data needs to make "
            f"all variables before it restores them: {error}. Write it in TensorFlow's ops; or give fit the data "
            "itself; an interrupted epoch then restarts."
        ) from error
