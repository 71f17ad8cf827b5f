"""The callback for programs that keep `model.fit`."""

from __future__ import annotations

import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf

import trainerd
from tests.cases import every
from tests.tensorflow.graphs import events, saved, state
from tests.tensorflow.models import (
    At,
    X,
    Y,
    a_model,
    assert_same,
    endless,
    fit,
    reshuffled,
    shuffled,
    terminate,
    unknown,
    with_adam,
)
from tests.tensorflow.noting import instances
from tests.waiting import send_signal
from trainerd.errors import DataError, InUseError, UsageError
from trainerd.loop.flag import Request
from trainerd.run.boundary import Boundary
from trainerd.rundir.state import Phase

pytestmark = pytest.mark.filterwarnings("ignore:Your input ran out of data")  # Keras counts on a whole epoch


# ---------------------------------------------------------------------- going on


LONG = pytest.mark.long


@pytest.mark.parametrize("stops", every(2, [[4, 8, 1], [6, 6]]))
def test_paused_in_mid_epoch_it_ends_where_it_would_have(tmp_path: Path, stops: list[int]) -> None:
    whole = fit(tmp_path / "whole", make=with_adam)
    for stop in stops:
        with pytest.raises(trainerd.keras.Paused) as caught:
            fit(tmp_path / "parts", At(stop, terminate), make=with_adam)
        assert caught.value.code == 0 and state(tmp_path / "parts").phase is Phase.PAUSED
        assert saved(tmp_path / "parts")[0][1] == "pause"
    parts = fit(tmp_path / "parts", make=with_adam)
    assert_same(whole, parts)
    assert saved(tmp_path / "parts")[0] == (saved(tmp_path / "whole")[0][0], "finish")
    assert (state(tmp_path / "parts").phase, state(tmp_path / "parts").ended) == (Phase.FINISHED, "`fit` has ended")


@LONG
def test_epochs_of_so_many_steps_resume_too(tmp_path: Path) -> None:
    whole = fit(tmp_path / "whole", data=endless, steps=4)
    for stop in [4, 3, 1]:
        with pytest.raises(trainerd.keras.Paused):
            fit(tmp_path / "parts", At(stop, terminate), data=endless, steps=4)
    assert_same(whole, fit(tmp_path / "parts", data=endless, steps=4))


class Adds(keras.callbacks.Callback):  # type: ignore[misc]
    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        logs["schedule"], logs["nothing"] = "cosine", None


def test_what_another_callback_puts_into_the_logs_keeps_no_save_from_being_made(tmp_path: Path) -> None:
    with pytest.raises(trainerd.keras.Paused):
        fit(tmp_path, Adds(), At(2, terminate), data=unknown, patience=9)
    assert saved(tmp_path)[0] == (2, "pause")


@pytest.mark.parametrize("stops", every(4, [[29], [6, 6, 1], [], [3, 3]]))
def test_epochs_whose_length_nobody_knows_are_whole(tmp_path: Path, stops: list[int]) -> None:
    class Steps(keras.callbacks.Callback):  # type: ignore[misc]
        def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
            seen[epoch] = (self.params["steps"], logs["loss"])

    seen: dict[int, Any] = {}
    whole = fit(None, Steps(), data=unknown, patience=9)
    expected = {epoch: (None, loss) for epoch, (_, loss) in seen.items()}
    seen.clear()
    for stop in stops:
        with pytest.raises(trainerd.keras.Paused):
            fit(tmp_path, Steps(), At(stop, terminate), data=unknown, patience=9)
    assert_same(whole, fit(tmp_path, Steps(), data=unknown, patience=9))
    assert saved(tmp_path)[0][0] == 5 * 6 and seen == expected


def test_it_trains_to_what_fit_trains_to_without_it(tmp_path: Path) -> None:
    assert_same(fit(None, data=shuffled), fit(tmp_path, data=shuffled))


