"""Layers that change places between two starts are noticed by the names that the user gave them."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf

import trainerd
from trainerd.checkpoints.contents.variable_names import NAMES_KEY, Named, changes, packed
from trainerd.errors import DataError
from trainerd.loop.flag import Flag
from trainerd.sessions.keras.job_session import KerasJobSession
from trainerd.sessions.tf2.job_session import FunctionSession

X = np.ones((4, 4), np.float32)


def functional(*names: str | None, frozen: str = "") -> Any:
    """A model with a layer of each name, in this order; None: a name that Keras makes."""
    inputs = keras.Input((4,))
    layers = [keras.layers.Dense(4, name=name) for name in names]
    model = keras.Model(inputs, keras.layers.Add()([layer(inputs) for layer in layers]))
    if frozen:
        model.get_layer(frozen).trainable = False
    return model


class Attributes(keras.Model):  # type: ignore[misc]
    """Its layers are attributes, which are set in this order."""

    def __init__(self, *names: str) -> None:
        super().__init__()
        for name in names:
            setattr(self, name, keras.layers.Dense(4))
        self.build((None, 4))

    def build(self, shape: Any) -> None:
        for layer in self.layers:
            layer.build(shape)

    def call(self, x: Any) -> Any:
        return self.one(x) + self.two(x)


def convolutions() -> Any:
    inputs = keras.Input((4,))
    found = keras.layers.Reshape((4, 1))(inputs)
    for _ in range(2):
        found = keras.layers.Conv1D(1, 1)(found)
    return keras.Model(inputs, keras.layers.Flatten()(found))


class Unnamed(keras.layers.Layer):  # type: ignore[misc]
    """Its weights have the names that Keras makes."""

    def build(self, shape: Any) -> None:
        self.one = self.add_weight(shape=shape[1:])
        self.two = self.add_weight(shape=shape[1:])

    def call(self, x: Any) -> Any:
        return x * self.one + self.two


def in_a_named_layer() -> Any:
    inputs = keras.Input((4,))
    return keras.Model(inputs, Unnamed(name="block")(inputs))


def in_a_list(*names: str) -> Any:
    model = functional("same", "other")
    model.blocks = [[keras.layers.Dense(4, name=name)] for name in names]
    for (layer,) in model.blocks:
        layer.build((None, 4))
        layer.trainable = False  # nothing uses it
    return model


def keras_job(model: Any) -> FunctionSession:
    model.compile(keras.optimizers.Adam(), "mse")
    return KerasJobSession(trainerd.KerasJob(model, (X, X), batch_size=4))


def job(model: Any) -> FunctionSession:
    optimizer = keras.optimizers.Adam()
    optimizer.build(model.trainable_variables)

    def step() -> Any:
        return tf.reduce_sum(model(X))

    return FunctionSession(trainerd.Job(step, state={"model": model, "optimizer": optimizer}))


@pytest.mark.parametrize("session_of", [pytest.param(keras_job, marks=pytest.mark.long), job])
@pytest.mark.parametrize(
    ("before", "now", "says"),
    [
        (lambda: functional("left", "right"), lambda: functional("right", "left"), "model/left/kernel: "),
        (lambda: in_a_list("left", "right"), lambda: in_a_list("right", "left"), "model/left/kernel: "),
        (
            lambda: functional("a", "b", frozen="a"),
            lambda: functional("a", "b", frozen="b"),
            "a/kernel: frozen → train",
        ),
        (lambda: Attributes("one", "two"), lambda: Attributes("two", "one"), "the slot of model/one/_kernel"),
        (lambda: functional("left", None), lambda: functional("left", None), ""),
        (lambda: functional(None, None), lambda: functional(None, None), ""),
        (convolutions, convolutions, ""),
        (in_a_named_layer, in_a_named_layer, ""),
        (lambda: functional("left", "right"), lambda: functional("left", "renamed"), ""),
    ],
)
def test_names_given_by_the_user_are_known_again(
    tmp_path: Path, session_of: Callable[[Any], FunctionSession], before: Any, now: Any, says: str
) -> None:
    keras.backend.clear_session()
    prefix = tmp_path / "model.ckpt-0"
    first = session_of(before())
    first.bind(Flag())
    first.snapshot().write(prefix, lambda moved: None)
    for more in (functional(None), keras.layers.Conv1D(1, 1), keras.Variable(0.0)):  # as a cell that runs again
        del more  # the names that Keras numbers are shifted by one
    second = session_of(now())
    found = second.changes_since(prefix)
    assert any(says in each for each in found) if says else not found
    if "left" in says:
        with pytest.raises(DataError, match="at other places: model/left"):
            second.load(prefix)


def test_a_frozen_layer_whose_slots_are_gone_is_named(tmp_path: Path) -> None:
    def small(*, is_frozen: bool) -> Any:
        model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(3, name="base"), keras.layers.Dense(4)])
        model.layers[0].trainable = not is_frozen
        return model

    prefix = tmp_path / "model.ckpt-0"
    first = job(small(is_frozen=False))
    first.bind(Flag())
    first.snapshot().write(prefix, lambda moved: None)
    with pytest.raises(DataError, match="frozen or unfrozen since then: model/base/kernel: trainable → frozen"):
        job(small(is_frozen=True)).restore(prefix)


def test_fit_refuses_layers_that_changed_places(tmp_path: Path) -> None:
    def fit(*names: str) -> None:
        model = functional(*names)
        model.compile("sgd", "mse")
        with trainerd.keras.Supervise(str(tmp_path)) as supervise:
            model.fit(X, X, epochs=1, verbose=0, callbacks=[supervise])

    fit("left", "right")
    with pytest.raises(DataError, match="model/left/kernel"):
        fit("right", "left")


def test_checkpoint_without_names_is_as_before() -> None:
    now = {"a": Named("model/left/kernel", True), "b": Named("model/right/kernel", True)}
    assert changes({}, now) == [] and changes(now, {}) == []


def test_names_of_ten_thousand_variables_are_small() -> None:
    names = {f"model/_operations/{n}/_kernel": Named(f"model/block_{n}/left/kernel", True) for n in range(10_000)}
    before = time.process_time()
    content = packed(names)
    assert len(content) < 200_000 and time.process_time() - before < 1
    assert NAMES_KEY.startswith("trainerd/")  # what lists a model's variables leaves such keys out
