"""Layers of Keras 2 in a model_fn, and the errors that name the cure under Keras 3."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import tensorflow as tf

import trainerd
from tests.tensorflow.lines import endless, make, whole

tf1 = tf.compat.v1

PROGRAM = """
import random
import sys
import tensorflow.compat.v1 as tf
import trainerd
from tests.tensorflow.lines import endless, make, whole

def model_fn(features, labels, mode):
    random.seed(7)  # of tf_keras' initial weights: without it the first evaluation may happen to be good
    trains = mode == trainerd.ModeKeys.TRAIN
    hidden = tf.layers.dropout(tf.layers.dense(features["x"], 8, tf.nn.tanh), training=trains)
    hidden = tf.keras.layers.Dropout(0.1)(tf.keras.layers.Dense(4)(hidden), training=trains)
    y = tf.layers.dense(hidden, 1, name="y")
    if mode == trainerd.ModeKeys.PREDICT:
        return trainerd.EstimatorSpec(mode, predictions=y)
    loss = tf.losses.mean_squared_error(labels, y)
    error = tf.keras.metrics.MeanAbsoluteError("error")
    error.update_state(labels, y)
    train_op = tf.train.AdamOptimizer(0.1).minimize(loss, tf.train.get_global_step())
    return trainerd.EstimatorSpec(mode, loss=loss, train_op=train_op, eval_metric_ops={"error": error})

first = make(sys.argv[1], model_fn).train(endless, max_steps=1).evaluate(whole)
again = make(sys.argv[1], model_fn).train(endless, max_steps=150)
last = again.evaluate(whole)
assert last["global_step"] == 150 and last["loss"] < first["loss"] and 0 < last["error"] < first["error"], (first, last)
assert len(list(again.predict(whole))) == 20
print(sorted(again.get_variable_names()))
"""


@pytest.mark.long
def test_tf_layers_and_tf_keras_layers_train_and_evaluate_with_tf_keras(tmp_path: Path) -> None:
    found = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(tmp_path)],
        env=os.environ | {"TF_USE_LEGACY_KERAS": "1"},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert found.returncode == 0, found.stderr[-3000:]
    assert "'dense/kernel'" in found.stdout and "'dense_1/kernel'" in found.stdout and "'y/bias'" in found.stdout


def with_layers(layer: Any) -> Any:
    def fn(features: Any, labels: Any, mode: str) -> Any:
        loss = tf1.losses.mean_squared_error(labels, layer(features["x"]))
        train_op = tf1.train.GradientDescentOptimizer(0.1).minimize(loss, tf1.train.get_global_step())
        return trainerd.EstimatorSpec(mode, loss=loss, train_op=train_op)

    return fn


def test_without_tf_keras_the_error_names_it(tmp_path: Path) -> None:
    with pytest.raises(AttributeError) as raised:
        make(tmp_path / "layers", with_layers(lambda x: tf1.layers.dense(x, 1))).train(endless, steps=1)
    assert "TF_USE_LEGACY_KERAS=1" in " ".join(raised.value.__notes__)
    estimator = make(tmp_path / "keras", with_layers(lambda x: tf.keras.layers.Dense(1)(x)))
    estimator.train(endless, steps=1)
    with pytest.raises(ValueError, match=r"has no variable .*TF_USE_LEGACY_KERAS=1"):
        estimator.evaluate(whole)