def test_what_is_done_is_not_done_again(tmp_path: Path) -> None:
    first = fit(tmp_path, epochs=2)
    seen = keras.callbacks.LambdaCallback(on_epoch_begin=lambda epoch, logs: 1 / 0)
    assert_same(first, fit(tmp_path, seen, epochs=2))
    assert [step for step, _ in saved(tmp_path)] == [12]


@LONG
def test_a_training_that_a_callback_ended_stays_ended_until_the_callback_has_changed(tmp_path: Path) -> None:
    fit(tmp_path, patience=1, epochs=9)
    ended = saved(tmp_path)[0][0]
    assert ended < 9 * 6
    fit(tmp_path, patience=1, epochs=9)
    assert saved(tmp_path)[0][0] == ended
    fit(tmp_path, patience=3, epochs=9)
    assert saved(tmp_path)[0][0] > ended


def test_without_its_data_the_epoch_restarts(tmp_path: Path) -> None:
    with pytest.raises(trainerd.keras.Paused):
        fit(tmp_path, At(9, terminate), keeps_data=False)
    epochs: list[int] = []
    seen = keras.callbacks.LambdaCallback(on_epoch_begin=lambda epoch, logs: epochs.append(epoch))
    fit(tmp_path, seen, keeps_data=False, epochs=3)
    assert epochs == [1, 2] and saved(tmp_path)[0] == (9 + 2 * 6, "finish")


def test_arrays_and_several_steps_an_execution(tmp_path: Path) -> None:
    def program(*more: Any) -> None:
        model = keras.Sequential([keras.layers.Dense(1)])
        model.compile("sgd", "mse", steps_per_execution=5)
        supervise = trainerd.keras.Supervise(str(tmp_path))
        model.fit(X, Y, batch_size=2, epochs=2, verbose=0, callbacks=[*more, supervise])

    with pytest.raises(trainerd.keras.Paused):
        program(At(8, terminate))
    assert saved(tmp_path)[0][0] == 40
    program()
    assert saved(tmp_path)[0][0] == 40 + 30


@LONG
@pytest.mark.parametrize("stop", [1, 2])
def test_an_epochs_last_execution_may_have_fewer_steps(tmp_path: Path, stop: int) -> None:
    def program(folder: Path, *before: Any) -> keras.Model:
        keras.utils.set_random_seed(7)
        model = keras.Sequential([keras.layers.Dense(1)])
        model.compile(keras.optimizers.Adam(0.01), "mse", steps_per_execution=4)
        supervise = trainerd.keras.Supervise(str(folder))
        model.fit(supervise.data(reshuffled()), epochs=3, verbose=0, shuffle=False, callbacks=[*before, supervise])
        assert supervise.step == 18
        return model

    whole = program(tmp_path / "whole")
    with pytest.raises(trainerd.keras.Paused):
        program(tmp_path / "parts", At(stop, terminate))
    assert saved(tmp_path / "parts")[0][0] == (4 if stop == 1 else 6)
    assert_same(program(tmp_path / "parts"), whole)


