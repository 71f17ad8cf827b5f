"""The callback for programs that keep `model.fit`."""

from __future__ import annotations

import contextlib
import shutil
import signal
import threading
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf

import trainerd
from tests.conftest import Fork
from tests.tensorflow import models
from tests.tensorflow.graphs import events, saved, scalars, state
from tests.tensorflow.models import X, Y, a_line, assert_same, reshuffled, shuffled, terminate
from tests.tensorflow.noting import instances
from tests.waiting import send_signal, wait_for
from trainerd.errors import DataError, InUseError, UsageError
from trainerd.loop.flag import Request
from trainerd.run.boundary import Boundary
from trainerd.rundir.state import Phase

EPOCH = 6  # batches
OPTIONS: dict[str, Any] = {"verbose": 0, "shuffle": False}


def with_adam() -> keras.Model:
    model = models.with_adam()
    model.build((None, 4))
    return model


class At(keras.callbacks.Callback):  # type: ignore[misc]
    """Does something after a batch, counted over all of fit, and waits."""

    def __init__(self, batch: int, act: Any, wait: Any = lambda: True) -> None:
        super().__init__()
        self.left, self.act, self.wait = batch, act, wait

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        self.left -= 1
        if self.left == 0:
            self.act()
            wait_for(self.wait, "what a callback waits for", 20)


def fail() -> None:
    raise OSError("of another callback")


def fit(
    folder: Path, *before: Any, epochs: int = 4, patience: int = 9, make: Any = a_line, **options: Any
) -> tuple[keras.Model, trainerd.keras.Supervise, list[int]]:
    """A program that keeps `fit`, with callbacks that remember: its model, the callback, and the epochs it trained."""
    model = make()
    stop = keras.callbacks.EarlyStopping("loss", patience=patience, min_delta=0.5, restore_best_weights=True)
    rate = keras.callbacks.LearningRateScheduler(lambda epoch, now: now * 0.9)
    with trainerd.keras.Supervise(str(folder), callbacks=[stop], **options) as supervise:
        callbacks = [*before, stop, rate, supervise]
        trained = model.fit(shuffled(), epochs=epochs, callbacks=callbacks, **OPTIONS).epoch
    return model, supervise, trained


def pause(folder: Path, batch: int, **options: Any) -> None:
    with pytest.raises(trainerd.keras.Paused) as caught:
        fit(folder, At(batch, terminate), **options)
    assert caught.value.code == 0 and state(folder).phase is Phase.PAUSED


# ---------------------------------------------------------------------- the resume


def test_paused_after_an_epochs_last_batch_it_ends_where_it_would_have(tmp_path: Path) -> None:
    whole, _, _ = fit(tmp_path / "whole", make=with_adam)
    pause(tmp_path / "parts", EPOCH, make=with_adam)
    pause(tmp_path / "parts", EPOCH, make=with_adam)
    assert saved(tmp_path / "parts")[0] == (12, "pause")
    parts, supervise, trained = fit(tmp_path / "parts", make=with_adam)
    assert_same(whole, parts)
    assert trained == [2, 3] and supervise.step == 24
    assert saved(tmp_path / "parts")[0] == (24, "finish") == saved(tmp_path / "whole")[0]
    assert (state(tmp_path / "parts").phase, state(tmp_path / "parts").ended) == (Phase.FINISHED, "`fit` has ended")


def test_paused_in_mid_epoch_it_keeps_the_weights_and_restarts_the_epoch(tmp_path: Path) -> None:
    pause(tmp_path, 9)
    assert saved(tmp_path)[0] == (9, "pause")
    model, supervise, trained = fit(tmp_path)
    assert trained == [1, 2, 3] and supervise.step == int(model.optimizer.iterations) == 9 + 3 * EPOCH


def test_metrics_of_an_epoch_that_restarts_do_too(tmp_path: Path) -> None:
    def losses(folder: Path, *before: Any) -> Any:
        model = a_line()
        model.compile(keras.optimizers.SGD(0.0), "mse")
        with trainerd.keras.Supervise(str(folder)) as supervise:
            fitted = model.fit(X, Y, batch_size=10, epochs=3, callbacks=[*before, supervise], **OPTIONS)
        return fitted.history["loss"]

    with pytest.raises(trainerd.keras.Paused):
        losses(tmp_path / "parts", At(8, terminate))
    assert losses(tmp_path / "parts") == losses(tmp_path / "whole")[1:]


