"""What a program makes after its checkpoint was read: it is restored then, or refused where it does not fit."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf

import trainerd
from tests.tensorflow.models import Heads
from trainerd.errors import DataError, StorageError
from trainerd.sessions.tf2.numbers import Numbers

X = np.random.default_rng(1).normal(size=(8, 4)).astype(np.float32)


class Unbuilt(keras.Model):  # type: ignore[misc]
    """Keras makes its variables in fit's first batch, where it is not built before."""

    def __init__(self, listed: bool) -> None:
        super().__init__()
        keras.utils.set_random_seed(5)
        layers = [keras.layers.Dense(3), keras.layers.Dense(1)]
        if listed:
            self.blocks = layers
        else:
            self.first, self.second = layers

    def call(self, x: Any) -> Any:
        first, second = self.blocks if hasattr(self, "blocks") else (self.first, self.second)
        return second(first(x))


@pytest.mark.filterwarnings("ignore:Gradients do not exist")
@pytest.mark.parametrize("listed", [True, False])
def test_a_fit_that_makes_variables_too_late_to_restore_them_is_refused(tmp_path: Path, listed: bool) -> None:
    def fit(epochs: int, built: bool = False) -> Any:
        model = Unbuilt(listed)
        if built:
            model(X)
        model.compile("sgd", "mse")
        with trainerd.keras.Supervise(str(tmp_path)) as supervise:
            return model.fit(X, X[:, :1], epochs=epochs, verbose=0, callbacks=[supervise]).history["loss"]

    saved = tmp_path / "model.ckpt-2"
    whole = fit(2)
    content = saved.with_suffix(".ckpt-2.data-00000-of-00001").read_bytes()
    with pytest.raises(DataError, match=r"subclassed and not built cannot be matched: call model\.build"):
        fit(4)
    assert tf.train.latest_checkpoint(str(tmp_path)) == str(saved)
    assert saved.with_suffix(".ckpt-2.data-00000-of-00001").read_bytes() == content
    assert fit(4, built=True)[0] < whole[-1]


def run(logdir: Path, what: str) -> list[float]:
    """A program of two functions: one of a model that it makes when it is first called, and one of a count.

    The model's name in the checkpoint has what separates names there.
    """
    model, count = Unbuilt(True), tf.Variable(0.0)
    functions = {
        "model": lambda: model(X)[0, 0] * 0.0 + model.blocks[0].bias.assign_add(tf.ones([3]))[0],
        "count": lambda: count.assign_add(1.0),
    }
    checkpoint = tf.train.Checkpoint(**{"a/my.model": model, "count": count})
    with trainerd.Supervisor(checkpoint=checkpoint, logdir=str(logdir)).managed_session() as session:
        return [float(session.run(functions[what])) for _ in range(3)]


def test_nothing_is_saved_until_what_is_in_a_list_has_its_values(tmp_path: Path) -> None:
    before = run(tmp_path, "model")
    with pytest.raises(StorageError, match="what was restored has not all its variables yet"):
        run(tmp_path, "count")
    assert run(tmp_path, "model")[0] > before[-1]


def test_an_optimizer_that_is_built_late_tracks_what_was_restored_from_a_list(tmp_path: Path) -> None:
    def run(steps: int) -> list[float]:
        model, optimizer = Unbuilt(True), keras.optimizers.SGD(0.1, momentum=0.9)
        model(X)

        def step() -> Any:
            with tf.GradientTape() as tape:
                loss = tf.reduce_mean(model(X) ** 2)
            optimizer.apply(tape.gradient(loss, model.trainable_variables), model.trainable_variables)
            return loss

        checkpoint = tf.train.Checkpoint(model=model, optimizer=optimizer)
        with trainerd.Supervisor(checkpoint=checkpoint, logdir=str(tmp_path / str(steps))).managed_session() as session:
            return [float(session.run(step)) for _ in range(steps)]

    assert run(3) + run(3) == run(6)


