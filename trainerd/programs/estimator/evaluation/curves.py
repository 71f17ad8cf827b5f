"""The curves of evaluations, for TensorBoard."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import tensorflow as tf
from google.protobuf.message import DecodeError  # type: ignore[import-untyped]

from trainerd.programs.estimator.evaluation.graph import GLOBAL_STEP

tf1 = tf.compat.v1


class EvaluationWriter:
    """Writes the metrics of evaluations for TensorBoard, into one event file for each folder."""

    def __init__(self) -> None:
        self._writers: dict[str, Any] = {}

    def write(self, folder: str, metrics: Mapping[str, Any], checkpoint_path: str | None) -> None:
        """Write the metrics of one evaluation at its global step, and log them in the words that programs look for."""
        writer = self._writers.get(folder)
        if writer is None:
            with tf.Graph().as_default():  # it refuses to be made where TensorFlow executes eagerly
                writer = self._writers[folder] = tf1.summary.FileWriter(folder)
        step, summary = int(metrics[GLOBAL_STEP]), tf1.Summary()
        shown = [f"{name} = {value}" for name, value in sorted(metrics.items()) if not isinstance(value, bytes)]
        tf1.logging.info("Saving dict for global step %d: %s", step, ", ".join(shown))
        for name, value in sorted(metrics.items()):
            if name == GLOBAL_STEP or value is None:
                continue
            _add(summary, name, value)
        writer.add_summary(summary, step)
        if checkpoint_path:
            text = tf.make_tensor_proto(checkpoint_path, dtype=tf.string)
            about = tf1.SummaryMetadata(plugin_data=tf1.SummaryMetadata.PluginData(plugin_name="text"))
            with_path = tf1.Summary()
            with_path.value.add(tag="checkpoint_path", metadata=about, tensor=text)
            writer.add_summary(with_path, step)
        writer.flush()


def _add(summary: Any, name: str, value: Any) -> None:
    """Add a metric to a summary, under the tags that TensorFlow gives it."""
    if isinstance(value, bytes):  # a summary that the model has made
        try:
            made = tf1.Summary.FromString(value)
        except DecodeError:
            tf1.logging.warning("Skipping summary for %s, cannot parse string to Summary.", name)
            return
        for number, each in enumerate(made.value):
            each.tag = f"{name}/{number}"
        summary.value.extend(made.value)
    elif isinstance(value, np.ndarray):
        summary.value.add(tag=name, node_name=name, tensor=tf.make_tensor_proto(value))
    elif isinstance(value, int | float | np.number):
        summary.value.add(tag=name, simple_value=float(value))
    else:
        tf1.logging.warning("Skipping summary for %s, must be a number, an array, a summary or None.", name)
