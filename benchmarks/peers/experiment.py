"""The digits under an Experiment, and by hand: `python -m benchmarks.peers.experiment KIND`.

`experiment` and `loop` measure steps on request; `evaluate` and `script FOLDER` evaluate every checkpoint of a folder.
"""

from __future__ import annotations

import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import tensorflow as tf
import tensorflow.compat.v1 as tf1

import trainerd
from benchmarks.peers.contract import Measure, serve, stepping
from trainerd.examples import digits

BATCH, STEPS, EVERY, HELD_OUT = 32, 500, 10, 360


def model_fn(features: Any, labels: Any, mode: str) -> Any:
    """A small convolutional network."""
    images = tf.reshape(features, [-1, 8, 8, 1])
    kernel = tf1.get_variable("kernel", [3, 3, 1, 16])
    hidden = tf.nn.relu(tf.nn.conv2d(images, kernel, strides=1, padding="SAME"))
    flat = tf.reshape(tf.nn.max_pool2d(hidden, 2, 2, "SAME"), [-1, 256])
    logits = tf.matmul(flat, tf1.get_variable("weights", [256, 10])) + tf1.get_variable("bias", [10])
    loss = tf1.losses.sparse_softmax_cross_entropy(labels, logits)
    if mode == trainerd.ModeKeys.EVAL:
        accuracy = tf1.metrics.accuracy(labels, tf.argmax(logits, axis=1))
        return trainerd.EstimatorSpec(mode, loss=loss, eval_metric_ops={"accuracy": accuracy})
    train_op = tf1.train.AdamOptimizer(1e-3).minimize(loss, global_step=tf1.train.get_global_step())
    return trainerd.EstimatorSpec(mode, loss=loss, train_op=train_op)


def train_input() -> Any:
    """Shuffled, for ever."""
    images, labels = digits.load()
    return (
        tf.data.Dataset.from_tensor_slices((images[HELD_OUT:], labels[HELD_OUT:]))
        .shuffle(1000, seed=1)
        .repeat()
        .batch(BATCH)
    )


def eval_input() -> Any:
    """What is held out, once."""
    images, labels = digits.load()
    return tf.data.Dataset.from_tensor_slices((images[:HELD_OUT], labels[:HELD_OUT])).batch(BATCH)


def experiment_in(folder: str, **settings: Any) -> trainerd.Experiment:
    """The Experiment."""
    config = trainerd.RunConfig(folder, tf_random_seed=1, **settings)
    estimator = trainerd.Estimator(model_fn, config=config)
    return trainerd.Experiment(
        estimator, train_input, eval_input, train_steps=STEPS, eval_steps=None, eval_delay_secs=0
    )


def experiment(folder: str) -> Measure:
    """Steps of an Experiment's training, by its own loop."""
    made, rate = experiment_in(folder), [500.0]
    made.estimator.keep_open(True)

    def measure(seconds: float) -> tuple[int, float]:
        steps, begun = max(1, int(rate[0] * seconds)), time.perf_counter()
        made.estimator.train(train_input, steps=steps)
        took = time.perf_counter() - begun
        rate[0] = steps / took
        return steps, took

    return measure


def loop(folder: str) -> Measure:
    """The same steps in a MonitoredTrainingSession of trainerd's, and a checkpoint, as at the end of each `train`."""
    graph = tf.Graph()
    with graph.as_default():
        tf1.set_random_seed(1)
        tf1.train.create_global_step()
        iterator = tf1.data.make_initializable_iterator(train_input())
        tf1.add_to_collection(tf1.GraphKeys.TABLE_INITIALIZERS, iterator.initializer)
        images, labels = iterator.get_next()
        spec = model_fn(images, labels, trainerd.ModeKeys.TRAIN)
        session = trainerd.MonitoredTrainingSession(checkpoint_dir=folder)
    steps_for = stepping(lambda: session.should_stop() or session.run([spec.train_op, spec.loss]))

    def measure(seconds: float) -> tuple[int, float]:
        begun = time.perf_counter()
        steps, _ = steps_for(seconds)
        session.save_now("schedule")
        return steps, time.perf_counter() - begun

    return measure


def evaluate(folder: str) -> None:
    """Evaluate every checkpoint by the Experiment, each once."""
    made = experiment_in(folder)
    once = made._once("bench", eval_input)
    for path in sorted(Path(folder).glob("model.ckpt-*.index"), key=_step_of):
        once(str(path.with_suffix("")))


def script(folder: str) -> None:
    """Evaluate every checkpoint by hand: a graph that is built once, restored in a loop."""
    with tf.Graph().as_default():
        tf1.train.create_global_step()
        iterator = tf1.data.make_initializable_iterator(eval_input())
        images, labels = iterator.get_next()
        spec = model_fn(images, labels, trainerd.ModeKeys.EVAL)
        value, update = spec.eval_metric_ops["accuracy"]
        saver = tf1.train.Saver()
        with tf1.Session() as session:
            for path in sorted(Path(folder).glob("model.ckpt-*.index"), key=_step_of):
                saver.restore(session, str(path.with_suffix("")))
                session.run([iterator.initializer, tf1.local_variables_initializer()])
                try:
                    while True:
                        session.run(update)
                except tf.errors.OutOfRangeError:
                    print(session.run(value))


def _step_of(path: Path) -> int:
    return int(path.stem.rpartition("-")[2])


MEASURES: dict[str, Callable[[str], Measure]] = {"experiment": experiment, "loop": loop}


def main(kind: str, folder: str = "") -> None:
    """Serve it, or do it."""
    if kind in MEASURES:
        with tempfile.TemporaryDirectory() as scratch:
            serve(MEASURES[kind](scratch))
    elif kind == "train":
        experiment_in(folder, save_checkpoints_steps=EVERY, keep_checkpoint_max=None).train()
    else:
        {"evaluate": evaluate, "script": script}[kind](folder)


if __name__ == "__main__":
    main(*sys.argv[1:])