def test_what_takes_the_place_of_what_was_to_be_restored_is_refused(tmp_path: Path) -> None:
    def run(replaces: bool) -> None:
        module = tf.Module()
        module.first, module.second = tf.Variable(1.0), tf.Variable(1.0)
        checkpoint = tf.train.Checkpoint(module=module)
        with trainerd.Supervisor(checkpoint=checkpoint, logdir=str(tmp_path)).managed_session() as session:
            if replaces:
                module.second = tf.Variable(9.0)
            session.run(lambda: module.first.assign_add(1.0))

    run(False)
    with pytest.raises(DataError, match="does not fit the program"):
        run(True)
    assert tf.train.latest_checkpoint(str(tmp_path)) == str(tmp_path / "model.ckpt-1")


class Number(tf.train.experimental.PythonState):  # type: ignore[misc]
    def serialize(self) -> str:
        return "1"

    def deserialize(self, string_value: str) -> None:
        pass


@pytest.mark.parametrize(
    "make",
    [
        Number,
        lambda: tf.lookup.experimental.MutableHashTable(tf.int64, tf.int64, 0),
        lambda: tf.lookup.experimental.DenseHashTable(tf.int64, tf.int64, 0, -1, -2),
    ],
)
def test_what_has_a_state_and_takes_the_place_of_another_is_refused_too(
    tmp_path: Path, make: Callable[[], Any]
) -> None:
    def run(replaces: bool) -> None:
        count = tf.Variable(0.0)
        checkpoint = tf.train.Checkpoint(count=count, part=make())
        with trainerd.Supervisor(checkpoint=checkpoint, logdir=str(tmp_path)).managed_session() as session:
            if replaces:
                checkpoint.part = make()
            session.run(lambda: count.assign_add(1.0))

    run(False)
    with pytest.raises(DataError, match="does not fit the program"):
        run(True)


def test_an_iterator_may_be_remade_for_each_epoch(tmp_path: Path) -> None:
    """Also right after a restore at an epoch's end, and while an optimizer is not built yet."""

    def run(steps: int) -> list[float]:
        weight, optimizer, dataset = tf.Variable(1.0), keras.optimizers.Adam(0.5), tf.data.Dataset.range(4)
        checkpoint = tf.train.Checkpoint(weight=weight, optimizer=optimizer, batches=iter(dataset))
        found = []

        @tf.function
        def step() -> tf.Tensor:
            optimizer.apply([weight * 2.0], [weight])
            return weight.read_value()

        with trainerd.Supervisor(checkpoint=checkpoint, logdir=str(tmp_path / str(steps))).managed_session() as session:
            for _ in range(steps):
                try:
                    next(checkpoint.batches)
                except StopIteration:
                    checkpoint.batches = iter(dataset)
                    next(checkpoint.batches)
                found.append(float(session.run(step)))
        return found

    assert run(8) == run(4) + run(4)


def test_a_part_that_is_new_is_refused_whenever_it_is_made(tmp_path: Path) -> None:
    class Late(keras.layers.Layer):  # type: ignore[misc]
        def __init__(self, count: int) -> None:
            super().__init__()
            self.count = count

        def build(self, shape: Any) -> None:
            self.blocks = [keras.layers.Dense(4) for _ in range(self.count)]
            super().build(shape)

        def call(self, x: Any) -> Any:
            for block in self.blocks:
                x = block(x)
            return x

    def run(blocks: int, *names: str) -> None:
        model, count = keras.Sequential([Late(blocks)]), tf.Variable(0.0)
        steps = {"model": lambda: tf.reduce_sum(model(X)), "count": lambda: count.assign_add(1.0)}
        checkpoint = tf.train.Checkpoint(model=model, count=count)
        with trainerd.Supervisor(checkpoint=checkpoint, logdir=str(tmp_path)).managed_session() as session:
            for name in names:
                session.run(steps[name])

    run(1, "model")
    with pytest.raises(DataError, match="It has no value for hidden/model/"):
        run(2, "count", "model")
    run(1, "count", "model")


def test_a_checkpoint_of_variables_of_other_names_does_not_fit(tmp_path: Path) -> None:
    tf1 = tf.compat.v1
    with tf.Graph().as_default(), tf1.Session() as session:
        tf1.get_variable("theirs", initializer=3.0)
        session.run(tf1.global_variables_initializer())
        tf1.train.Saver().save(session, str(tmp_path / "model.ckpt"), global_step=7)
    mine = tf.Variable(1.0, name="mine")
    with (
        pytest.raises(DataError, match="does not fit the program"),
        trainerd.Supervisor(checkpoint=tf.train.Checkpoint(w=mine), logdir=str(tmp_path)).managed_session() as running,
    ):
        running.run(lambda: mine.assign_add(1.0))