@pytest.mark.parametrize("how", ["class_weight", "map", "prefetch"])
def test_data_that_fit_does_not_read_itself_is_refused(tmp_path: Path, how: str) -> None:
    """Its position would stay at the beginning, and nobody would know."""
    model = keras.Sequential([keras.layers.Dense(3)])
    model.compile("sgd", keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    supervise = trainerd.keras.Supervise(str(tmp_path))
    data = supervise.data(tf.data.Dataset.from_tensor_slices((X, np.zeros(60, np.int32))).batch(10))
    data = data.map(lambda x, y: (2.0 * x, y)) if how == "map" else data.prefetch(1) if how == "prefetch" else data
    options = {"class_weight": {0: 1.0, 1: 5.0}} if how == "class_weight" else {}
    with pytest.raises(UsageError, match=r"give supervise\.data\(dataset\) to fit"), supervise:
        model.fit(data, epochs=2, verbose=0, shuffle=False, callbacks=[supervise], **options)
    assert not saved(tmp_path)


# ---------------------------------------------------------------------- the flag


def test_a_pause_file_pauses_and_is_consumed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    boundaries = instances(monkeypatch, Boundary)
    asks = At(3, (tmp_path / "pause").touch, lambda: boundaries[-1].flag.wants(Request.PAUSE))
    with pytest.raises(trainerd.keras.Paused):
        fit(tmp_path, asks)
    assert saved(tmp_path)[0] == (3, "pause") and not (tmp_path / "pause").exists()


def test_sigusr1_saves_and_fit_continues(tmp_path: Path) -> None:
    wait = At(8, lambda: None, lambda: bool(saved(tmp_path)))
    fit(tmp_path, At(4, lambda: send_signal(signal.SIGUSR1)), wait, epochs=3)
    assert [reason for _, reason in saved(tmp_path)] == ["finish", "request"] and saved(tmp_path)[1][0] == 4


def test_checkpoints_and_curves_come_on_schedule(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    boundaries = instances(monkeypatch, Boundary)
    until_due = [At(batch, lambda: None, lambda: boundaries[-1].flag.wants(Request.TICK)) for batch in (4, 8, 12)]
    fit(tmp_path, *until_due, epochs=4, save_model_secs=0.2, save_summaries_secs=0.2)
    assert "schedule" in {reason for _, reason in saved(tmp_path)}
    tags = {value.tag for event in events(tmp_path) for value in event.summary.value}
    assert {"loss", "mae"} <= tags and state(tmp_path).metrics["loss"] > 0


def test_another_fit_of_the_model_begins_at_its_own_beginning(tmp_path: Path) -> None:
    with pytest.raises(trainerd.keras.Paused):
        fit(tmp_path, At(9, terminate))
    model, epochs = fit(tmp_path), []
    seen = keras.callbacks.LambdaCallback(on_epoch_begin=lambda epoch, logs: epochs.append(epoch))
    model.fit(X, Y, epochs=2, verbose=0, callbacks=[seen])
    assert epochs == [0, 1]


def test_a_callback_that_stops_in_the_last_batch_stops(tmp_path: Path) -> None:
    with pytest.raises(trainerd.keras.Paused):
        fit(tmp_path, At(4, terminate))
    stops = At(2, lambda: None)
    stops.act = lambda: setattr(stops.model, "stop_training", True)
    fit(tmp_path, stops)
    assert saved(tmp_path)[0] == (6, "finish")


def test_epochs_that_begin_somewhere_in_the_data_are_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="the data has 6 batches, and steps_per_epoch is 4"):
        fit(tmp_path, steps=4)


def test_one_program_at_a_time_and_the_signals_are_given_back(tmp_path: Path) -> None:
    before = signal.getsignal(signal.SIGTERM)
    with (
        trainerd.Supervisor(checkpoint=tf.train.Checkpoint(v=tf.Variable(1.0)), logdir=str(tmp_path)).managed_session(),
        pytest.raises(InUseError),
    ):
        fit(tmp_path)
    fit(tmp_path / "other")
    assert signal.getsignal(signal.SIGTERM) is before


@LONG
def test_another_model_does_not_fit_and_the_run_directory_is_given_back(tmp_path: Path) -> None:
    fit(tmp_path, epochs=1)
    model = keras.Sequential([keras.layers.Input((4,)), keras.layers.Dense(3), keras.layers.Dense(1)])
    model.compile(keras.optimizers.SGD(0.01, momentum=0.9), "mse")
    supervise = trainerd.keras.Supervise(str(tmp_path))
    with pytest.raises(DataError, match="does not fit the program"), supervise:
        model.fit(supervise.data(shuffled()), verbose=0, shuffle=False, callbacks=[supervise])
    fit(tmp_path, epochs=2)
    assert saved(tmp_path)[0] == (12, "finish")


def test_what_is_no_dataset_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"takes a tf.data.Dataset, and this is of type ndarray"):
        trainerd.keras.Supervise(str(tmp_path)).data(np.ones(3))


