"""Three programs in the style of their time, for the daemon and for a shell: a census classifier with learn_runner, a
schedule as tensor2tensor's, and train_and_evaluate with a stop hook and a best exporter, as EasyRec's."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path
from typing import Any

import keras
import numpy as np
import tensorflow as tf

import trainerd
from trainerd.compat import estimator as tf_estimator

tf1 = tf.compat.v1

LENGTHS = {"age": 1, "hours": 1, "education": 4}
STEPS, EVERY = 120, 20


def _people(count: int, seed: int) -> tuple[dict[str, Any], Any]:
    """Features and labels of people who do not exist."""
    rng = np.random.RandomState(seed)
    features = {name: rng.rand(count, length).astype("float32") for name, length in LENGTHS.items()}
    labels = (features["age"][:, 0] + features["education"][:, 0] > features["hours"][:, 0] + 0.5).astype("int64")
    return features, labels


class Slowly(tf1.train.SessionRunHook):  # type: ignore[misc,name-defined]
    """Gives a kill the time to come in the middle."""

    def after_run(self, run_context: Any, run_values: Any) -> None:
        """Wait a little."""
        time.sleep(float(os.environ.get("SECS_OF_A_STEP", "0.004")))


def census_model(features: Any, labels: Any, mode: str, params: Any) -> Any:
    """A linear classifier with dropout, whose seed is fixed."""
    columns = [features[name] for name in sorted(LENGTHS)]
    inputs = tf.concat(columns, axis=1)
    weights = tf1.get_variable("weights", [sum(LENGTHS.values()), 2], initializer=tf1.zeros_initializer())
    logits = tf.matmul(inputs, weights) + tf1.get_variable("bias", [2], initializer=tf1.zeros_initializer())
    predictions = {"income": tf.argmax(logits, axis=1), "probabilities": tf.nn.softmax(logits)}
    if mode == tf_estimator.ModeKeys.PREDICT:
        return tf_estimator.EstimatorSpec(mode, predictions=predictions)
    loss = tf1.losses.sparse_softmax_cross_entropy(labels, logits)
    if mode == tf_estimator.ModeKeys.EVAL:
        accuracy = tf1.metrics.accuracy(labels, predictions["income"])
        return tf_estimator.EstimatorSpec(mode, loss=loss, eval_metric_ops={"accuracy": accuracy})
    optimizer = tf1.train.MomentumOptimizer(params["rate"], momentum=0.9)
    train_op = optimizer.minimize(loss, global_step=tf1.train.get_global_step())
    return tf_estimator.EstimatorSpec(mode, loss=loss, train_op=train_op)


def train_input() -> tf.data.Dataset:
    """Shuffled, for ever."""
    return tf.data.Dataset.from_tensor_slices(_people(200, 1)).shuffle(200, seed=7).repeat().batch(8)


def eval_input() -> tf.data.Dataset:
    """Each person once."""
    return tf.data.Dataset.from_tensor_slices(_people(60, 2)).batch(20)


def serving_input() -> Any:
    """Fed with the features."""
    fed = {name: tf1.placeholder(tf.float32, [None, length], name) for name, length in LENGTHS.items()}
    return trainerd.ServingInputReceiver(fed, fed)


def _settings(run_config: Any) -> Any:
    return run_config.replace(save_checkpoints_steps=EVERY, tf_random_seed=3, keep_checkpoint_max=3)


def census(run_config: Any, hparams: Any) -> trainerd.Experiment:
    """As the census samples: evaluated and exported at each checkpoint."""
    return trainerd.Experiment(
        trainerd.Estimator(census_model, config=_settings(run_config), params={"rate": 0.1}),
        train_input_fn=train_input,
        eval_input_fn=eval_input,
        train_steps=STEPS,
        eval_steps=None,
        train_monitors=[Slowly()],
        checkpoint_and_export=True,
        export_strategies=[trainerd.make_export_strategy(serving_input, exports_to_keep=None)],
    )


def schedule(output_dir: str) -> trainerd.Experiment:
    """As tensor2tensor's: training and evaluation in turns, in one session, and an export at the end."""
    config = _settings(trainerd.RunConfig(model_dir=output_dir))
    return trainerd.Experiment(
        trainerd.Estimator(census_model, config=config, params={"rate": 0.1}),
        train_input_fn=train_input,
        eval_input_fn=eval_input,
        train_steps=STEPS,
        eval_steps=2,
        train_monitors=[Slowly()],
        train_steps_per_iteration=30,
        export_strategies=[trainerd.make_best_model_export_strategy(serving_input)],
    )


def recommender(output_dir: str) -> tuple[Any, Any, Any]:
    """As EasyRec's: a stop hook, and an exporter of the best."""
    config = _settings(tf_estimator.RunConfig(model_dir=output_dir))
    estimator = tf_estimator.Estimator(census_model, config=config, params={"rate": 0.1})
    stop = tf_estimator.experimental.stop_if_higher_hook(
        estimator, "accuracy", 0.99, run_every_secs=None, run_every_steps=10
    )
    exporter = tf_estimator.BestExporter("best", serving_input, exports_to_keep=None)
    train_spec = tf_estimator.TrainSpec(train_input, max_steps=STEPS, hooks=[Slowly(), stop])
    eval_spec = trainerd.EvalSpec(
        eval_input, steps=None, exporters=exporter, start_delay_secs=0, throttle_secs=0, throttle_steps=40
    )
    return estimator, train_spec, eval_spec


