"""A task of a cluster of TensorFlow 1: `python ps_programs.py KIND HOW`, with TF_CONFIG."""

from __future__ import annotations

import json
import os
import sys
from typing import Any

import tensorflow.compat.v1 as tf

import trainerd

LAST = int(os.environ.get("LAST", "3000"))


def own_loop(how: str) -> None:
    """A program with a loop of its own, as those of that time were."""
    found = json.loads(os.environ["TF_CONFIG"])
    task, cluster = found["task"], tf.train.ClusterSpec(found["cluster"])
    server = tf.distribute.Server(cluster, job_name=task["type"], task_index=task["index"])
    if task["type"] == "ps":
        server.join()
    is_chief, now = task["index"] == 0, 0
    with tf.device(tf.train.replica_device_setter(worker_device=f"/job:worker/task:{task['index']}", cluster=cluster)):
        step = tf.train.get_or_create_global_step()
        weight = tf.get_variable("weight", [], initializer=tf.zeros_initializer())
        train = tf.train.GradientDescentOptimizer(0.001).minimize(tf.square(weight - 3.0), global_step=step)
    if how == "monitored":
        hooks = [tf.train.StopAtStepHook(last_step=LAST)]
        with trainerd.MonitoredTrainingSession(
            master=server.target, is_chief=is_chief, checkpoint_dir="run", hooks=hooks, save_checkpoint_secs=1
        ) as session:
            while not session.should_stop():
                _, now = session.run([train, step])
    else:
        supervisor = trainerd.Supervisor(
            is_chief=is_chief, logdir="run", save_model_secs=1, global_step=step, recovery_wait_secs=1
        )
        with supervisor.managed_session(server.target) as session:
            while not supervisor.should_stop() and now < LAST:
                _, now = session.run([train, step])
    print(f"ended at {now}")


def model_fn(features: Any, labels: Any, mode: str) -> trainerd.EstimatorSpec:
    weight = tf.get_variable("weight", [], initializer=tf.zeros_initializer())
    loss = tf.reduce_mean(tf.square(weight * features - labels))
    train = tf.train.GradientDescentOptimizer(0.01).minimize(loss, global_step=tf.train.get_global_step())
    return trainerd.EstimatorSpec(mode, loss=loss, train_op=train)


def data() -> tf.data.Dataset:
    return tf.data.Dataset.from_tensors((tf.constant([1.0, 2.0]), tf.constant([3.0, 6.0]))).repeat()


def experiment(run_config: trainerd.RunConfig, hparams: Any) -> trainerd.Experiment:
    estimator = trainerd.Estimator(model_fn, config=run_config)
    return trainerd.Experiment(estimator, data, data, train_steps=LAST, eval_steps=2, min_eval_frequency=500)


if __name__ == "__main__":
    tf.disable_v2_behavior()
    if sys.argv[1] == "experiment":
        print(trainerd.run_experiment(experiment, run_config=trainerd.RunConfig(model_dir="run"), hparams=None))
    else:
        own_loop(sys.argv[1])
