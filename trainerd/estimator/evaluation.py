"""An evaluation: its own graph, its own input, its own session; a checkpoint is only read."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from trainerd.estimator.blueprint import Blueprint
from trainerd.estimator.checkpoints import require_fit
from trainerd.estimator.model_fn import EstimatorSpec, ModeKeys
from trainerd.loop.outcome import Paused
from trainerd.monitored.graph_session import MonitoredSession
from trainerd.monitored.session_creators import ChiefSessionCreator

tf1 = tf.compat.v1

GLOBAL_STEP = "global_step"
LOSS = "loss"


def evaluate(
    blueprint: Blueprint,
    input_fn: Callable[..., Any],
    *,
    steps: int | None,
    hooks: Sequence[Any],
    checkpoint_path: str | None,
    is_paused: Callable[[], bool],
) -> dict[str, Any]:
    """Evaluate a checkpoint.

    Args:
      blueprint: the model.
      input_fn: the input, read from its beginning.
      steps: how many batches. None: all.
      hooks: `SessionRunHook`s.
      checkpoint_path: what is restored; None for a model that is initialized.
      is_paused: asked after each batch; if it says yes, the evaluation is given up.

    Returns:
      The metrics, with the mean loss, and the global step.

    Raises:
      Paused: a pause was requested.
      ValueError: the model has a metric named global_step, or the input has no batch.
    """
    with tf.Graph().as_default():
        step = blueprint.begin_graph()
        spec = blueprint.build(input_fn, ModeKeys.EVAL)
        update, values = _metric_ops(spec)
        if GLOBAL_STEP in values:
            raise ValueError(
                "Metric with name `global_step` is not allowed, because Estimator already defines a default metric "
                "with the same name."
            )
        values[GLOBAL_STEP] = step
        blueprint.start_warm(checkpoint_path is not None)
        if checkpoint_path is not None:
            require_fit(checkpoint_path)
        creator = ChiefSessionCreator(
            _scaffold(spec),
            master=blueprint.config.evaluation_master or "",
            config=blueprint.config.session_config,
            checkpoint_filename_with_path=checkpoint_path,
        )
        with MonitoredSession(creator, [*hooks, *spec.evaluation_hooks]) as session:
            done = _run(session, update, steps, is_paused)
            if not done:
                raise ValueError("the input function of the evaluation gives no batch: there is nothing to evaluate.")
            found: Mapping[str, Any] = session.run_step_fn(lambda step_context: step_context.session.run(values))
    return dict(found)


def _run(session: Any, update: Any, steps: int | None, is_paused: Callable[[], bool]) -> int:
    """Run batches. Returns how many."""
    done = 0
    try:
        while (steps is None or done < steps) and not (session.should_stop() or is_paused()):
            session.run(update)
            done += 1
    except (tf.errors.OutOfRangeError, StopIteration):
        return done
    if session.is_paused or is_paused():
        raise Paused
    return done


def _metric_ops(spec: EstimatorSpec) -> tuple[Any, dict[str, Any]]:
    """The op that takes a batch into account, and the metrics by name."""
    metrics = dict(spec.eval_metric_ops)
    if LOSS in metrics:
        raise ValueError(
            'Metric with name "loss" is not allowed, because Estimator already defines a default metric '
            "with the same name."
        )
    metrics[LOSS] = tf1.metrics.mean(spec.loss)
    return tf.group(*(update for _, update in metrics.values())), {name: value for name, (value, _) in metrics.items()}


def _scaffold(spec: EstimatorSpec) -> Any:
    """The scaffold of the model. Its own local_init_op does not know the variables of the metrics."""
    scaffold = spec.scaffold
    if scaffold is None or scaffold.local_init_op is None:
        return scaffold
    both = tf.group(scaffold.local_init_op, tf1.train.Scaffold.default_local_init_op())
    return tf1.train.Scaffold(local_init_op=both, copy_from_scaffold=scaffold)


class EvaluationWriter:
    """Writes the metrics of evaluations for TensorBoard, into one event file for each folder."""

    def __init__(self) -> None:
        self._writers: dict[str, Any] = {}

    def write(self, folder: str, metrics: Mapping[str, Any], checkpoint_path: str | None) -> None:
        """Write the metrics of one evaluation at its global step."""
        writer = self._writers.get(folder)
        if writer is None:
            with tf.Graph().as_default():  # it refuses to be made where TensorFlow executes eagerly
                writer = self._writers[folder] = tf1.summary.FileWriter(folder)
        step, summary = int(metrics[GLOBAL_STEP]), tf1.Summary()
        for name, value in sorted(metrics.items()):
            if name == GLOBAL_STEP or value is None:
                continue
            if isinstance(value, bytes):  # a summary that the model has made
                summary.MergeFromString(value)
            elif np.ndim(value) == 0 and np.issubdtype(np.asarray(value).dtype, np.number):
                summary.value.add(tag=name, simple_value=float(value))
            else:
                tf1.logging.warning("Skipping summary for %s, must be a number, a summary or None.", name)
        writer.add_summary(summary, step)
        if checkpoint_path:
            text = tf.make_tensor_proto(f"step {step}: {checkpoint_path}", dtype=tf.string)
            about = tf1.SummaryMetadata(plugin_data=tf1.SummaryMetadata.PluginData(plugin_name="text"))
            with_path = tf1.Summary()
            with_path.value.add(tag="checkpoint_path/text_summary", metadata=about, tensor=text)
            writer.add_summary(with_path, step)
        writer.flush()
