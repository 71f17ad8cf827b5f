"""A step that Python runs: of a Keras model that is compiled with `run_eagerly=True`."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from typing import Any

import tensorflow as tf

from trainerd.checkpoints.contents.tensor_values import Values
from trainerd.errors import EntryError, TrainerdError
from trainerd.job.user_code import FAILURES, in_a_line, job_traceback, user_code

log = logging.getLogger(__name__)


class EagerStep:
    """A step that Python runs, with what the loop asks of a traced one.

    It is first called with a batch of zeros, to make its variables. After that, all variables get back the values that
    they had. It is traced too, if that is possible, to find out what it changes.

    Args:
      step: from a batch to its metrics.
      batch: the types of a batch, as a list with one structure; an empty list if the step takes none.
      variables: those that there are. Those that the step makes are put back too.

    Attributes:
      structured_outputs: what the step returns.
      graph: of the trace; empty if the step cannot be traced.

    Raises:
      EntryError: the step fails.
    """

    def __init__(self, step: Callable[..., Any], batch: list[Any], variables: Iterable[Any]) -> None:
        self._step = step
        self.structured_outputs = rehearse(step, batch, variables)
        try:
            self.graph = tf.function(step, autograph=False).get_concrete_function(*batch).graph
        except FAILURES as error:
            log.warning(
                "the training step cannot be traced, so trainerd does not know what it changes beside the model, which "
                "is all that a resume restores (%s)",
                in_a_line(error),
                extra={"event": "eager"},
            )
            self.graph = tf.function(lambda: None).get_concrete_function().graph

    def __call__(self, *batch: Any) -> Any:
        """Run the step."""
        return self._step(*batch)


def rehearse(step: Callable[..., Any], batch: list[Any], variables: Iterable[Any], *, size: int = 1) -> Any:
    """Call a step with a batch of zeros, so that it makes its variables, and put back all variables.

    Args:
      step, batch, variables: see `EagerStep`.
      size: that of a dimension which is open.

    Returns:
      What the step returns.

    Raises:
      EntryError: the step fails.
    """
    made: list[tuple[Any, tf.Tensor]] = []

    def make(next_creator: Callable[..., Any], **options: Any) -> Any:
        variable = next_creator(**options)
        made.append((variable, tf.identity(variable)))
        return variable

    def failed(error: BaseException) -> TrainerdError:
        if isinstance(error, TrainerdError):
            return error
        return EntryError(f"the job's train_step fails with a batch of zeros:\n{job_traceback(error)}")

    zeros, before = tf.nest.map_structure(lambda spec: _zeros(spec, size), batch), Values(variables)
    were_eager, level = tf.config.functions_run_eagerly(), tf.get_logger().level
    tf.config.run_functions_eagerly(True)  # replicas make no variables in a function
    tf.get_logger().setLevel(logging.ERROR)  # TensorFlow advises against steps of replicas that run eagerly
    try:
        with user_code(failed), tf.variable_creator_scope(make):
            outputs = step(*zeros)
    finally:
        tf.config.run_functions_eagerly(were_eager)
        tf.get_logger().setLevel(level)
    before.put_back()
    for variable, value in made:
        variable.assign(value)
    return outputs


def _zeros(spec: Any, size: int) -> tf.Tensor:
    """Return a tensor of zeros. An open dimension has this size."""
    if type(spec) is not tf.TensorSpec or spec.shape.rank is None:
        raise EntryError(
            "several devices, and a model with run_eagerly=True, need data of dense tensors, and a part of the data is "
            f"{spec}. Change the data, or train on one device without run_eagerly=True."
        )
    return tf.zeros([each or size for each in spec.shape], spec.dtype)
