"""What `tf.train.Checkpoint` does not find of a model is saved beside it, and goes on."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf

import trainerd
from tests.cases import every
from tests.tensorflow.models import Heads
from trainerd.checkpoints.contents.device_copies import key_of_copy, restore_copies
from trainerd.checkpoints.contents.keras_variables import hidden_variables, is_inner, is_of_metrics
from trainerd.checkpoints.contents.object_graph import own_objects, variables_among
from trainerd.errors import DataError, EntryError
from trainerd.loop.flag import Flag
from trainerd.sessions.keras.job_session import KerasJobSession
from trainerd.sessions.tf2.job_session import FunctionSession

X = np.random.default_rng(1).normal(size=(8, 4)).astype(np.float32)


class Late(keras.layers.Layer):  # type: ignore[misc]
    """Makes its dropout when it is first called, after that of the layer behind it was made."""

    def build(self, shape: Any) -> None:
        self.inner = keras.layers.Dropout(0.5, seed=3)
        super().build(shape)

    def call(self, x: Any, training: bool = False) -> Any:
        return self.inner(x, training=training)


def dropping() -> Any:
    keras.utils.set_random_seed(7)
    return keras.Sequential([Late(), keras.layers.Dropout(0.3, seed=5), keras.layers.Dense(1)])


class Holder(tf.Module):  # type: ignore[misc]
    def __init__(self, model: Any) -> None:
        super().__init__()
        self.models = [model]
        self.myself = self


def hidden(state: dict[str, Any]) -> dict[str, Any]:
    return hidden_variables(state, variables_among(own_objects(tf.train.Checkpoint(**state))))


def itself(model: Any) -> Any:
    return model


def deep_within(model: Any) -> Any:
    return {"a": [Holder(tf.train.Checkpoint(model=model))]}


Wrap = Callable[[Any], Any]


def trained(logdir: Path, wrap: Wrap, steps: int) -> list[float]:
    """A program that builds its model in its first step; the loss of each step."""
    model, optimizer = dropping(), keras.optimizers.SGD(0.01)

    def step() -> tf.Tensor:
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(model(X, training=True) ** 2)
        optimizer.apply(tape.gradient(loss, model.trainable_variables), model.trainable_variables)
        return loss

    checkpoint = tf.train.Checkpoint(part=wrap(model), optimizer=optimizer)
    with trainerd.Supervisor(checkpoint=checkpoint, logdir=str(logdir)).managed_session() as session:
        return [float(session.run(step)) for _ in range(steps)]


@pytest.mark.parametrize("wrap", [itself, deep_within])
def test_seeds_resume_wherever_the_model_is_and_whenever_it_is_built(tmp_path: Path, wrap: Wrap) -> None:
    whole = trained(tmp_path / "whole", wrap, 6)
    parts = trained(tmp_path / "parts", wrap, 3) + trained(tmp_path / "parts", wrap, 3)
    assert parts == whole and len(set(whole)) == 6


def test_what_has_a_name_like_keras_s_is_looked_through() -> None:
    class Odd(tf.Module):  # type: ignore[misc]
        def __init__(self, weights: Any) -> None:
            super().__init__()
            self.weights, self.norm, self.model = weights, keras.layers.BatchNormalization, dropping()
            self.model(X)

    for weights in (None, tf.Variable(1.0), tf.Variable(tf.zeros([9])), keras.layers.Dense):
        assert len(hidden({"odd": Odd(weights)})) == 2


@pytest.mark.parametrize("wrap", [itself, Holder, lambda model: tf.train.Checkpoint(model=model), deep_within])
def test_each_hidden_variable_is_found_once(wrap: Wrap) -> None:
    model = dropping()
    model(X)
    for state in ({"part": wrap(model)}, {"one": model, "two": wrap(model)}):
        found = hidden(state)
        assert len(found) == 2 and len({id(variable) for variable in found.values()}) == 2


# ---------------------------------------------------------------------- what is in a list of a Keras model


class Listed(keras.Model):  # type: ignore[misc]
    """All that decides its next step is in lists and dicts."""

    def __init__(self) -> None:
        super().__init__()
        keras.utils.set_random_seed(11)
        self.blocks = [keras.layers.Dense(3), [keras.layers.BatchNormalization(), keras.layers.Dropout(0.4, seed=2)]]
        self.heads = {"one": keras.layers.Dense(1, trainable=False)}
        self.optimizers = [keras.optimizers.Adam(0.01), keras.optimizers.SGD(0.01, momentum=0.9)]
        self.others = {"noise": [tf.random.Generator.from_seed(4)], "scale": tf.Variable(1.0, trainable=False)}

    def call(self, x: Any, training: bool = False) -> Any:
        first, (norm, drop) = self.blocks
        return self.heads["one"](drop(norm(first(x), training=training), training=training))

    def train_step(self, x: Any) -> dict[str, Any]:
        with tf.GradientTape() as tape:
            noise = self.others["noise"][0].normal([8, 1])
            loss = tf.reduce_mean((self(x, training=True) - noise) ** 2) * self.others["scale"]
        self.others["scale"].assign(0.9 * self.others["scale"] + 0.2)
        variables = self.trainable_variables
        gradients = tape.gradient(loss, variables)
        self.optimizers[0].apply(gradients[:2], variables[:2])
        self.optimizers[1].apply(gradients[2:], variables[2:])
        return {"loss": loss}


def in_a_session(logdir: Path, steps: int) -> list[float]:
    model = Listed()
    checkpoint = tf.train.Checkpoint(model=model)
    with trainerd.Supervisor(checkpoint=checkpoint, logdir=str(logdir)).managed_session() as session:
        return [float(session.run(lambda: model.train_step(X)["loss"])) for _ in range(steps)]


def in_a_job(logdir: Path, steps: int) -> list[float]:
    model = Listed()
    model.compile()
    data = tf.data.Dataset.from_tensors(X).repeat()
    session = KerasJobSession(trainerd.KerasJob(model, data, steps_per_epoch=1000), repeats=True)
    session.bind(Flag())
    if saved := sorted(logdir.glob("*.index")):
        session.restore(saved[-1].with_suffix(""))
    losses = session.run_until(session.step + steps).rows[:, 0].tolist()
    logdir.mkdir(exist_ok=True)
    session.snapshot().write(logdir / f"model.ckpt-{session.step}", lambda moved: None)
    return [round(loss, 6) for loss in losses]


@pytest.mark.parametrize("train", every(3, [in_a_job, in_a_session]))
def test_what_is_in_a_list_of_a_model_resumes(tmp_path: Path, train: Callable[[Path, int], list[float]]) -> None:
    """Keras has lists and dicts of its own there, into which `tf.train.Checkpoint` does not look."""
    whole = train(tmp_path / "whole", 6)
    parts = train(tmp_path / "parts", 3) + train(tmp_path / "parts", 3)
    assert parts == whole and len(set(whole)) == 6


class Counting(keras.metrics.Metric):  # type: ignore[misc]
    def __init__(self) -> None:
        super().__init__(name="counting")
        self.counts = {"all": tf.Variable(0.0)}

    def update_state(self, *reported: Any, **more: Any) -> None:
        self.counts["all"].assign_add(1.0)

    def result(self) -> Any:
        return self.counts["all"] + 0.0

    def reset_state(self) -> None:
        self.counts["all"].assign(0.0)


class Warming(keras.losses.Loss):  # type: ignore[misc]
    def __init__(self, has_count: bool = True) -> None:
        super().__init__()
        self.count = keras.Variable(0.0) if has_count else None

    def call(self, wanted: Any, given: Any) -> Any:
        if self.count is not None:
            self.count.assign_add(1.0)
        return keras.losses.mean_squared_error(wanted, given) * (1.0 if self.count is None else self.count.value)


class Falling(keras.optimizers.schedules.LearningRateSchedule):  # type: ignore[misc]
    def __init__(self) -> None:
        self.rate = tf.Variable(0.1)

    def __call__(self, step: Any) -> Any:
        return self.rate.assign(self.rate * 0.5)


class OptimizerInAList(keras.Sequential):  # type: ignore[misc]
    """Its train_step uses an optimizer that has a plain variable, and is in a list."""

    def __init__(self) -> None:
        super().__init__([keras.Input((4,)), keras.layers.Dense(1)])
        self.optimizers = [keras.optimizers.SGD(Falling())]
        self.optimizers[0].extra = [tf.Variable(1.0)]

    def train_step(self, batch: Any) -> Any:
        x, y = batch
        with tf.GradientTape() as tape:
            loss = self.compute_loss(x, y, self(x, training=True))
        [optimizer], weights = self.optimizers, self.trainable_variables
        scale = optimizer.extra[0].assign_add(1.0)
        optimizer.apply([each * scale for each in tape.gradient(loss, weights)], weights)
        return self.compute_metrics(x, y, self(x), None)


def counting_job(loss: Any) -> KerasJobSession:
    keras.utils.set_random_seed(5)
    model = OptimizerInAList()
    model.compile("sgd", loss, metrics=[Counting()])
    data = tf.data.Dataset.from_tensors((X, X[:, :1])).repeat()
    session = KerasJobSession(trainerd.KerasJob(model, data, steps_per_epoch=1000), repeats=True)
    session.bind(Flag())
    return session


def test_plain_variables_of_metrics_optimizers_and_losses_are_saved(tmp_path: Path) -> None:
    whole, first, second = (counting_job(Warming()) for _ in range(3))
    rows = first.run_until(3).rows.tolist()
    first.snapshot().write(tmp_path / "model.ckpt-3", lambda moved: None)
    second.restore(tmp_path / "model.ckpt-3")
    rows += second.run_until(6).rows.tolist()
    assert rows == whole.run_until(6).rows.tolist() and len(set(map(tuple, rows))) == 6


def test_plain_variables_have_the_same_keys_before_and_after_training() -> None:
    model = OptimizerInAList()
    model.compile("sgd", Warming(), metrics=["mae", Counting()])
    before = {key for key in hidden({"model": model}) if is_inner(key)}
    model.fit(X, X[:, :1], verbose=0)
    assert {key for key in hidden({"model": model}) if is_inner(key)} == before
    assert {is_of_metrics(key) for key in before} == {True, False} and len(before) == 4


def test_checkpoint_without_a_loss_s_variable_is_restored_with_a_warning(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    older, newer = counting_job(Warming(has_count=False)), counting_job(Warming())
    older.run_until(3)
    older.snapshot().write(tmp_path / "model.ckpt-3", lambda moved: None)
    newer.restore(tmp_path / "model.ckpt-3")
    assert newer.step == 3
    [record] = [each for each in caplog.records if getattr(each, "event", "") == "hidden"]
    assert "the checkpoint has no values for 1 variables of metrics" in record.getMessage()
    assert "loss/.INNER/count. They keep their initial values" in record.getMessage()


def test_what_is_in_a_list_resumes_in_a_fit_whose_data_restarts(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Neither its metrics nor its optimizer are built when the checkpoint is read."""

    class Trained(Listed):
        def __init__(self) -> None:
            super().__init__()
            self.optimizers = []

        train_step = keras.Model.train_step

    def fit(epochs: int) -> list[Any]:
        model = Trained()
        model(X)
        model.compile(keras.optimizers.SGD(0.01), "mse", metrics=["mae"])
        with trainerd.keras.Supervise(str(tmp_path)) as supervise:
            model.fit(X, X[:, :1], batch_size=8, epochs=epochs, verbose=0, callbacks=[supervise])
        return [value.numpy() for value in model.variables]

    ended = fit(2)
    for one, other in zip(fit(2), ended, strict=True):  # there is no epoch left
        np.testing.assert_array_equal(one, other)
    assert not [each for each in caplog.records if getattr(each, "event", "") == "hidden"]


