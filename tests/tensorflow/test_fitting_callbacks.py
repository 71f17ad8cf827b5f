"""Callbacks beside Supervise: what they remember, and what they do to the model, over a pause."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf

import trainerd
from tests.cases import every
from tests.tensorflow.graphs import saved
from tests.tensorflow.models import At, a_model, assert_same, shuffled, terminate

pytestmark = pytest.mark.filterwarnings("ignore:Your input ran out of data")  # Keras counts on a whole epoch


class Counts(keras.callbacks.Callback):  # type: ignore[misc]
    """Sets the rate from what it remembers, where an epoch begins; and notes the first loss."""

    def __init__(self) -> None:
        super().__init__()
        self.begun, self.epochs = 0, list[int]()
        self.first: Any = None

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        self.begun += 1
        self.epochs.append(epoch)
        self.model.optimizer.learning_rate.assign(0.01 * self.begun)

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        self.first = self.first or (epoch, logs["loss"])


@pytest.mark.parametrize("stops", every(3, [[6], [30], [27, 3]]))
def test_what_callbacks_remember_is_theirs_before_an_epoch_begins(tmp_path: Path, stops: list[int]) -> None:
    """And after the last one: the best weights are put back by a fit that has nothing left to train."""

    def train(folder: Path, *before: Any) -> tuple[keras.Model, Counts]:
        model = a_model()
        counts, swap = Counts(), Swaps()
        best = keras.callbacks.EarlyStopping("loss", mode="max", patience=99, restore_best_weights=True)
        with trainerd.keras.Supervise(str(folder), callbacks=[counts, swap, best]) as supervise:
            callbacks = [*before, counts, swap, best, supervise]
            model.fit(supervise.data(shuffled()), epochs=5, verbose=0, shuffle=False, callbacks=callbacks)
        return model, counts

    whole, counted = train(tmp_path / "whole")
    for stop in stops:
        with pytest.raises(trainerd.keras.Paused):
            train(tmp_path / "parts", At(stop, terminate))
    parts, again = train(tmp_path / "parts")
    assert_same(whole, parts)
    assert (again.begun, again.first) == (counted.begun, counted.first) and counted.first is not None
    assert again.epochs == counted.epochs == [0, 1, 2, 3, 4]


@pytest.mark.parametrize("paused", every(2, [True, False]))
def test_what_the_end_of_training_does_to_the_weights_is_saved(tmp_path: Path, paused: bool) -> None:
    """Where its step was saved before that: on schedule, or by a pause."""

    class Rounds(keras.callbacks.Callback):  # type: ignore[misc]
        def on_train_end(self, logs: Any = None) -> None:
            self.model.set_weights([np.round(weight, 1) for weight in self.model.get_weights()])

    def train() -> keras.Model:
        model = a_model()
        with trainerd.keras.Supervise(str(tmp_path)) as supervise:
            data = supervise.data(shuffled())
            ends = At(6, terminate if paused else lambda: os.kill(os.getpid(), signal.SIGUSR1))
            model.fit(data, epochs=1, verbose=0, shuffle=False, callbacks=[ends, Rounds(), supervise])
        return model

    if paused:
        with pytest.raises(trainerd.keras.Paused):
            train()
    trained = train()
    kept = a_model()
    kept.build((None, 4))
    tf.train.Checkpoint(model=kept).read(tf.train.latest_checkpoint(str(tmp_path))).expect_partial()
    assert saved(tmp_path)[0][0] == 6
    for mine, theirs in zip(trained.get_weights(), kept.get_weights(), strict=True):
        assert np.array_equal(mine, theirs) and np.array_equal(mine, np.round(mine, 1))


def test_a_finished_fit_that_is_run_again_leaves_its_checkpoint_as_it_is(tmp_path: Path) -> None:
    class Halves(keras.callbacks.Callback):  # type: ignore[misc]
        def on_train_end(self, logs: Any = None) -> None:
            self.model.set_weights([weight / 2 for weight in self.model.get_weights()])

    def train() -> int:
        model = a_model()
        with trainerd.keras.Supervise(str(tmp_path)) as supervise:
            data = supervise.data(shuffled())
            model.fit(data, epochs=1, verbose=0, shuffle=False, callbacks=[Halves(), supervise])
        [manifest] = tmp_path.glob("model.ckpt-*.json")
        return manifest.stat().st_mtime_ns

    assert train() == train()


class Swaps(keras.callbacks.Callback):  # type: ignore[misc]
    """Trains with weights of the other sign in the odd epochs, as SwapEMAWeights does between epochs."""

    is_swapped = False

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        if self.is_swapped:
            self.swap()

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        self.swap()

    def swap(self) -> None:
        self.is_swapped = not self.is_swapped
        for variable in self.model.trainable_variables:
            variable.assign(-variable)


def test_what_a_callback_set_in_an_earlier_fit_is_remembered(tmp_path: Path) -> None:
    def program(epochs: int) -> Any:
        model, counts = a_model(), Counts()
        with trainerd.keras.Supervise(str(tmp_path), callbacks=[counts]) as supervise:
            data = supervise.data(shuffled())
            for epoch in range(epochs):
                callbacks = [counts, supervise]
                model.fit(data, initial_epoch=epoch, epochs=epoch + 1, verbose=0, shuffle=False, callbacks=callbacks)
        return counts.first

    first = program(3)
    assert first[0] == 0 and program(4) == first


def test_callbacks_that_supervise_was_not_given_are_named(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """If they remember something."""
    remember = [
        keras.callbacks.EarlyStopping("loss"),
        keras.callbacks.ReduceLROnPlateau("loss"),
        keras.callbacks.ModelCheckpoint(str(tmp_path / "best.keras"), "loss", save_best_only=True),
        Swaps(),
    ]
    others = [
        keras.callbacks.LearningRateScheduler(lambda epoch, rate: rate * 0.9),
        keras.callbacks.LambdaCallback(on_epoch_end=lambda epoch, logs: None),
        keras.callbacks.CSVLogger(str(tmp_path / "log.csv"), append=True),
    ]
    counts = Counts()
    with trainerd.keras.Supervise(str(tmp_path), callbacks=[counts]) as supervise:
        callbacks = [*remember, *others, counts, supervise]
        a_model().fit(supervise.data(shuffled()), epochs=1, verbose=0, shuffle=False, callbacks=callbacks)
    reported = [each.getMessage() for each in caplog.records if getattr(each, "event", "") == "callbacks"]
    assert [each.split()[2] for each in reported] == [type(each).__name__ for each in remember]
    assert all("given to fit and not to Supervise" in each for each in reported)


class Resets(keras.callbacks.Callback):  # type: ignore[misc]
    """Resets the state of an RNN where an epoch begins, as many programs do; and shrinks the weights, and the slots."""

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        self.model.layers[0].reset_state()
        for variable in [*self.model.trainable_variables, *self.model.optimizer.variables[2:]]:
            variable.assign(variable * 0.9)


@pytest.mark.long
def test_what_a_callback_resets_is_put_back_in_an_epoch_that_resumes(tmp_path: Path) -> None:
    x = np.random.default_rng(3).normal(size=(24, 5, 2)).astype(np.float32)
    dataset = tf.data.Dataset.from_tensor_slices((x, x[:, 0, :1])).batch(4)

    def fit(name: str, *callbacks: Any) -> list[Any]:
        keras.utils.set_random_seed(4)
        layers = [keras.Input((5, 2), batch_size=4), keras.layers.GRU(3, stateful=True), keras.layers.Dense(1)]
        model = keras.Sequential(layers)
        model.compile(keras.optimizers.SGD(0.05, momentum=0.9), "mse")
        with trainerd.keras.Supervise(str(tmp_path / name)) as supervise:
            all_of_them = [Resets(), *callbacks, supervise]
            model.fit(supervise.data(dataset), epochs=2, verbose=0, shuffle=False, callbacks=all_of_them)
        return [value.numpy() for value in model.variables]

    whole = fit("whole")
    with pytest.raises(trainerd.keras.Paused):
        fit("parts", At(3, terminate))
    for one, other in zip(fit("parts"), whole, strict=True):
        np.testing.assert_array_equal(one, other)