def test_a_part_of_an_unbuilt_sequential_may_be_built(tmp_path: Path) -> None:
    """A pretrained model within a new one: where it stands is another place once all is built."""

    def model() -> Any:
        keras.utils.set_random_seed(3)
        first = keras.Input((4,))
        pretrained = keras.Model(first, keras.layers.Dense(3, "relu")(first))
        return keras.Sequential([keras.layers.Rescaling(0.5), pretrained, keras.layers.Dense(1)])

    def fitted(logdir: Path, epochs: int, **options: Any) -> list[Any]:
        made = model()
        made.compile(keras.optimizers.SGD(0.1), "mse")
        with trainerd.keras.Supervise(str(logdir)) as supervise:
            made.fit(X, X[:, :1], shuffle=False, epochs=epochs, verbose=0, callbacks=[supervise])
        return list(made.get_weights())

    def in_session(logdir: Path, steps: int) -> list[Any]:
        made = model()

        def step() -> tf.Tensor:
            with tf.GradientTape() as tape:
                loss = tf.reduce_mean((made(X) - X[:, :1]) ** 2)
            for variable, slope in zip(
                made.trainable_variables, tape.gradient(loss, made.trainable_variables), strict=True
            ):
                variable.assign_sub(0.1 * slope)
            return loss

        checkpoint = tf.train.Checkpoint(model=made)
        with trainerd.Supervisor(checkpoint=checkpoint, logdir=str(logdir)).managed_session() as session:
            return [session.run(step) for _ in range(steps)]

    fitted(tmp_path / "parts", 2)
    for one, other in zip(fitted(tmp_path / "whole", 4), fitted(tmp_path / "parts", 4), strict=True):
        assert np.array_equal(one, other)
    assert in_session(tmp_path / "a", 4) == in_session(tmp_path / "b", 2) + in_session(tmp_path / "b", 2)


def test_a_fit_whose_model_has_lost_a_part_is_refused_after_a_step_and_saves_nothing(tmp_path: Path) -> None:
    def fit(names: str, epochs: int) -> None:
        model = Heads(names)
        model.call = lambda x: sum(head(x) for head in model.heads.values())
        model.compile("sgd", "mse")
        data = tf.data.Dataset.from_tensors((X, X[:, :1])).repeat()
        with trainerd.keras.Supervise(str(tmp_path)) as supervise:
            options = {"steps_per_epoch": 5, "epochs": epochs, "verbose": 0, "shuffle": False}
            try:
                model.fit(data, callbacks=[supervise], **options)
            finally:
                steps.append(supervise.step)

    steps: list[int] = []
    fit("abc", 1)
    with pytest.raises(DataError, match="hidden/model/heads/c"):
        fit("ab", 2)
    assert steps == [5, 6] and [path.name for path in tmp_path.glob("*.index")] == ["model.ckpt-5.index"]


class Warmup(keras.optimizers.schedules.LearningRateSchedule):  # type: ignore[misc]
    """Has no `get_config`, as those of many tutorials."""

    def __call__(self, step: Any) -> Any:
        return 0.1 * tf.minimum(tf.cast(step, tf.float32) / 10.0, 1.0)


class Several(keras.optimizers.SGD):  # type: ignore[misc]
    """Has no learning rate of its own, as Keras's MultiOptimizer."""

    @property
    def learning_rate(self) -> Any:
        raise AttributeError("Learning rate cannot be accessed.")


def test_a_learning_rate_can_be_set_where_it_is_a_variable() -> None:
    def read(rate: Any) -> dict[str, Any]:
        return Numbers({"optimizer": keras.optimizers.Adam(rate)}, {}).read()

    assert read(0.5)["learning_rate"].value == 0.5
    for scheduled in (Warmup(), keras.optimizers.schedules.CosineDecay(0.1, 9), lambda: 0.5):
        assert "follows a schedule" in (read(scheduled)["learning_rate"].fixed or "")
    assert Numbers({"optimizer": Several()}, {}).read() == {}