def test_what_is_done_is_not_done_again_and_says_so(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    first, _, _ = fit(tmp_path, epochs=2)
    again, _, trained = fit(tmp_path, epochs=2)
    assert_same(first, again)
    assert not trained and [step for step, _ in saved(tmp_path)] == [12]
    assert again.fit(X, Y, epochs=1, **OPTIONS).epoch == [0], "a fit without it begins at its own first epoch"
    assert "fit does nothing: the run is at epoch 2, and fit trains until epoch 2" in caplog.text
    assert fit(tmp_path, epochs=3)[2] == [2]


def test_a_training_that_a_callback_ended_stays_ended_until_the_callback_has_changed(tmp_path: Path) -> None:
    fit(tmp_path, patience=1, epochs=9)
    ended = saved(tmp_path)[0][0]
    assert ended < 9 * EPOCH
    assert not fit(tmp_path, patience=1, epochs=9)[2] and saved(tmp_path)[0][0] == ended
    assert fit(tmp_path, patience=3, epochs=9)[2]


@pytest.mark.parametrize("kind", ["best", "averages"])
def test_a_loop_over_fit_continues_in_a_later_one(tmp_path: Path, kind: str) -> None:
    """Those before it train nothing, though Keras ends each: with the best weights, or averaged ones."""

    def train(folder: Path, *before: Any) -> keras.Model:
        stop = keras.callbacks.EarlyStopping("loss", patience=9, restore_best_weights=True)
        callbacks, model = [stop] if kind == "best" else [], a_line()
        model.compile(keras.optimizers.Adam(0.01, use_ema=kind == "averages"), "mse")
        with trainerd.keras.Supervise(str(folder), callbacks=callbacks) as supervise:
            for epoch in range(3):
                given = [*before, *callbacks, supervise]
                model.fit(shuffled(), initial_epoch=epoch, epochs=epoch + 1, callbacks=given, **OPTIONS)
            assert supervise.step == 18
        return model

    whole = train(tmp_path / "whole")
    at_the_end = keras.callbacks.LambdaCallback(on_epoch_end=lambda epoch, logs: terminate() if epoch == 1 else None)
    with pytest.raises(trainerd.keras.Paused):
        train(tmp_path / "parts", at_the_end)
    assert_same(whole, train(tmp_path / "parts"))


@pytest.mark.parametrize("paused", [True, False])
def test_what_the_end_of_training_does_to_the_weights_is_saved(tmp_path: Path, paused: bool) -> None:
    """Where its step was saved before that: on request, or by a pause."""

    class Rounds(keras.callbacks.Callback):  # type: ignore[misc]
        def on_train_end(self, logs: Any = None) -> None:
            self.model.set_weights([np.round(weight, 1) for weight in self.model.get_weights()])

    def train(*before: Any) -> keras.Model:
        model = a_line()
        with trainerd.keras.Supervise(str(tmp_path)) as supervise:
            model.fit(shuffled(), callbacks=[*before, Rounds(), supervise], **OPTIONS)
        return model

    with contextlib.suppress(trainerd.keras.Paused):
        train(At(EPOCH, lambda: send_signal(signal.SIGTERM if paused else signal.SIGUSR1)))
    trained = train()
    kept = a_line()
    tf.train.Checkpoint(model=kept).read(tf.train.latest_checkpoint(str(tmp_path))).expect_partial()
    assert saved(tmp_path)[0] == (EPOCH, "finish")
    for mine, theirs in zip(trained.get_weights(), kept.get_weights(), strict=True):
        assert np.array_equal(theirs, np.round(theirs, 1)) and np.array_equal(mine, np.round(theirs, 1))


def test_several_steps_an_execution_and_a_last_one_of_fewer(tmp_path: Path) -> None:
    def train(*before: Any) -> int:
        model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(1)])
        model.compile("sgd", "mse", steps_per_execution=4)
        with trainerd.keras.Supervise(str(tmp_path)) as supervise:
            model.fit(X, Y, batch_size=10, epochs=2, callbacks=[*before, supervise], **OPTIONS)
        return supervise.step

    with pytest.raises(trainerd.keras.Paused):
        train(At(3, terminate))
    assert saved(tmp_path)[0] == (10, "pause") and train() == 16


