"""Predictions of an Estimator, example by example."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import tensorflow as tf

from trainerd.loop.outcome import Paused
from trainerd.programs.estimator.checkpoints import require_fit
from trainerd.programs.estimator.graph.blueprint import Blueprint, with_default_initializers
from trainerd.programs.estimator.input_fn import has_an_end
from trainerd.programs.estimator.model_fn import ModeKeys
from trainerd.programs.monitored.graph_session import MonitoredSession
from trainerd.programs.monitored.session_creators import ChiefSessionCreator

tf1 = tf.compat.v1


def predict(
    blueprint: Blueprint,
    input_fn: Callable[..., Any],
    *,
    keys: Sequence[str] | None,
    hooks: Sequence[Any],
    checkpoint_path: str | None,
    by_example: bool,
) -> Iterator[Any]:
    """Predict until the input ends.

    Args:
      blueprint: the model.
      input_fn: the input.
      keys: which of the predictions. None: all.
      hooks: `SessionRunHook`s.
      checkpoint_path: what is restored; None for a model that is initialized.
      by_example: whether each example is yielded, or each batch.

    Yields:
      A prediction, or a dict of name to prediction.

    Raises:
      ValueError: there are no such predictions, or they are of different lengths.
      Paused: a pause was requested.
    """
    graph = tf.Graph()
    with graph.as_default():
        blueprint.begin_graph()
        spec = blueprint.build(input_fn, ModeKeys.PREDICT)
        if not has_an_end(graph):
            tf1.logging.warning(
                "Input graph does not use tf.data.Dataset or contain a QueueRunner. That means predict yields "
                "forever. This is probably a mistake."
            )
        blueprint.start_warm(checkpoint_path is not None)
        if checkpoint_path is not None:
            require_fit(checkpoint_path)
        predictions = _chosen(spec.predictions, keys)
        creator = ChiefSessionCreator(
            with_default_initializers(spec.scaffold),
            master=blueprint.config.master,
            config=blueprint.config.session_config,
            checkpoint_filename_with_path=checkpoint_path,
        )
        session = MonitoredSession(creator, [*hooks, *spec.prediction_hooks])
    # The graph is the default one only while it is built: between two predictions the caller has its own.
    with session:
        while not session.should_stop():
            with graph.as_default():  # hooks ask it for what they need
                batch = session.run(predictions)
            yield from examples(batch) if by_example else (batch,)
        if session.is_paused:  # what is predicted so far is not all
            raise Paused


def _chosen(predictions: Any, keys: Sequence[str] | None) -> Any:
    if not keys:
        return predictions
    if not isinstance(predictions, Mapping):
        raise ValueError("predict_keys argument is not valid in case of non-dict predictions.")
    found = {name: value for name, value in predictions.items() if name in keys}
    if not found:
        raise ValueError(f"Expected to run at least one output from {predictions.keys()}, provided {keys}.")
    return found


def examples(batch: Any) -> Iterator[Any]:
    """Yield the prediction of each example of a batch.

    Raises:
      ValueError: the predictions are of different lengths.
    """
    if not isinstance(batch, Mapping):
        yield from batch
        return
    lengths = {name: len(value) for name, value in batch.items()}
    if len(set(lengths.values())) > 1:
        name = next(name for name, length in lengths.items() if length != next(iter(lengths.values())))
        raise ValueError(f"Batch length of predictions should be same. {name} has different batch length than others.")
    for number in range(next(iter(lengths.values()))):
        yield {name: value[number] for name, value in batch.items()}
