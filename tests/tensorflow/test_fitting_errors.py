"""The callback for programs that keep `model.fit`: what an error, or an exit, leaves of it."""

from __future__ import annotations

import functools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf

import trainerd
from tests.conftest import Fork
from tests.tensorflow.graphs import saved, state
from tests.tensorflow.models import At, Once, X, Y, a_model, assert_same, endless, fit, reshuffled, terminate, unknown
from trainerd.errors import UsageError
from trainerd.rundir.state import Phase

pytestmark = [
    pytest.mark.long,
    pytest.mark.filterwarnings("ignore:Your input ran out of data"),  # Keras counts on a whole epoch
]


def test_an_error_is_raised_and_the_last_step_saved(tmp_path: Path) -> None:
    def fail() -> None:
        raise KeyError("mine")

    with pytest.raises(KeyError):
        fit(tmp_path, At(5, fail))  # of that batch we were not told yet
    assert saved(tmp_path) == [(5, "failure")]
    assert state(tmp_path).phase is Phase.FAILED and state(tmp_path).step == 5
    with pytest.raises(ZeroDivisionError):
        fit(tmp_path, keras.callbacks.LambdaCallback(on_epoch_begin=lambda epoch, logs: epoch and 1 / 0))
    assert saved(tmp_path)[0] == (6, "failure") and state(tmp_path).step == 6
    assert_same(fit(tmp_path), fit(tmp_path / "whole"))