def test_another_model_does_not_fit_and_the_run_directory_is_given_back(tmp_path: Path) -> None:
    fit(tmp_path)
    other = keras.Sequential([keras.Input((4,)), keras.layers.Dense(5), keras.layers.Dense(1)])
    other.compile("sgd", "mse")
    with pytest.raises(DataError, match="does not fit the program"), trainerd.keras.Supervise(str(tmp_path)) as it:
        other.fit(shuffled(), epochs=9, callbacks=[it], **OPTIONS)
    assert saved(tmp_path)[0] == (24, "finish") and not fit(tmp_path)[2]


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


def test_a_request_in_a_validation_is_served_at_the_epochs_end(tmp_path: Path) -> None:
    asks = keras.callbacks.LambdaCallback(on_test_batch_end=lambda batch, logs: terminate() if batch == 1 else None)
    model, ended = a_line(), list[int]()
    notes = keras.callbacks.LambdaCallback(on_epoch_end=lambda epoch, logs: ended.append(epoch))
    with pytest.raises(trainerd.keras.Paused), trainerd.keras.Supervise(str(tmp_path)) as supervise:
        model.fit(shuffled(), epochs=3, validation_data=(X, Y), callbacks=[asks, notes, supervise], **OPTIONS)
    assert ended == [0] and saved(tmp_path) == [(EPOCH, "pause")]