@pytest.mark.parametrize("is_cached", [True, False])
def test_an_order_that_cannot_be_known_is_reported(
    tmp_path: Path, is_cached: bool, caplog: pytest.LogCaptureFixture
) -> None:
    data = shuffled().unbatch().shuffle(60)
    trainerd.keras.Supervise(str(tmp_path)).data((data.cache() if is_cached else data).batch(7))
    assert ("next epochs may have another order" in caplog.text) == is_cached


def test_a_step_that_cannot_be_traced_is_reported(tmp_path: Path) -> None:
    class Eager(keras.Sequential):  # type: ignore[misc]
        def train_step(self, data: Any) -> Any:
            logs = super().train_step(data)
            return logs if float(logs["loss"].numpy()) > 0 else {}

    model = Eager([keras.layers.Dense(1)])
    model.compile("sgd", "mse", run_eagerly=True)
    supervise = trainerd.keras.Supervise(str(tmp_path))
    with supervise, pytest.raises(UsageError, match="runs eagerly alone"):
        model.fit(supervise.data(shuffled()), callbacks=[supervise], verbose=0, shuffle=False)


def test_a_fit_that_trains_nothing_says_so(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    dataset = tf.data.Dataset.from_tensors((np.ones((4, 2), np.float32), np.ones((4, 1), np.float32))).repeat(3)

    def model() -> Any:
        made = keras.Sequential([keras.Input((2,)), keras.layers.Dense(1)])
        made.compile("sgd", "mse")
        return made

    trained = model()
    with trainerd.keras.Supervise(str(tmp_path)) as supervise:
        data = supervise.data(dataset)
        for epoch in range(2):
            trained.fit(data, initial_epoch=epoch, epochs=epoch + 1, verbose=0, shuffle=False, callbacks=[supervise])
        assert supervise.step == 6
        trained.fit(data, epochs=1, verbose=0, shuffle=False, callbacks=[supervise])
        assert supervise.step == 6
        trained.fit(data, epochs=3, verbose=0, shuffle=False, callbacks=[supervise])
        assert supervise.step == 9
    with trainerd.keras.Supervise(str(tmp_path)) as supervise:
        model().fit(supervise.data(dataset), epochs=3, verbose=0, shuffle=False, callbacks=[supervise])
    reported = [each.getMessage() for each in caplog.records if getattr(each, "event", "") == "end"]
    assert reported == [
        "fit trains nothing: the run is at epoch 2, and fit trains until epoch 1",
        "fit trains nothing: the run is at epoch 3, and fit trains until epoch 3",
    ]


@LONG
def test_metrics_of_an_epoch_that_restarts_do_too(tmp_path: Path) -> None:
    def losses(folder: Path, epochs: int) -> Any:
        model = a_model()
        model.compile(keras.optimizers.SGD(0.0), "mse")
        model.layers[1].rate = 0.0
        with trainerd.keras.Supervise(str(folder)) as supervise:
            fitted = model.fit(X, Y, batch_size=10, epochs=epochs, verbose=0, shuffle=False, callbacks=[supervise])
        return fitted.history["loss"]

    whole = losses(tmp_path / "whole", 3)
    assert losses(tmp_path / "parts", 1) == whole[:1] and losses(tmp_path / "parts", 3) == whole[1:]


@pytest.mark.parametrize("strategy", [tf.distribute.MirroredStrategy, tf.distribute.OneDeviceStrategy])
def test_a_model_of_a_strategy_is_refused_with_supervised_data(tmp_path: Path, strategy: Any) -> None:
    """One of a single device too: it has an iterator of its own."""
    with strategy("CPU:0" if strategy is tf.distribute.OneDeviceStrategy else ["CPU:0"]).scope():
        model = a_model()
    supervise = trainerd.keras.Supervise(str(tmp_path))
    with pytest.raises(UsageError, match=r"made under a tf\.distribute strategy"):
        model.fit(supervise.data(shuffled()), verbose=0, shuffle=False, callbacks=[supervise])


# ---------------------------------------------------------------------- while it is validated


class InTest(keras.callbacks.Callback):  # type: ignore[misc]
    """Does something after so many batches of validations."""

    def __init__(self, batches: int, number: int) -> None:
        super().__init__()
        self.left, self.number = batches, number

    def on_test_batch_end(self, batch: int, logs: Any = None) -> None:
        self.left -= 1
        if self.left == 0:
            send_signal(self.number)
        assert not (self.left < 0 and self.number == signal.SIGTERM), "the validation goes on after a pause"


def validated(
    folder: Path, *before: Any, epochs: int = 4, held_out: Callable[[], Any] = lambda: (X, Y)
) -> tuple[keras.Model, list[float]]:
    """A model whose rate follows a validation of six batches with averaged weights; and each validation's figure."""
    seen: list[float] = []
    model = a_model()
    model.compile(keras.optimizers.Adam(0.01, use_ema=True), "mse", metrics=["mae"])
    plateau = keras.callbacks.ReduceLROnPlateau("val_loss", patience=1, min_delta=10.0, factor=0.5)
    swap = keras.callbacks.SwapEMAWeights(swap_on_epoch=False)
    notes = keras.callbacks.LambdaCallback(on_epoch_end=lambda epoch, logs: seen.append(logs["val_loss"]))
    supervise = trainerd.keras.Supervise(str(folder), callbacks=[plateau])
    data = supervise.data(reshuffled())
    callbacks = [plateau, swap, notes, *before, supervise]
    options: dict[str, Any] = {"validation_batch_size": 10, "verbose": 0, "shuffle": False}
    model.fit(data, epochs=epochs, validation_data=held_out(), callbacks=callbacks, **options)
    return model, seen


@LONG
@pytest.mark.parametrize("batches", [8, 24])
def test_a_pause_waits_for_no_validation_which_is_made_again(tmp_path: Path, batches: int) -> None:
    whole, expected = validated(tmp_path / "whole")
    with pytest.raises(trainerd.keras.Paused):
        validated(tmp_path / "parts", InTest(batches, signal.SIGTERM))
    epoch = (batches - 1) // 6
    assert saved(tmp_path / "parts")[0] == (6 * (epoch + 1), "pause")
    parts, seen = validated(tmp_path / "parts")
    assert_same(whole, parts)
    assert seen == expected[epoch:]


@LONG
def test_a_validation_that_shuffles_reads_the_same_after_a_pause(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Without a fixed order, each validation reads a different part of the shuffled data."""
    without_seed = tf.data.Dataset.from_tensor_slices((X, Y)).shuffle(60).batch(10)  # `a_model` sets one for all

    def two_batches() -> tf.data.Dataset:
        return reshuffled().take(2)

    whole, expected = validated(tmp_path / "whole", held_out=two_batches)
    with pytest.raises(trainerd.keras.Paused):
        validated(tmp_path / "parts", At(8, terminate), held_out=two_batches)
    parts, seen = validated(tmp_path / "parts", held_out=two_batches)
    assert_same(whole, parts)
    assert seen == expected[-len(seen) :] and "validation data" not in caplog.text
    validated(tmp_path / "another", epochs=1, held_out=lambda: without_seed)
    assert "the validation data can differ after a resume: it has a shuffle without a seed" in caplog.text


@LONG
def test_a_save_in_a_validation_is_of_the_step_before_it_and_changes_nothing(tmp_path: Path) -> None:
    whole, expected = validated(tmp_path / "whole")
    again, seen = validated(tmp_path / "parts", InTest(8, signal.SIGUSR1))
    assert_same(whole, again)
    assert seen == expected and (12, "request") in saved(tmp_path / "parts")
    for path in (tmp_path / "parts").glob("model.ckpt-24*"):
        path.unlink()
    (tmp_path / "parts" / "checkpoint").unlink()
    resumed, rest = validated(tmp_path / "parts")
    assert_same(whole, resumed)
    assert rest == expected[1:]