def test_an_error_of_a_step_is_reported_and_not_saved(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    def broken(x: tf.Tensor, y: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        width = tf.where(tf.reduce_any(x[:, 0] == X[20, 0]), 5, 4)
        return tf.ensure_shape(tf.reshape(x, [10, width]), [10, 4]), y

    with pytest.raises(tf.errors.InvalidArgumentError):
        fit(tmp_path, data=lambda: reshuffled().map(broken))
    assert not saved(tmp_path) and state(tmp_path).phase is Phase.FAILED
    assert (
        "in the middle of a step, so nothing is saved of it. The next start resumes from the beginning" in caplog.text
    )


class Counts(keras.callbacks.Callback):  # type: ignore[misc]
    batches = 0

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        self.batches += 1


Data = Callable[[], tf.data.Dataset]
ENDS = ["on_epoch_end", "on_epoch_begin", "on_test_begin", "on_train_batch_end"]


def with_changes_between_epochs(folder: Path, data: Data, steps: int | None, *more: Any) -> keras.Model:
    """Train a model to which callbacks do much there: a rate, averaged weights, a validation."""
    model = a_model()
    halves = keras.callbacks.LearningRateScheduler(lambda epoch, now: now * 0.9)
    plateau = keras.callbacks.ReduceLROnPlateau("val_loss", patience=1, min_delta=10.0, factor=0.5)
    swap, counts = keras.callbacks.SwapEMAWeights(swap_on_epoch=False), Counts()
    model.compile(keras.optimizers.Adam(0.01, use_ema=True), "mse", metrics=["mae"])
    with trainerd.keras.Supervise(str(folder), callbacks=[plateau, counts]) as supervise:
        callbacks = [halves, plateau, swap, counts, *more, supervise]
        kept = supervise.data(data())
        options: dict[str, Any] = {"validation_data": (X, Y), "verbose": 0, "shuffle": False}
        model.fit(kept, epochs=4, steps_per_epoch=steps, callbacks=callbacks, **options)
    assert counts.batches == 4 * (steps or 6)
    return model


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Callable[[Data, int | None], keras.Model]:
    """The same without an error, trained once for all cases."""
    return functools.cache(
        lambda data, steps: with_changes_between_epochs(tmp_path_factory.mktemp("whole"), data, steps)
    )


@pytest.mark.parametrize(
    ("method", "data", "steps"),
    [*((name, reshuffled, None) for name in ENDS), ("on_epoch_end", endless, 4), ("on_epoch_end", unknown, None)],
)
def test_an_end_of_an_epoch_that_fails_is_done_again(
    tmp_path: Path, whole: Callable[[Data, int | None], keras.Model], method: str, data: Data, steps: int | None
) -> None:
    """Whatever callbacks have done to the model for it by then."""
    last = 2 * (steps or 6)

    class Fails(keras.callbacks.Callback):  # type: ignore[misc]
        count, is_over = 0, False

        def fail(self) -> None:
            if self.count == last and not self.is_over:
                self.is_over = True
                raise OSError("the disk of another callback is full")

        def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
            self.count += 1
            if method == "on_train_batch_end":
                self.fail()

    if method != "on_train_batch_end":
        setattr(Fails, method, lambda self, *args, **options: self.fail())
    with pytest.raises(OSError, match="of another callback"):
        with_changes_between_epochs(tmp_path, data, steps, Fails())
    if data is not unknown:
        assert saved(tmp_path) == [(last, "failure")]
    assert_same(whole(data, steps), with_changes_between_epochs(tmp_path, data, steps))


@pytest.mark.parametrize("is_another", [True, False])
def test_a_fit_after_one_that_failed_trains_the_model_it_is_given_as_it_is_compiled(
    tmp_path: Path, is_another: bool
) -> None:
    """A notebook's cell, run again: with the same Supervise, and no `with` statement."""
    supervise, model, fails = trainerd.keras.Supervise(str(tmp_path)), a_model(), Once(8)
    data, options = supervise.data(reshuffled()), {"verbose": 0, "shuffle": False}
    with pytest.raises(OSError, match="of another callback"):
        model.fit(data, epochs=2, callbacks=[fails, supervise], **options)
    own, traced = model, list[str]()

    def loss(wanted: Any, found: Any) -> Any:
        traced.append("as it is compiled now")
        return keras.losses.mean_squared_error(wanted, found)

    if is_another:
        model = a_model()
    model.compile(keras.optimizers.SGD(0.01, momentum=0.9), loss, metrics=["mae"])
    before = [weight.numpy() for weight in own.weights]
    model.fit(data, epochs=2, callbacks=[fails, supervise], **options)
    assert int(model.optimizer.iterations) == supervise.step == 12 and traced
    is_same = [np.array_equal(was, weight) for was, weight in zip(before, own.weights, strict=True)]
    assert all(is_same) if is_another else not any(is_same)


def test_an_epochs_beginning_that_fails_before_any_step_is_done_again(tmp_path: Path) -> None:
    def train(*more: Any) -> keras.Model:
        model = a_model()
        halves = keras.callbacks.LearningRateScheduler(lambda epoch, now: now * 0.5)
        with trainerd.keras.Supervise(str(tmp_path)) as supervise:
            data = supervise.data(reshuffled())
            model.fit(data, epochs=2, verbose=0, shuffle=False, callbacks=[halves, *more, supervise])
        return model

    for _ in range(2):
        with pytest.raises(ZeroDivisionError):
            train(keras.callbacks.LambdaCallback(on_epoch_begin=lambda epoch, logs: 1 / 0))
    assert float(train().optimizer.learning_rate.numpy()) == pytest.approx(0.0025)


def test_a_step_that_a_callback_remakes_is_kept(tmp_path: Path) -> None:
    model, made = a_model(), list[Any]()

    def make(epoch: int, logs: Any) -> None:
        model.make_train_function(force=True)
        made.append(model.train_function)

    makes = keras.callbacks.LambdaCallback(on_epoch_begin=make)
    with trainerd.keras.Supervise(str(tmp_path)) as supervise:
        data = supervise.data(reshuffled())
        model.fit(data, epochs=2, verbose=0, shuffle=False, callbacks=[makes, supervise])
    assert model.train_function is made[-1] and supervise.step == 12


def test_a_fit_that_trains_nothing_leaves_the_epochs_end_to_the_next(tmp_path: Path) -> None:
    def train(*before: Any) -> keras.Model:
        model = a_model()
        with trainerd.keras.Supervise(str(tmp_path)) as supervise:
            data = supervise.data(reshuffled())
            for epoch in range(3):
                callbacks = [*before, supervise]
                model.fit(data, initial_epoch=epoch, epochs=epoch + 1, verbose=0, shuffle=False, callbacks=callbacks)
            assert supervise.step == 18
        return model

    with pytest.raises(OSError, match="of another callback"):
        train(Once(12))
    train()
    assert saved(tmp_path)[0] == (18, "finish")


def test_an_epoch_that_fit_would_cut_short_is_refused(tmp_path: Path) -> None:
    with pytest.raises(trainerd.keras.Paused):
        fit(tmp_path, At(3, terminate), steps=6)
    with pytest.raises(UsageError, match="steps_per_epoch is 6, which is all of the data: leave it out"):
        fit(tmp_path, steps=6)
    assert saved(tmp_path)[0] == (6, "failure")
    assert_same(fit(tmp_path), fit(tmp_path / "whole"))


LEFT_OPEN = """
import sys
import keras
import tensorflow as tf
import trainerd
how, logdir = sys.argv[1:]


class Two(keras.Model):
    def __init__(self):
        super().__init__()
        self.a = self.add_weight(name="a", initializer="zeros")
        self.b = self.add_weight(name="b", initializer="zeros")
        self.built = True

    def train_step(self, data):
        first = self.a.value.assign_add(1.0)
        with tf.control_dependencies([first]):
            fails = tf.debugging.assert_less(first, 8.0 if how == "torn" else 1e9)
        with tf.control_dependencies([fails]):
            self.b.value.assign_add(1.0)
        return {"loss": self.b.value.read_value()}


def fail(batch, logs):
    if batch == 7 and how == "callback":
        raise KeyError("mine")
    if batch == 7 and how == "exit":
        sys.exit(0)


model = Two()
model.compile("sgd")
supervise = trainerd.keras.Supervise(logdir)
fails = keras.callbacks.LambdaCallback(on_train_batch_end=fail)
data = supervise.data(tf.data.Dataset.range(20).batch(1))
model.fit(data, epochs=1, verbose=0, callbacks=[fails, supervise])
"""


@pytest.mark.parametrize("how", ["torn", "callback", "exit"])
def test_a_fit_without_with_is_saved_where_it_is_sound_as_the_program_ends(
    fork: Fork, tmp_path: Path, how: str
) -> None:
    (tmp_path / "left_open.py").write_text(LEFT_OPEN)

    def run(how: str) -> int:
        return fork(tmp_path, program="left_open.py", arguments=[how, str(tmp_path)]).end()

    assert run(how) == {"torn": 1, "callback": 1, "exit": 0}[how]
    expected = {"torn": [], "callback": [(8, "failure")], "exit": [(8, "finish")]}
    assert saved(tmp_path) == expected[how]
    assert state(tmp_path).phase is (Phase.FINISHED if how == "exit" else Phase.FAILED)
    assert run("no") == 0
    assert saved(tmp_path)[0] == (20, "finish") and state(tmp_path).phase is Phase.FINISHED
    reader = tf.train.load_checkpoint(str(tmp_path / "model.ckpt-20"))
    counted = [reader.get_tensor(f"model/{name}/.ATTRIBUTES/VARIABLE_VALUE") for name in "ab"]
    assert counted == [20.0, 20.0]