@pytest.mark.long
def test_metrics_of_a_compiled_model_within_a_model_may_be_others(tmp_path: Path) -> None:
    class Distiller(keras.Model):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.student = keras.Sequential([keras.Input((4,)), keras.layers.Dense(1)])
            self.student.compile("sgd", "mse", metrics=["mae"])

        def call(self, x: Any) -> Any:
            return self.student(x)

    epochs = 0
    for evaluates in (True, False, True):
        model = Distiller()
        model.compile("sgd", "mse")
        model(X)
        with trainerd.keras.Supervise(str(tmp_path)) as supervise:
            for _ in range(2):
                epochs += 1
                model.fit(X, X[:, :1], epochs=epochs, verbose=0, callbacks=[supervise])
                if evaluates:
                    model.student.evaluate(X, X[:, :1], verbose=0)
    assert supervise.step == 6


def test_what_is_in_a_dict_is_distinguished_by_its_keys(tmp_path: Path) -> None:
    def run(model: Heads) -> list[float]:
        with trainerd.Supervisor(
            checkpoint=tf.train.Checkpoint(model=model), logdir=str(tmp_path)
        ).managed_session() as session:
            session.run(lambda: tf.constant(0))
        return [float(model.heads[name].bias[0]) for name in "abc"]

    first = Heads("abc")
    for number, name in enumerate("abc"):
        first.heads[name].bias.assign([number + 1.0])
    assert [run(first), run(Heads("cab")), run(Heads("bca", more=True))] == [[1.0, 2.0, 3.0]] * 3
    with pytest.raises(DataError, match="It has no value for hidden/model/heads/d/"):
        run(Heads("abcd"))


