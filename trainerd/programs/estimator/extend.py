"""Functions that build on another model: metrics added to an Estimator, and logit functions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import tensorflow as tf

from trainerd.programs.estimator.arguments import names_of_arguments, taken_by
from trainerd.programs.estimator.estimator import Estimator
from trainerd.programs.estimator.model_fn import ModeKeys

_METRIC_ARGUMENTS = {"features", "labels", "predictions", "config"}


def add_metrics(estimator: Estimator, metric_fn: Callable[..., dict[str, Any]]) -> Estimator:
    """Return an Estimator of the same model and run directory whose evaluations have more metrics.

    Args:
      estimator: the Estimator.
      metric_fn: called with those of features, labels, predictions and config that it takes; returns metrics as
        `EstimatorSpec.eval_metric_ops` has them. They replace metrics of the same name.

    Raises:
      ValueError: `metric_fn` takes other arguments.
    """
    if unknown := sorted(names_of_arguments(metric_fn) - _METRIC_ARGUMENTS):
        raise ValueError(f"metric_fn ({metric_fn}) has following not expected args: {unknown}")

    def model_fn(features: Any, labels: Any, mode: str, config: Any) -> Any:
        spec = estimator.model_fn(features, labels, mode, config)
        if mode != ModeKeys.EVAL:
            return spec
        given = taken_by(metric_fn, features=features, labels=labels, predictions=spec.predictions, config=config)
        return spec._replace(eval_metric_ops=spec.eval_metric_ops | metric_fn(**given))

    return Estimator(model_fn, config=estimator.config, warm_start_from=estimator.warm_start_from)


def call_logit_fn(logit_fn: Callable[..., Any], features: Any, mode: str, params: Any, config: Any) -> Any:
    """Call a logit function with those of the arguments that it takes.

    Returns:
      A tensor, or a dict of name to tensor.

    Raises:
      ValueError: it returns something else.
    """
    logits = logit_fn(features=features, **taken_by(logit_fn, mode=mode, params=params, config=config))
    named = logits if isinstance(logits, dict) else {"": logits}
    if not all(isinstance(name, str) and isinstance(value, tf.Tensor) for name, value in named.items()):
        raise ValueError(
            f"logit_fn should return a Tensor or a dictionary mapping strings to Tensors. logit_fn: {logit_fn}"
        )
    return logits
