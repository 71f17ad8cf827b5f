"""Programs and jobs of several devices: four logical devices on the CPU, which behave as GPUs do.

They are named before anything else of TensorFlow is used, so each test has a process of its own.
"""

from __future__ import annotations

import functools
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, get_args

import keras
import numpy as np
import tensorflow as tf

import trainerd
from trainerd.checkpoints.contents.device_copies import copies_of
from trainerd.checkpoints.contents.state_readers import reader_of
from trainerd.checkpoints.format.snapshotter import Snapshotter
from trainerd.checkpoints.snapshot import Kept

tf.config.set_logical_device_configuration(
    tf.config.list_physical_devices("CPU")[0], [tf.config.LogicalDeviceConfiguration()] * 4
)


def data(count: int) -> Any:
    """Return so many examples: x, float32, shape [count, 4], and their sums, shape [count, 1]."""
    x = np.random.default_rng(0).normal(size=(count, 4)).astype("float32")
    return x, x.sum(axis=1, keepdims=True)


def model(*more: Any, synchronized: bool = False, built: bool = True) -> Any:
    """Return a compiled model with a BatchNormalization and more layers.

    No bias before the BatchNormalization: its gradient is nothing but rounding, which Adam makes a step of.
    """
    keras.utils.set_random_seed(1)
    first = [keras.Input((4,))] if built else []
    norm = keras.layers.BatchNormalization(synchronized=synchronized)
    found = keras.Sequential([*first, keras.layers.Dense(8, use_bias=False), norm, *more, keras.layers.Dense(1)])
    found.compile(keras.optimizers.Adam(0.01), "mse", metrics=["mae"])
    return found


@functools.cache  # two in a process would take each other's messages
def strategy(devices: int) -> Any:
    """Return the strategy of so many devices."""
    return tf.distribute.MirroredStrategy([f"CPU:{number}" for number in range(devices)])


def job() -> trainerd.KerasJob:
    """Return a job with epochs whose last batch does not divide, random numbers, statistics and a validation."""
    x, y = data(93)
    made = model(keras.layers.Dropout(0.3))
    return trainerd.KerasJob(made, data=(x, y), batch_size=8, epochs=30, validation_data=(x, y))


def functions() -> trainerd.Job:
    """Return a Job with a variable that is the mean over the devices, and one that each device has for itself."""
    made = model()
    average, own = tf.Variable(0.0, aggregation=tf.VariableAggregation.MEAN), tf.Variable(0.0, trainable=False)
    x, y = data(96)

    def train_step(batch: Any) -> dict[str, tf.Tensor]:
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean((made(batch[0], training=True) - batch[1]) ** 2)
            part = loss / trainerd.strategy().num_replicas_in_sync
        gradients = tape.gradient(part, made.trainable_variables)
        made.optimizer.apply_gradients(zip(gradients, made.trainable_variables, strict=True))
        average.assign(0.9 * average + loss)
        own.assign_add(loss)
        return {"loss": loss, "examples": tf.shape(batch[0])[0]}

    dataset = tf.data.Dataset.from_tensor_slices((x, y)).shuffle(96, seed=1).batch(8, drop_remainder=True).repeat()
    return trainerd.Job(train_step, dataset=dataset, state={"model": made, "average": average, "own": own})


def graph() -> trainerd.GraphJob:
    """Return a graph of TensorFlow 1, which trains on one device."""
    with tf.Graph().as_default() as found:
        step = tf.compat.v1.train.get_or_create_global_step()
        return trainerd.GraphJob(found, train_op=tf.compat.v1.assign_add(step, 1))


def lost() -> trainerd.Job:
    """Return a job that calls Python on each device; the second one fails at its 20th step, once."""
    weight = tf.Variable(0.0, aggregation=tf.VariableAggregation.SUM)
    mark = Path(__file__).with_name("lost")

    def check(number: tf.Tensor, device: tf.Tensor) -> tf.Tensor:
        if number == 20 and device == 1 and not mark.exists():
            mark.touch()
            raise RuntimeError("the device is gone")
        return tf.cast(number, tf.float32)

    def train_step(numbers: tf.Tensor) -> dict[str, tf.Tensor]:
        context = tf.distribute.get_replica_context()
        device = tf.convert_to_tensor(context.replica_id_in_sync_group)
        weight.assign_add(tf.py_function(check, [numbers[0], device], tf.float32) / 2)
        return {"weight": weight.read_value()}

    numbers = tf.data.Dataset.range(1, 1000).map(lambda number: tf.stack([number, number]))
    return trainerd.Job(train_step, dataset=numbers, state={"weight": weight})


def fitted(made: Any, count: int, logdir: str = "") -> list[Any]:
    """Return the losses and weights after two epochs of `trainerd.keras.fit`; of Keras's own without a logdir."""
    given: dict[str, Any] = {"batch_size": 8, "epochs": 2, "shuffle": False, "verbose": 0}
    x, y = data(count)
    found = trainerd.keras.fit(made, x, y, logdir=logdir, **given) if logdir else made.fit(x, y, **given)
    weights = np.concatenate([np.ravel(each) for each in made.get_weights()])
    return [*found.history["loss"], *found.history["mae"], *map(float, weights)]


def refused(call: Callable[[], object]) -> str:
    """Return what a call is refused with."""
    try:
        call()
    except trainerd.TrainerdError as error:
        return str(error)
    return "nothing"