def test_two_of_one_name_are_refused_and_metrics_are_only_keras_s() -> None:
    class Odd(keras.Model):  # type: ignore[misc]
        def __init__(self, parts: Any) -> None:
            super().__init__()
            self.parts = parts

    with pytest.raises(EntryError, match=r"two variables of the state have the name hidden/m/parts/1\. Rename one"):
        hidden({"m": Odd({1: tf.Variable(1.0), "1": tf.Variable(2.0)})})
    [key] = hidden({"metrics": Odd({"metrics": [tf.Variable(1.0)]})})
    assert not is_of_metrics(key)


def test_a_model_that_is_deep_and_holds_much_is_looked_through() -> None:
    class Deep(keras.layers.Layer):  # type: ignore[misc]
        def __init__(self, depth: int) -> None:
            super().__init__()
            self.inner = [Deep(depth - 1)] if depth else [tf.Variable(1.0), None]
            self.words, self.mixed = [str(number) for number in range(5000)], [0.5, None, tf.Variable(2.0)]

    assert len(hidden({"deep": Deep(60)})) == 62


def test_a_checkpoint_with_a_root_is_refused(tmp_path: Path) -> None:
    checkpoint = tf.train.Checkpoint(dropping(), count=tf.Variable(1.0))
    with pytest.raises(
        EntryError, match=r"has a part of type Sequential without a name: write tf.train.Checkpoint\(model=model"
    ):
        trainerd.Supervisor(checkpoint=checkpoint, logdir=str(tmp_path))


