"""The inputs that an exported model is fed with, as `tf.estimator.export` had them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, Self

import tensorflow as tf

tf1 = tf.compat.v1

_TENSORS = (tf.Tensor, tf.SparseTensor, tf.RaggedTensor)
_SINGLE = "input"  # the name of a single tensor that is fed, which clients of a server know


class _Fields(NamedTuple):
    features: Any
    receiver_tensors: Any
    receiver_tensors_alternatives: Any


class ServingInputReceiver(_Fields):
    """The inputs of an exported model.

    Args:
      features: a tensor, or a dict of name to tensor, that the model_fn gets. A single one is put into a dict under
        "feature".
      receiver_tensors: a tensor, or a dict of name to tensor, that is fed. A single one is named "input".
      receiver_tensors_alternatives: name to other tensors that can be fed in their place.

    Raises:
      ValueError: one of them is something else.
    """

    def __new__(
        cls,
        features: tf.Tensor | Mapping[str, tf.Tensor],
        receiver_tensors: tf.Tensor | Mapping[str, tf.Tensor],
        receiver_tensors_alternatives: Any = None,
    ) -> Self:
        fed = _checked(receiver_tensors, "receiver_tensor", _SINGLE)
        return super().__new__(
            cls, _checked(features, "feature", "feature"), fed, _alternatives(receiver_tensors_alternatives)
        )


class TensorServingInputReceiver(_Fields):
    """A `ServingInputReceiver` for a model_fn that takes a tensor: a single one stays as it is."""

    def __new__(
        cls,
        features: tf.Tensor | Mapping[str, tf.Tensor],
        receiver_tensors: tf.Tensor | Mapping[str, tf.Tensor],
        receiver_tensors_alternatives: Any = None,
    ) -> Self:
        if features is None:
            raise ValueError("features must be defined.")
        whole = ServingInputReceiver(features, receiver_tensors, receiver_tensors_alternatives)
        return super().__new__(
            cls,
            features if isinstance(features, dict) else whole.features["feature"],
            whole.receiver_tensors,
            whole.receiver_tensors_alternatives,
        )


def build_parsing_serving_input_receiver_fn(
    feature_spec: Mapping[str, Any], default_batch_size: int | None = None
) -> Callable[[], ServingInputReceiver]:
    """Return a serving input function that is fed with serialized `tf.train.Example`s.

    Args:
      feature_spec: name to `tf.io.FixedLenFeature`, `VarLenFeature` and the like.
      default_batch_size: the examples of a batch. None: any number.
    """

    def serving_input_receiver_fn() -> ServingInputReceiver:
        examples = tf1.placeholder(tf.string, [default_batch_size], "input_example_tensor")
        return ServingInputReceiver(tf.io.parse_example(examples, dict(feature_spec)), {"examples": examples})

    return serving_input_receiver_fn


def build_raw_serving_input_receiver_fn(
    features: Mapping[str, tf.Tensor], default_batch_size: int | None = None
) -> Callable[[], ServingInputReceiver]:
    """Return a serving input function that is fed with the features themselves.

    Args:
      features: name to a tensor of the shape and type of a batch of them.
      default_batch_size: the examples of a batch. None: any number.
    """

    def serving_input_receiver_fn() -> ServingInputReceiver:
        fed = {}
        for name, value in features.items():
            shape = tf.TensorShape(value.shape)
            if shape.rank:  # not unknown, and no scalar
                shape = [default_batch_size, *shape[1:]]
            op = getattr(value, "op", None)  # an eager tensor has none
            fed[name] = tf1.placeholder(value.dtype, shape, op.name if op is not None else name)
        return ServingInputReceiver(fed, fed)

    return serving_input_receiver_fn


def _checked(given: Any, what: str, single: str) -> dict[Any, Any]:
    """Return these tensors by name."""
    if given is None:
        raise ValueError(f"{what}s must be defined.")
    named = given if isinstance(given, dict) else {single: given}
    for name, value in named.items():
        if not isinstance(name, str | int):
            raise ValueError(f"{what} keys must be strings or ints: {name}.")
        if not isinstance(value, _TENSORS):
            raise ValueError(f"{what} {name} must be a Tensor, SparseTensor, or RaggedTensor.")
    return dict(named)


def _alternatives(given: Any) -> dict[str, Any] | None:
    if given is None:
        return None
    if not isinstance(given, dict):
        raise ValueError(f"receiver_tensors_alternatives must be a dict: {given}.")
    return {name: _checked(value, "receiver_tensors_alternative", _SINGLE) for name, value in given.items()}
