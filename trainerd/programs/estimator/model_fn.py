"""The result of a `model_fn`, as `tf.estimator.EstimatorSpec` was. Programs rely on its messages, TensorFlow's own."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple, Self

import tensorflow as tf

from trainerd.programs.estimator.arguments import names_of_arguments, taken_by
from trainerd.programs.estimator.export.outputs import outputs_of
from trainerd.programs.estimator.hooks import checked_hooks
from trainerd.programs.estimator.keras_layers import note_cure

tf1 = tf.compat.v1

_HOOKS = "All hooks must be SessionRunHook instances"
_ANOTHER_GRAPH = (
    '{0} with "{1}" must be from the default graph. Possible causes of this error include: \n\n'
    "1) {0} was created outside the context of the default graph.\n\n"
    '2) The object passed through to EstimatorSpec was not created in the most recent call to "model_fn".'
)


class ModeKeys:
    """The modes in which a `model_fn` is called."""

    TRAIN = "train"
    EVAL = "eval"
    PREDICT = "infer"


class _Fields(NamedTuple):
    mode: str
    predictions: Any
    loss: Any
    train_op: Any
    eval_metric_ops: Any
    export_outputs: Any
    training_chief_hooks: Any
    training_hooks: Any
    scaffold: Any
    evaluation_hooks: Any
    prediction_hooks: Any


class EstimatorSpec(_Fields):
    """The ops of a model in one mode.

    Args:
      mode: one of `ModeKeys`.
      predictions: a tensor, or a dict of name to tensor. Required to predict.
      loss: a tensor with one number. Required to train and to evaluate.
      train_op: the op of one step. Required to train.
      eval_metric_ops: name to (value, update op), or to a Keras metric that was updated. A value may be a structure
        of tensors.
      export_outputs: name to an output of `trainerd.programs.estimator.export.outputs`. Default: the predictions.
      training_chief_hooks, training_hooks, evaluation_hooks, prediction_hooks: `SessionRunHook`s.
      scaffold: a `tf.compat.v1.train.Scaffold`. Default: a new one.

    Raises:
      ValueError: what the mode needs is missing, or is of another graph.
      TypeError: an argument has another type.
    """

    def __new__(
        cls,
        mode: str,
        predictions: tf.Tensor | Mapping[str, tf.Tensor] | None = None,
        loss: tf.Tensor | None = None,
        train_op: tf.Operation | tf.Tensor | None = None,
        eval_metric_ops: Mapping[str, Any] | None = None,
        export_outputs: Mapping[str, Any] | None = None,
        training_chief_hooks: Iterable[tf.compat.v1.train.SessionRunHook] | None = None,
        training_hooks: Iterable[tf.compat.v1.train.SessionRunHook] | None = None,
        scaffold: tf.compat.v1.train.Scaffold | None = None,
        evaluation_hooks: Iterable[tf.compat.v1.train.SessionRunHook] | None = None,
        prediction_hooks: Iterable[tf.compat.v1.train.SessionRunHook] | None = None,
    ) -> Self:
        predictions = _checked_predictions(predictions, mode)
        return super().__new__(
            cls,
            mode=mode,
            train_op=_checked_train_op(train_op, mode),
            loss=_checked_loss(loss, mode),
            predictions=predictions,
            export_outputs=outputs_of(export_outputs, predictions) if mode == ModeKeys.PREDICT else export_outputs,
            training_chief_hooks=tuple(checked_hooks(training_chief_hooks, _HOOKS)),
            training_hooks=tuple(checked_hooks(training_hooks, _HOOKS)),
            evaluation_hooks=tuple(checked_hooks(evaluation_hooks, _HOOKS)),
            prediction_hooks=tuple(checked_hooks(prediction_hooks, _HOOKS)),
            eval_metric_ops=_checked_metrics(eval_metric_ops),
            scaffold=_checked_scaffold(scaffold),
        )

    def _replace(self, **changes: Any) -> EstimatorSpec:
        """Return a copy with these fields changed.

        Raises:
          ValueError: the mode would change.
        """
        if changes.get("mode", self.mode) != self.mode:
            raise ValueError("mode of EstimatorSpec cannot be changed.")
        return EstimatorSpec(**(self._asdict() | changes))


def call_model_fn(
    model_fn: Callable[..., Any], features: Any, labels: Any, mode: str, params: Any, config: Any
) -> EstimatorSpec:
    """Call a `model_fn` with those of the arguments that it takes.

    Raises:
      ValueError: there are labels that it does not take, or it returns no EstimatorSpec.
    """
    given = taken_by(model_fn, labels=labels, mode=mode, params=params, config=config)
    if labels is not None and "labels" not in given:
        raise ValueError("model_fn does not take labels, but input_fn returns labels.")
    tf1.logging.info("Calling model_fn.")
    try:
        spec = model_fn(features=features, **given)
    except AttributeError as error:
        note_cure(error)
        raise
    tf1.logging.info("Done calling model_fn.")
    if not isinstance(spec, EstimatorSpec):
        raise ValueError("model_fn should return an EstimatorSpec.")
    return spec


def require_model_fn(model_fn: Any, params: Any) -> None:
    """Raise ValueError if a `model_fn` cannot be called with what an Estimator has."""
    if model_fn is None:
        raise ValueError("model_fn must be provided to Estimator.")
    taken = names_of_arguments(model_fn)
    if "features" not in taken:
        raise ValueError(f"model_fn ({model_fn}) must include features argument.")
    if params is not None and "params" not in taken:
        raise ValueError(
            f"model_fn ({model_fn}) does not include params argument, but params ({params}) is passed to Estimator."
        )
    known = {"features", "labels", "mode", "params", "config", "self"}
    if unknown := sorted(taken - known):
        raise ValueError(f"model_fn ({model_fn}) has following not expected args: {unknown}")


def _require_here(value: Any, what: str, name: str) -> None:
    if not tf.executing_eagerly() and value.graph is not tf1.get_default_graph():
        raise ValueError(_ANOTHER_GRAPH.format(what, name))


def _checked_train_op(train_op: Any, mode: str) -> Any:
    if train_op is None:
        if mode == ModeKeys.TRAIN:
            raise ValueError("Missing train_op.")
        return None
    if isinstance(train_op, tf.Variable):
        train_op = train_op.op
    if not isinstance(train_op, tf.Operation | tf.Tensor):
        raise TypeError(f"train_op must be Operation or Tensor, given: {train_op}")
    _require_here(train_op, "train_op", train_op.name)
    return train_op


def _checked_loss(loss: Any, mode: str) -> Any:
    if loss is None:
        if mode in (ModeKeys.TRAIN, ModeKeys.EVAL):
            raise ValueError("Missing loss.")
        return None
    if not isinstance(loss, tf.Tensor):
        raise TypeError(f"loss must be Tensor, given: {loss}")
    if loss.shape.num_elements() not in (None, 1):
        raise ValueError(f"Loss must be scalar, given: {loss}")
    _require_here(loss, "loss", loss.name)
    return loss if loss.shape.is_compatible_with([]) else tf.reshape(loss, [])


def _checked_predictions(predictions: Any, mode: str) -> Any:
    if predictions is None:
        if mode == ModeKeys.PREDICT:
            raise ValueError("Missing predictions.")
        return {}
    is_dict = isinstance(predictions, dict)
    for key, value in (predictions if is_dict else {"": predictions}).items():
        if not isinstance(value, tf.Tensor):
            raise TypeError(f"predictions{f'[{key}]' if is_dict else ''} must be Tensor, given: {value}")
        _require_here(value, "prediction values", f"{key}: {value.name}" if is_dict else value.name)
    return predictions


def _checked_scaffold(scaffold: Any) -> Any:
    scaffold = scaffold or tf1.train.Scaffold()
    if not isinstance(scaffold, tf1.train.Scaffold):
        raise TypeError(f"scaffold must be tf.train.Scaffold. Given: {scaffold}")
    return scaffold


def _checked_metrics(metrics: Mapping[str, Any] | None) -> dict[str, Any]:
    if metrics is not None and not isinstance(metrics, dict):
        raise TypeError(f"eval_metric_ops must be a dict, given: {metrics}")
    found = {}
    for name, metric in (metrics or {}).items():
        if _is_keras_metric(metric):
            found[name] = _of_keras(metric)
        elif isinstance(metric, tuple) and len(metric) == 2:
            found[name] = metric
        else:
            raise TypeError(
                f"Values of eval_metric_ops must be (metric_value, update_op) tuples, given: {metric} for key: {name}"
            )
        for part in tf.nest.flatten(found[name]):
            _require_here(part, "eval_metric_ops", f"{name}: {part.name}")
    return found


def _is_keras_metric(metric: Any) -> bool:
    return hasattr(metric, "result") and hasattr(metric, "update_state")


def _of_keras(metric: Any) -> tuple[Any, Any]:
    """Return the (value, update op) of a metric of tf_keras, the Keras that builds graphs, which was updated in this
    graph."""
    updates = getattr(metric, "updates", None)
    if not updates:
        raise ValueError(
            f'Please call update_state(...) on the "{metric.name}" metric. A metric of Keras 3 does not work in a '
            "TensorFlow 1 graph: use one of tf.compat.v1.metrics, or of the package tf_keras."
        )
    for name in (tf1.GraphKeys.LOCAL_VARIABLES, tf1.GraphKeys.METRIC_VARIABLES):
        known = {id(each) for each in tf1.get_collection(name)}
        for variable in metric.variables:
            if id(variable) not in known:
                tf1.add_to_collection(name, variable)
    return metric.result(), updates[0]