def supervised(logdir: str, end: int) -> list[float]:
    """Return the values of all devices after a program with a Supervisor, which starts anew and trains to this step."""
    with strategy(2).scope():
        made = model(keras.layers.Dropout(0.3))
        made.optimizer.build(made.trainable_variables)
    batches = iter(tf.data.Dataset.from_tensor_slices(data(96)[0]).shuffle(96, seed=1).batch(8).repeat())

    def learn(x: tf.Tensor) -> tf.Tensor:
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean((made(x, training=True) - tf.reduce_sum(x, 1, keepdims=True)) ** 2) / 2
        gradients = tape.gradient(loss, made.trainable_variables)
        made.optimizer.apply_gradients(zip(gradients, made.trainable_variables, strict=True))
        return loss

    def step() -> dict[str, tf.Tensor]:
        parts = tf.split(next(batches), 2)
        part = strategy(2).experimental_distribute_values_from_function(
            lambda context: parts[context.replica_id_in_sync_group]
        )
        return {"loss": strategy(2).reduce("sum", strategy(2).run(learn, args=(part,)), axis=None)}

    checkpoint = tf.train.Checkpoint(model=made, optimizer=made.optimizer, batches=batches)
    with trainerd.Supervisor(logdir=logdir, checkpoint=checkpoint).managed_session() as session:
        session.run(step, steps=end - session.step)
    values = [np.ravel(copy) for each in made.variables for copy in copies_of(each)]
    return [float(each) for each in np.concatenate(values)]


def memory(kept: Kept) -> dict[str, int]:
    """Return how many buffers and bytes the weights of two devices and a snapshot have, before and after a step."""
    with strategy(2).scope():
        weights = [tf.Variable(tf.ones([1000, 10]), name=f"weight_{number}") for number in range(3)]
    checkpoint = tf.train.Checkpoint(weights=weights)
    snapshotter = Snapshotter(checkpoint, {})
    in_place = reader_of(checkpoint, {}).read_in_place
    assert in_place is not None and all(tf.reduce_all(each == 1.0) for each in in_place()[:3])

    def live() -> dict[int, int]:
        tensors = [tf.convert_to_tensor(copy) for each in weights for copy in copies_of(each)]
        tensors += [item.tensor for item in snapshot.items if item.tensor.dtype == tf.float32]
        arrays = [np.asarray(memoryview(each)) for each in tensors]
        return {each.__array_interface__["data"][0]: each.nbytes for each in arrays}

    step = tf.function(lambda: [each.assign_add(tf.ones([1000, 10])) for each in weights])
    strategy(2).run(step)  # until then both devices have the initial value, in one buffer
    snapshot = snapshotter.take(1, kept)
    before = live()
    strategy(2).run(step)
    after = live()
    assert all(tf.reduce_all(item.tensor == 2.0) for item in snapshot.items if item.tensor.dtype == tf.float32)
    moved = len(set(after) - set(before))
    return {"before": len(before), "after": len(after), "bytes": sum(after.values()), "moved": moved}


def compare(devices: int) -> dict[str, Any]:
    """Return the results of `trainerd.keras.fit` with so many devices and with one; with two also those of Keras."""

    def made(**options: Any) -> Any:
        with strategy(devices).scope():
            return model(**options)

    alone, near = fitted(model(), 96, "alone"), fitted(made(synchronized=True), 96, "near")
    if devices != 2:
        return {"alone": alone, "near": near}
    unbuilt = fitted(made(synchronized=True, built=False), 96, "unbuilt")
    same = [fitted(made(), count, logdir) for count in (96, 93) for logdir in (f"same-{count}", "")]
    found = {"reasons": reasons(made()), "memory": {kept: memory(kept) for kept in get_args(Kept)}}
    supervised("in-parts", 17)
    functions = supervised("in-parts", 40), supervised("whole", 40)
    return {"alone": alone, "near": near, "unbuilt": unbuilt, "same": same, "functions": functions, **found}


def reasons(mirrored: Any) -> dict[str, str]:
    """Return what wrong calls are refused with."""
    dataset = tf.data.Dataset.from_tensor_slices(data(96)).batch(8)
    with tf.distribute.OneDeviceStrategy("CPU:1").scope():
        on_one = model()

    def inside() -> None:
        with strategy(2).scope():
            fitted(mirrored, 96, "refused")

    def supervised_inside() -> None:
        with strategy(2).scope():
            mirrored.fit(dataset, verbose=0, callbacks=[trainerd.keras.Supervise("refused")])

    def distributed() -> None:
        parted = strategy(2).experimental_distribute_dataset(dataset)
        trainerd.keras.fit(mirrored, parted, epochs=1, logdir="refused")

    def eager() -> None:
        mirrored.run_eagerly = True
        fitted(mirrored, 96, "refused")

    return {
        "an example": refused(lambda: fitted(mirrored, 97, "refused")),
        "in the scope": refused(inside),
        "supervised in the scope": refused(supervised_inside),
        "another kind": refused(lambda: fitted(on_one, 96, "refused")),
        "distributed": refused(distributed),
        "settings": refused(lambda: trainerd.keras.fit(mirrored, dataset, logdir="x", settings={"devices": 2})),
        "eager": refused(eager),
    }


if __name__ == "__main__":
    print(json.dumps(compare(int(sys.argv[1]))))