def several() -> Any:
    """An optimizer of two, whose slots no object graph names. It makes them when it is first used."""
    bias, other = keras.optimizers.Adam(0.01), keras.optimizers.SGD(0.05, momentum=0.9)
    return keras.optimizers.MultiOptimizer(lambda variable: bias if len(variable.shape) == 1 else other)


@pytest.mark.parametrize("kind", every(4, ["job", "state", "supervisor", "fit"]))
def test_the_slots_of_an_optimizer_of_several_are_saved(tmp_path: Path, kind: str) -> None:
    data = tf.data.Dataset.from_tensors((X, X[:, :1])).repeat(6)

    def train(folder: Path, start: int, end: int) -> Any:
        keras.utils.set_random_seed(3)
        model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(1)])
        model.compile(several(), "mse")
        optimizer = model.optimizer if kind != "state" else several()

        def step(*batch: Any) -> tf.Tensor:
            with tf.GradientTape() as tape:
                loss = tf.reduce_mean((model(X) - X[:, :1]) ** 2)
            optimizer.apply(tape.gradient(loss, model.trainable_variables), model.trainable_variables)
            return loss

        if kind == "fit":
            with trainerd.keras.Supervise(str(folder)) as supervise:
                model.fit(data.repeat(), steps_per_epoch=1, epochs=end, verbose=0, shuffle=False, callbacks=[supervise])
        elif kind == "supervisor":
            checkpoint = tf.train.Checkpoint(model=model)
            with trainerd.Supervisor(checkpoint=checkpoint, logdir=str(folder)).managed_session() as session:
                session.run(step, steps=end - start)
        else:
            job = trainerd.Job(step, dataset=data, state={"model": model, "optimizer": optimizer})
            session = FunctionSession(job) if kind == "state" else KerasJobSession(trainerd.KerasJob(model, data))
            session.bind(Flag())
            if start:
                session.restore(folder / f"model.ckpt-{start}")
            session.run_until(end)
            folder.mkdir(exist_ok=True)
            session.snapshot().write(folder / f"model.ckpt-{end}", lambda size: None)
        return [variable.numpy() for variable in [*model.variables, *optimizer.variables]]

    whole = train(tmp_path / "whole", 0, 5)
    train(tmp_path / "parts", 0, 3)
    for mine, theirs in zip(whole, train(tmp_path / "parts", 3, 5), strict=True):
        assert np.array_equal(mine, theirs)


