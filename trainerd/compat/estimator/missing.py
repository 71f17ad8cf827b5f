"""The names of `tf.estimator` that are not here, and what a program does instead."""

from __future__ import annotations

# What a program does instead, to the names, as they follow `tf.estimator.`.
_NAMES = {
    "write its model as a model_fn for `estimator.Estimator`": (
        "BaselineClassifier BaselineEstimator BaselineRegressor "
        "BoostedTreesClassifier BoostedTreesEstimator BoostedTreesRegressor "
        "DNNClassifier DNNEstimator DNNRegressor "
        "DNNLinearCombinedClassifier DNNLinearCombinedEstimator DNNLinearCombinedRegressor "
        "LinearClassifier LinearEstimator LinearRegressor "
        "experimental.KMeans experimental.LinearSDCA experimental.RNNClassifier experimental.RNNEstimator "
        "experimental.dnn_logit_fn_builder experimental.linear_logit_fn_builder"
    ),
    "return the loss and the metrics of your model_fn in an `estimator.EstimatorSpec`": (
        "Head BinaryClassHead LogisticRegressionHead MultiClassHead MultiHead MultiLabelHead PoissonRegressionHead "
        "RegressionHead"
    ),
    "write the feature spec for `tf.io.parse_example` out": (
        "classifier_parse_example_spec regressor_parse_example_spec"
    ),
    "read variables with `tf.train.load_checkpoint`": "CheckpointConverter",
    "`estimator.Estimator` trains on CPUs and GPUs": "tpu",
    "`train_and_evaluate` evaluates each new checkpoint between two steps": "experimental.InMemoryEvaluatorHook",
    "use `estimator.StopAtStepHook(last_step=...)`": "experimental.make_stop_at_checkpoint_step_hook",
    "`export_saved_model` exports the graph of the predictions alone": (
        "experimental.build_raw_supervised_input_receiver_fn export.EvalOutput"
    ),
}
INSTEAD = {name: cure for cure, names in _NAMES.items() for name in names.split()}


def missing(name: str) -> AttributeError:
    """Return the error for a name of `tf.estimator` that is not here.

    Args:
      name: as it follows `tf.estimator.`.
    """
    cure = f": {INSTEAD[name]}." if name in INSTEAD else "; docs/experiment.md lists the names that are here."
    return AttributeError(f"trainerd has no tf.estimator.{name}{cure}")
