"""The names of `tf.estimator` that are not here, and what a program does instead."""

from __future__ import annotations

_MODEL = "write its model as a model_fn for `estimator.Estimator`"
_SPEC = "write the feature spec for `tf.io.parse_example` out"
_PREDICTIONS_ONLY = "`export_saved_model` exports the graph of the predictions alone"
_EVALUATES = "`train_and_evaluate` evaluates each new checkpoint between two steps"

INSTEAD = {
    **dict.fromkeys(
        (
            f"{model}{kind}"
            for model in ("Baseline", "BoostedTrees", "DNN", "DNNLinearCombined", "Linear")
            for kind in ("Classifier", "Estimator", "Regressor")
        ),
        _MODEL,
    ),
    **dict.fromkeys(
        (
            "Head",
            *(f"{kind}Head" for kind in ("BinaryClass", "LogisticRegression", "MultiClass", "Multi", "MultiLabel")),
            *(f"{kind}Head" for kind in ("PoissonRegression", "Regression")),
        ),
        "return the loss and the metrics of your model_fn in an `estimator.EstimatorSpec`",
    ),
    "classifier_parse_example_spec": _SPEC,
    "regressor_parse_example_spec": _SPEC,
    "CheckpointConverter": "read variables with `tf.train.load_checkpoint`",
    "tpu": "`estimator.Estimator` trains on CPUs and GPUs",
    "experimental.InMemoryEvaluatorHook": _EVALUATES,
    "experimental.make_stop_at_checkpoint_step_hook": "use `estimator.StopAtStepHook(last_step=...)`",
    "experimental.build_raw_supervised_input_receiver_fn": _PREDICTIONS_ONLY,
    **dict.fromkeys(
        (
            *("experimental.KMeans", "experimental.LinearSDCA", "experimental.RNNClassifier"),
            *("experimental.RNNEstimator", "experimental.dnn_logit_fn_builder"),
            "experimental.linear_logit_fn_builder",
        ),
        _MODEL,
    ),
    "export.EvalOutput": _PREDICTIONS_ONLY,
}


def missing(name: str) -> AttributeError:
    """Return the error for a name of `tf.estimator` that is not here.

    Args:
      name: as it follows `tf.estimator.`.
    """
    cure = f": {INSTEAD[name]}." if name in INSTEAD else "; docs/experiment.md lists the names that are here."
    return AttributeError(f"trainerd has no tf.estimator.{name}{cure}")