def keras_model(run_config: Any, hparams: Any) -> trainerd.Experiment:
    """A compiled Keras model, with dropout: evaluated and exported at each checkpoint."""
    keras.utils.set_random_seed(5)
    inputs = {name: keras.Input((length,), name=name) for name, length in LENGTHS.items()}
    hidden = keras.layers.Dropout(0.2)(keras.layers.Concatenate()([inputs[name] for name in sorted(LENGTHS)]))
    model = keras.Model(inputs, keras.layers.Dense(2, activation="softmax", name="income")(hidden))
    model.compile(keras.optimizers.Adam(0.01), "sparse_categorical_crossentropy", metrics=["accuracy"])
    return trainerd.Experiment(
        trainerd.KerasEstimator(model, config=_settings(run_config)),
        train_input_fn=train_input,
        eval_input_fn=eval_input,
        train_steps=STEPS,
        eval_steps=None,
        train_monitors=[Slowly()],
        checkpoint_and_export=True,
        export_strategies=[trainerd.make_export_strategy(None, exports_to_keep=None)],
    )


def job() -> tuple[Any, Any, Any]:
    """A `trainerd.Job`, with a stop hook and an exporter of the best."""
    weights = tf.Variable(tf.zeros([sum(LENGTHS.values()), 2]))
    people, labels = _people(60, 2)

    def logits_of(features: Any) -> Any:
        return tf.matmul(tf.concat([features[name] for name in sorted(LENGTHS)], axis=1), weights)

    def loss_of(features: Any, labels: Any) -> Any:
        return tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(labels, logits_of(features)))

    def train_step(batch: Any) -> Any:
        with tf.GradientTape() as tape:
            loss = loss_of(*batch)
        weights.assign_sub(0.1 * tape.gradient(loss, weights))
        return loss

    def evaluate() -> dict[str, float]:
        right = tf.equal(tf.argmax(logits_of(people), axis=1), labels)
        return {"accuracy": float(tf.reduce_mean(tf.cast(right, tf.float32))), "loss": float(loss_of(people, labels))}

    def export(folder: Path) -> None:
        module = tf.Module()
        module.weights = weights
        tf.saved_model.save(module, str(folder))

    made = trainerd.Job(train_step, dataset=train_input(), state={"weights": weights}, evaluate=evaluate, export=export)
    estimator = trainerd.JobEstimator(made, config=_settings(trainerd.RunConfig()))
    stop = trainerd.stop_if_higher_hook(estimator, "accuracy", 0.99, run_every_secs=None, run_every_steps=10)
    exporter = trainerd.BestExporter("best", None, exports_to_keep=None)
    train_spec = trainerd.TrainSpec(None, max_steps=STEPS, hooks=[Slowly(), stop])
    return estimator, train_spec, trainerd.EvalSpec(None, steps=None, exporters=exporter, throttle_secs=0)


def _experiment(estimator: Any, **more: Any) -> trainerd.Experiment:
    return trainerd.Experiment(
        estimator, train_input_fn=train_input, eval_input_fn=eval_input, train_steps=STEPS, eval_steps=None, **more
    )


def _estimator(**more: Any) -> Any:
    config = _settings(trainerd.RunConfig())
    return trainerd.Estimator(census_model, config=config, params={"rate": 0.1}, **more)


class Long(tf1.train.SessionRunHook):  # type: ignore[misc,name-defined]
    """Batches of an evaluation that take long, until there is a file `fast`."""

    def after_run(self, run_context: Any, run_values: Any) -> None:
        """Wait."""
        if not Path("fast").exists():
            time.sleep(0.5)


def patient() -> trainerd.Experiment:
    """Its evaluations take long."""

    def batches() -> tf.data.Dataset:
        return tf.data.Dataset.from_tensor_slices(_people(40, 2)).batch(1)

    return trainerd.Experiment(
        _estimator(), train_input, batches, train_steps=40, eval_steps=None, eval_hooks=[Long()], check_interval_secs=0
    )


def trainer() -> trainerd.Experiment:
    """Trains alone: another process evaluates."""
    return _experiment(_estimator(), train_monitors=[Slowly()], min_eval_frequency=0)


def evaluator() -> trainerd.Experiment:
    """Evaluates what another process trains, in `run`."""
    return _experiment(_estimator(model_dir="run"), eval_delay_secs=0, continuous_eval_throttle_secs=0.1)


def elsewhere() -> trainerd.Experiment:
    """Its folder is not the run directory."""
    return _experiment(_estimator(model_dir="/somewhere/else"))


def without_train_op() -> trainerd.Experiment:
    """Its model_fn forgets the train_op."""

    def model_fn(features: Any, labels: Any, mode: str) -> Any:
        return tf_estimator.EstimatorSpec(mode)

    return _experiment(trainerd.Estimator(model_fn))


def without_input() -> trainerd.Experiment:
    """Its input function forgets to return something."""
    return trainerd.Experiment(_estimator(), lambda: None, eval_input, train_steps=STEPS)


if __name__ == "__main__":
    folder = sys.argv[2]
    if sys.argv[1] == "census":
        trainerd.run_experiment(census, run_config=trainerd.RunConfig(model_dir=folder))
    elif sys.argv[1] == "schedule":
        trainerd.run_experiment(schedule, folder, "continuous_train_and_eval")
    else:
        estimator, train_spec, eval_spec = recommender(folder)
        trainerd.train_and_evaluate(estimator, train_spec, eval_spec)
