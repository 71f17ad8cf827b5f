"""A line, as an Estimator learns it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf

import trainerd
from trainerd.programs.estimator.export.saved_model import checkpoint_of_export

tf1 = tf.compat.v1

X = np.arange(20, dtype="float32").reshape(20, 1) / 20
Y = 3 * X + 1


def model_fn(features: Any, labels: Any, mode: str, params: Any) -> Any:
    """A line."""
    x = features["x"] if isinstance(features, dict) else features
    a, b = tf1.get_variable("a", initializer=0.0), tf1.get_variable("b", initializer=0.0)
    found = {"y": a * x + b}
    if mode == trainerd.ModeKeys.PREDICT:
        return trainerd.EstimatorSpec(mode, predictions=found)
    loss = tf1.losses.mean_squared_error(labels, found["y"])
    metrics = {"error": tf1.metrics.mean_absolute_error(labels, found["y"])}
    step = tf1.train.get_global_step()
    train_op = tf1.train.GradientDescentOptimizer(params["rate"]).minimize(loss, global_step=step)
    return trainerd.EstimatorSpec(mode, loss=loss, train_op=train_op, eval_metric_ops=metrics)


def whole() -> tf.data.Dataset:
    """The data, once."""
    return tf.data.Dataset.from_tensor_slices(({"x": X}, Y)).batch(5)


def endless() -> tf.data.Dataset:
    """The data, for ever, shuffled."""
    return tf.data.Dataset.from_tensor_slices(({"x": X}, Y)).shuffle(20, seed=1).repeat().batch(5)


def serving_input() -> Any:
    """Fed with x."""
    fed = {"x": tf1.placeholder(tf.float32, [None, 1])}
    return trainerd.ServingInputReceiver(fed, fed)


def make(folder: Path, fn: Callable[..., Any] = model_fn, every: int | None = 10, **more: Any) -> Any:
    config = trainerd.RunConfig(str(folder), save_checkpoints_steps=every, tf_random_seed=1, save_summary_steps=10)
    return trainerd.Estimator(fn, config=config, params={"rate": 0.1} if fn is model_fn else None, **more)


def step_of(export: Path) -> Any:
    return checkpoint_of_export(export)["step"]


def value(estimator: Any) -> float:
    return float(estimator.get_variable_value("a"))