def test_checkpoints_and_curves_come_on_schedule(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    boundaries = instances(monkeypatch, Boundary)
    until_due = [At(batch, lambda: None, lambda: boundaries[-1].flag.wants(Request.TICK)) for batch in (4, 8, 12)]
    fit(tmp_path, *until_due, make=models.a_model, save_model_secs=0.2, save_summaries_secs=0.2)
    assert "schedule" in {reason for _, reason in saved(tmp_path)}
    assert {"loss", "mae"} <= {value.tag for event in events(tmp_path) for value in event.summary.value}
    assert state(tmp_path).metrics["loss"] > 0
    of_epochs = {step for step, _ in scalars(tmp_path, "learning_rate")}
    assert of_epochs == {EPOCH, 2 * EPOCH, 3 * EPOCH, 4 * EPOCH}, "an epoch's own metrics have a point each"


def test_one_program_at_a_time_and_the_signals_are_given_back(tmp_path: Path) -> None:
    before = signal.getsignal(signal.SIGTERM)
    checkpoint = tf.train.Checkpoint(v=tf.Variable(1.0))
    with trainerd.Supervisor(checkpoint=checkpoint, logdir=str(tmp_path)).managed_session(), pytest.raises(InUseError):
        fit(tmp_path)
    fit(tmp_path / "other")
    assert signal.getsignal(signal.SIGTERM) is before


# ---------------------------------------------------------------------- other ends of a fit


def test_a_fit_that_fails_loses_what_was_not_saved_and_the_next_one_resumes(tmp_path: Path) -> None:
    def train(supervise: trainerd.keras.Supervise, epochs: int, *before: Any) -> int:
        a_line().fit(shuffled(), epochs=epochs, callbacks=[*before, supervise], **OPTIONS)
        return supervise.step

    pause(tmp_path, 9)
    with trainerd.keras.Supervise(str(tmp_path)) as supervise:
        with pytest.raises(OSError, match="of another callback"):
            train(supervise, 3, At(2, fail))
        assert train(supervise, 3) == 9 + 2 * EPOCH
    with pytest.raises(OSError, match="of another callback"):  # in a notebook's cell, which is run again
        train(trainerd.keras.Supervise(str(tmp_path)), 4, At(2, fail))
    assert train(trainerd.keras.Supervise(str(tmp_path)), 4) == 9 + 3 * EPOCH
    assert [step for step, _ in saved(tmp_path)] == [27, 21, 9]


def test_an_error_that_leaves_the_with_statement_is_the_runs(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with pytest.raises(OSError, match="of another callback"):
        fit(tmp_path, At(8, fail))
    assert not saved(tmp_path) and state(tmp_path).phase is Phase.FAILED
    assert "an error has ended `fit`, so nothing is saved" in caplog.text
    assert fit(tmp_path)[1].step == 24


def test_a_removed_run_directory_begins_anew(tmp_path: Path) -> None:
    supervise, model = trainerd.keras.Supervise(str(tmp_path / "run")), a_line()
    with contextlib.suppress(OSError):
        model.fit(shuffled(), epochs=2, callbacks=[At(9, fail), supervise], **OPTIONS)
    shutil.rmtree(tmp_path / "run")
    model.fit(shuffled(), epochs=2, callbacks=[supervise], **OPTIONS)
    assert supervise.step == 12 and saved(tmp_path / "run") == [(12, "finish")]


def test_a_fit_in_a_callback_takes_the_run_directory_over(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="another training has begun"):
        fit(tmp_path, At(3, lambda: fit(tmp_path)))
    assert saved(tmp_path)[0] == (24, "finish")


def test_a_fit_of_another_thread_is_refused_until_that_thread_has_ended(tmp_path: Path) -> None:
    supervise, other = trainerd.keras.Supervise(str(tmp_path)), threading.Event()
    refused: list[str] = []

    def work() -> None:
        with contextlib.suppress(OSError):
            a_line().fit(shuffled(), callbacks=[At(2, fail), supervise], **OPTIONS)
        other.wait(60)

    thread = threading.Thread(target=work)
    thread.start()
    wait_for(lambda: supervise.step == 1, "the first step", 60)
    try:
        a_line().fit(shuffled(), callbacks=[supervise], **OPTIONS)
    except UsageError as error:
        refused.append(str(error))
    other.set()
    thread.join()
    a_line().fit(shuffled(), callbacks=[supervise], **OPTIONS)
    assert "has not ended" in refused[0] and supervise.step == EPOCH


def test_an_evaluation_with_the_same_callback_changes_nothing(tmp_path: Path) -> None:
    with trainerd.keras.Supervise(str(tmp_path)) as supervise:
        model, other, evaluates = a_line(), a_line(), keras.callbacks.Callback()

        def evaluate(*args: Any, **options: Any) -> None:
            model.evaluate(X, Y, verbose=0, callbacks=[supervise])
            other.predict(X, verbose=0, callbacks=[supervise])

        evaluates.on_train_batch_end = evaluates.on_epoch_end = evaluate
        model.fit(reshuffled().take(2), epochs=2, callbacks=[evaluates, supervise], **OPTIONS)
    assert supervise.step == 4 and saved(tmp_path) == [(4, "finish")]


LEFT_OPEN = """
import sys, keras, numpy as np, trainerd
how, logdir = sys.argv[1:]
def leave(batch, logs):
    if batch == 7 and how == "callback":
        raise KeyError("mine")
    if batch == 7 and how == "exit":
        sys.exit(0)
model = keras.Sequential([keras.Input((1,)), keras.layers.Dense(1)])
model.compile("sgd", "mse")
ones = np.ones((20, 1), "float32")
leaves = keras.callbacks.LambdaCallback(on_train_batch_end=leave)
callbacks = [leaves, trainerd.keras.Supervise(logdir)]
model.fit(ones, ones, batch_size=1, verbose=0, callbacks=callbacks)
"""


def test_a_fit_without_with_is_ended_as_the_program_ends(fork: Fork, tmp_path: Path) -> None:
    (tmp_path / "left_open.py").write_text(LEFT_OPEN)

    def run(how: str, logdir: Path) -> int:
        return int(fork(tmp_path, program="left_open.py", arguments=[how, str(logdir)]).end())

    for how, code in (("callback", 1), ("exit", 0)):
        assert run(how, tmp_path / how) == code
        assert not saved(tmp_path / how) and state(tmp_path / how).phase is Phase.FAILED
    assert run("no", tmp_path / "exit") == 0
    assert saved(tmp_path / "exit") == [(20, "finish")] and state(tmp_path / "exit").phase is Phase.FINISHED


def test_data_warns_and_returns_the_dataset() -> None:
    data = reshuffled()
    with pytest.warns(DeprecationWarning, match=r"trainerd\.keras\.fit resumes with the next batch"):
        assert trainerd.keras.Supervise("run").data(data) is data
