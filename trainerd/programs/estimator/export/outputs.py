"""The outputs of an exported model, as the classes of `tf.estimator.export` were.

The signatures are those of TensorFlow Serving's predict, classify and regress.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import tensorflow as tf

tf1 = tf.compat.v1

DEFAULT_KEY = tf.saved_model.DEFAULT_SERVING_SIGNATURE_DEF_KEY


class ExportOutput:
    """One signature of an exported model."""

    def signature(self, receivers: Mapping[str, Any]) -> Any | None:
        """Return its SignatureDef on these inputs; None if it does not fit them."""
        raise NotImplementedError


class PredictOutput(ExportOutput):
    """Any tensors by name.

    Args:
      outputs: a tensor, or a dict of name to tensor.

    Raises:
      ValueError: it is something else.
    """

    def __init__(self, outputs: Any) -> None:
        self.outputs = _by_name(outputs, "output")

    def signature(self, receivers: Mapping[str, Any]) -> Any:
        """See `ExportOutput`."""
        return tf1.saved_model.predict_signature_def(dict(receivers), self.outputs)


class ClassificationOutput(ExportOutput):
    """Scores, classes, or both.

    Args:
      scores: float tensor, shape [batch, classes].
      classes: string tensor, shape [batch, classes].

    Raises:
      ValueError: there is neither, or one has another type.
    """

    def __init__(self, scores: Any = None, classes: Any = None) -> None:
        if scores is not None and not (isinstance(scores, tf.Tensor) and scores.dtype.is_floating):
            raise ValueError(f"Classification scores must be a float32 Tensor; got {scores}")
        if classes is not None and not (isinstance(classes, tf.Tensor) and classes.dtype == tf.string):
            raise ValueError(f"Classification classes must be a string Tensor; got {classes}")
        if scores is None and classes is None:
            raise ValueError("Cannot create a ClassificationOutput with empty arguments.")
        self.scores, self.classes = scores, classes

    def signature(self, receivers: Mapping[str, Any]) -> Any | None:
        """See `ExportOutput`. Its input is one string tensor of serialized examples."""
        examples = _examples(receivers)
        if examples is None:
            return None
        return tf1.saved_model.classification_signature_def(examples, self.classes, self.scores)


class RegressionOutput(ExportOutput):
    """One number for each example.

    Args:
      value: float tensor, shape [batch] or [batch, 1].

    Raises:
      ValueError: it has another type.
    """

    def __init__(self, value: Any) -> None:
        if not (isinstance(value, tf.Tensor) and value.dtype.is_floating):
            raise ValueError(f"Regression output value must be a float32 Tensor; got {value}")
        self.value = value

    def signature(self, receivers: Mapping[str, Any]) -> Any | None:
        """See `ExportOutput`. Its input is one string tensor of serialized examples."""
        examples = _examples(receivers)
        return None if examples is None else tf1.saved_model.regression_signature_def(examples, self.value)


def outputs_of(given: Mapping[str, Any] | None, predictions: Any) -> dict[str, ExportOutput]:
    """Return the outputs of an EstimatorSpec, one of them under the key that is served by default.

    Raises:
      TypeError: they are not a dict, or not of outputs.
      ValueError: there are several, and none is the default.
    """
    if given is None:
        return {DEFAULT_KEY: PredictOutput(predictions)}
    if not isinstance(given, dict):
        raise TypeError(f"`export_outputs` must be dict, given: {given}")
    for value in given.values():
        if not isinstance(value, ExportOutput):
            raise TypeError(f"Values in `export_outputs` must be ExportOutput objects. Given: {given}")
    if DEFAULT_KEY in given:
        return dict(given)
    if len(given) > 1:
        raise ValueError(
            "Multiple export_outputs were provided, but none of them is specified as the default.  Do this by naming "
            "one of them with signature_constants.DEFAULT_SERVING_SIGNATURE_DEF_KEY."
        )
    (only,) = given.values()
    return {**given, DEFAULT_KEY: only}


def signatures(
    outputs: Mapping[str, ExportOutput], receivers: Mapping[str, Any], alternatives: Mapping[str, Any] | None
) -> dict[str, Any]:
    """Return the signatures of an exported model, by name.

    Args:
      outputs: what it gives.
      receivers: the tensors that are fed.
      alternatives: name to other tensors that can be fed.
    """
    found: dict[str, Any] = {}
    inputs = {"": receivers} | {f"{key}:": value for key, value in (alternatives or {}).items()}
    for name, fed in inputs.items():
        for key, output in outputs.items():
            signature = output.signature(fed)
            if signature is None:
                tf1.logging.warning(
                    "%s: to classify and to regress takes one string tensor of serialized examples, and the serving "
                    "input function has others. It is exported as a predict signature.",
                    name + key,
                )
                signature = _as_predict(output).signature(fed)
            found[name + key] = signature
    return found


def _as_predict(output: ExportOutput) -> PredictOutput:
    """Return the same numbers for a predict signature, which takes any input."""
    if isinstance(output, RegressionOutput):
        return PredictOutput({"outputs": output.value})
    assert isinstance(output, ClassificationOutput)
    both = {"scores": output.scores, "classes": output.classes}
    return PredictOutput({name: value for name, value in both.items() if value is not None})


def _examples(receivers: Mapping[str, Any]) -> Any | None:
    """Return the only input, if it has strings."""
    if len(receivers) != 1:
        return None
    (examples,) = receivers.values()
    return examples if isinstance(examples, tf.Tensor) and examples.dtype == tf.string else None


def _by_name(outputs: Any, default: str) -> dict[str, Any]:
    named = outputs if isinstance(outputs, dict) else {default: outputs}
    for key, value in named.items():
        if not isinstance(key, str):
            raise ValueError(f"Prediction output key must be a string; got {key}.")
        if not isinstance(value, tf.Tensor):
            raise ValueError(f"Prediction output value must be a Tensor; got {value}.")
    return dict(named)