def counted(state: Callable[[Any, Any, Any], dict[str, Any]]) -> FunctionSession:
    """A step that draws from a seed generator and measures with a metric, both of the job's own."""
    mean, seeds, total = keras.metrics.Mean(), keras.random.SeedGenerator(1), tf.Variable(0.0)

    def step() -> dict[str, tf.Tensor]:
        total.assign_add(keras.random.uniform([], seed=seeds))
        mean.update_state(total)
        return {"mean": mean.result()}

    return FunctionSession(trainerd.Job(step, state={"total": total, **state(mean, seeds, total)}), repeats=True)


@pytest.mark.parametrize(
    "state",
    [
        lambda mean, seeds, total: {"mean": mean, "seeds": seeds},
        lambda mean, seeds, total: {"parts": [mean, {"seeds": seeds}]},
    ],
)
def test_a_metric_and_a_seed_generator_of_the_state_resume(
    tmp_path: Path, state: Callable[[Any, Any, Any], dict[str, Any]]
) -> None:
    whole, first, second = counted(state), counted(state), counted(state)
    for session in (whole, first, second):
        session.bind(Flag())
    expected = whole.run_until(10).rows[5:]
    first.run_until(5)
    first.snapshot().write(tmp_path / "model.ckpt-5", lambda size: None)
    second.restore(tmp_path / "model.ckpt-5")
    assert second.run_until(10).rows.tobytes() == expected.tobytes()


@pytest.mark.parametrize("part", [3, X, keras.losses.MeanSquaredError(), keras.optimizers.schedules.CosineDecay(1, 9)])
def test_a_part_of_the_state_that_cannot_be_saved_is_named(part: Any) -> None:
    with pytest.raises(EntryError, match=r"a part 'odd', which is an? \w+ and holds no variables .* Leave it out"):
        FunctionSession(trainerd.Job(lambda: None, state={"odd": part}))


@pytest.mark.parametrize(("devices", "values"), [(1, [0.0]), (2, [1.0, 2.0]), (3, [0.0, 0.0, 0.0])])
def test_copies_are_restored_if_as_many_devices_saved_them(tmp_path: Path, devices: int, values: list[float]) -> None:
    prefix, saved = str(tmp_path / "model.ckpt-1"), {"replicas/0/mean": 1.0, "replicas/1/mean": 2.0}
    tf.raw_ops.SaveV2(prefix=prefix, tensor_names=[*saved], shape_and_slices=[""] * 2, tensors=[*saved.values()])
    copies = {key_of_copy(device, "mean"): tf.Variable(0.0) for device in range(devices)}
    assert restore_copies(Path(prefix), copies) is (devices == 2)
    assert [copy.numpy() for copy in copies.values()] == values
