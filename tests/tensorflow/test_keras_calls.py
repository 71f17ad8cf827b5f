"""Several calls of `trainerd.keras.fit` in one run: their order, their data, the models and callbacks they share."""

from __future__ import annotations

import contextlib
import functools
import logging
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf

import trainerd
from tests.cases import every
from tests.tensorflow.graphs import saved, state
from tests.tensorflow.models import X, Y, a_line, a_model, assert_same, shuffled, terminate
from trainerd.config.fingerprint import PIPELINE
from trainerd.errors import DataError, EntryError, JobError
from trainerd.programs.keras import calls
from trainerd.rundir.paths import RunDirectory
from trainerd.rundir.state import Phase, read_state
from trainerd.sessions.keras.call_data import CallData


def stages(folder: Path | None, *stops: Any) -> tuple[keras.Model, list[Any]]:
    """A program that freezes a layer, trains, lets it go, and trains in a loop. What each `fit` returned and left."""

    def fit(x: Any, y: Any, **options: Any) -> None:
        options |= {"batch_size": 10, "shuffle": False, "verbose": 0}
        if folder is None:
            found = model.fit(x, y, **options)
        else:
            found = trainerd.keras.fit(model, x, y, callbacks=[*stops], logdir=folder, **options)
        returned.append((found.epoch, found.history, [each.tobytes() for each in model.get_weights()]))

    model, returned = a_model(), list[Any]()
    model.build((None, 4))
    model.layers[0].trainable = False
    model.compile(keras.optimizers.Adam(0.01), "mse")
    fit(X, Y, epochs=2)
    model.layers[0].trainable = True
    model.compile(keras.optimizers.SGD(0.01, momentum=0.9), "mse", metrics=["mae"])
    for epoch in range(2):
        fit(X[:40], Y[:40], initial_epoch=epoch, epochs=epoch + 1)
        model.layers[0].set_weights([model.layers[0].get_weights()[0] * 0.9])
    return model, returned


class After(keras.callbacks.Callback):  # type: ignore[misc]
    """Asks for a pause after so many steps of this process."""

    def __init__(self, steps: int) -> None:
        super().__init__()
        self.left = steps

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        self.left -= 1
        if self.left == 0:
            terminate()


@functools.cache
def by_keras() -> tuple[keras.Model, list[Any]]:
    """What the program comes to without trainerd."""
    return stages(None)


@pytest.mark.parametrize("steps", every(2, [14, 5]))
def test_several_calls_of_which_one_is_interrupted_train_to_what_fit_trains_to(tmp_path: Path, steps: int) -> None:
    with pytest.raises(trainerd.keras.Paused):
        stages(tmp_path, After(steps))
    assert saved(tmp_path)[0][0] == steps
    calls.CALLS.clear()
    found, returned = stages(tmp_path)
    assert returned == by_keras()[1] and saved(tmp_path)[0] == (2 * 6 + 2 * 4, "finish")
    assert_same(by_keras()[0], found)


def test_a_pause_between_two_calls_is_served_by_the_next(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model = a_line()
    trainerd.keras.fit(model, X, Y, verbose=0, logdir=tmp_path)
    (tmp_path / "pause").touch()
    with monkeypatch.context() as patch, pytest.raises(trainerd.keras.Paused):
        patch.delattr(sys, "ps1")  # a person at a prompt continues at will
        trainerd.keras.fit(model, X, Y, verbose=0, logdir=tmp_path)
    assert (state(tmp_path).phase, state(tmp_path).step) == (Phase.PAUSED, 2) and not (tmp_path / "pause").exists()
    calls.CALLS.clear()
    model = a_line()
    for _ in range(2):
        trainerd.keras.fit(model, X, Y, verbose=0, logdir=tmp_path)
    assert [step for step, _ in saved(tmp_path)] == [4, 2]


@pytest.mark.long
def test_another_model_after_a_pause_is_the_first_again(tmp_path: Path) -> None:
    with pytest.raises(trainerd.keras.Paused):
        stages(tmp_path, After(18))
    found, _ = stages(tmp_path)  # as a notebook's cell that is run again makes its model again
    assert saved(tmp_path)[0] == (20, "finish")
    assert_same(by_keras()[0], found)
    stages(tmp_path)  # as a cell that is run once more: nothing is left to train
    assert saved(tmp_path)[0] == (20, "finish")


@pytest.mark.long
def test_a_cell_that_is_run_again_builds_the_same(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Keras counts its layers on, and the first of a kind has no number."""

    def cell(epochs: int) -> None:
        layers = keras.layers
        both = [layers.Bidirectional(layers.SimpleRNN(2, return_sequences=True)) for _ in range(2)]
        model = keras.Sequential([keras.Input((2, 2)), *both, layers.Flatten(), layers.Dense(2), layers.Dense(1)])
        model.compile("sgd", "mse")
        trainerd.keras.fit(model, X.reshape(-1, 2, 2), Y, epochs=epochs, verbose=0, logdir=tmp_path)

    keras.utils.clear_session()
    cell(1)
    with caplog.at_level(logging.INFO, "trainerd"):
        cell(2)
        keras.utils.clear_session()
        keras.layers.SimpleRNN(2), keras.layers.Dense(2)  # the numbers begin with another one than at first
        cell(3)
    changed = [each.getMessage() for each in caplog.records if getattr(each, "event", "") == "changed"]
    assert changed == ["changed since step 2: job.epochs: 1 → 2", "changed since step 4: job.epochs: 2 → 3"]


class Tells(keras.Model):  # type: ignore[misc]
    """Its logs name the examples of each batch: they have a bit for each."""

    def __init__(self) -> None:
        super().__init__()
        self.line = keras.layers.Dense(1, kernel_initializer="ones")

    def call(self, x: Any) -> Any:
        return self.line(x)

    def train_step(self, data: Any) -> Any:
        return {**super().train_step(data), "examples": tf.reduce_sum(2.0 ** data[0])}


class Ones(keras.utils.PyDataset):  # type: ignore[misc]
    """Batches of one example."""

    def __len__(self) -> int:
        return len(NUMBERS)

    def __getitem__(self, at: int) -> tuple[Any, Any]:
        return NUMBERS[at : at + 1], NUMBERS[at : at + 1]


class OnesWithHook(Ones):
    """They have a position that cannot be saved."""

    def on_epoch_end(self) -> None:
        """Do nothing."""


NUMBERS = np.arange(8, dtype=np.float32)[:, None]


def batches(size: int) -> tf.data.Dataset:
    return tf.data.Dataset.from_tensor_slices((NUMBERS, NUMBERS)).shuffle(8, seed=1).batch(size)


def read_by(
    logdir: Path, data: Callable[[], Any], lives: list[int], *stops: Any, epochs: int = 2, **options: Any
) -> list[float]:
    """The examples of each batch. A life is a process that makes so many calls, with data of its own."""
    seen = list[float]()
    for count in lives:
        calls.CALLS.clear()
        model, x = Tells(), data()
        model.compile("sgd", "mse")
        tells = keras.callbacks.LambdaCallback(on_train_batch_end=lambda batch, logs: seen.append(logs["examples"]))
        for _ in range(count):
            with contextlib.suppress(trainerd.keras.Paused):
                trainerd.keras.fit(
                    model, x, epochs=epochs, callbacks=[tells, *stops], verbose=0, logdir=logdir, **options
                )
    return seen


@pytest.mark.parametrize(
    ("data", "options"),
    [
        (lambda: NUMBERS, {"y": NUMBERS, "batch_size": 1}),
        (lambda: batches(1), {}),
        (lambda: batches(1).repeat(), {"steps_per_epoch": 8}),
        (lambda: Ones(), {}),
        (lambda: OnesWithHook(), {}),
    ],
    ids=["arrays", "dataset", "repeated", "PyDataset", "hooks"],
)
def test_the_order_of_the_examples_continues_from_call_to_call(
    tmp_path: Path, data: Callable[[], Any], options: dict[str, Any]
) -> None:
    """A loop over `fit` has another order in each epoch, and the same ones if it is started again between two calls.

    They are those of one call, where the position of the data can be saved.
    """
    found = read_by(tmp_path / "once", data, [3], **options)
    epochs = [found[at : at + 8] for at in range(0, 48, 8)]
    assert all(sorted(each) == list(2.0 ** NUMBERS[:, 0]) for each in epochs)
    assert len(set(map(tuple, epochs))) == 6
    assert read_by(tmp_path / "again", data, [1, 2, 3], **options) == found
    if not isinstance(data(), OnesWithHook):
        assert read_by(tmp_path / "one", data, [1], epochs=6, **options) == found


@pytest.mark.parametrize("step", [12, 13])
@pytest.mark.parametrize(
    ("data", "options"),
    [
        (lambda: NUMBERS, {"y": NUMBERS, "batch_size": 3}),
        (lambda: batches(3), {}),
        (lambda: batches(3).prefetch(2).repeat(), {"steps_per_epoch": 3}),
        (lambda: batches(3).repeat().map(lambda x, y: (x, y)), {"steps_per_epoch": 3}),
    ],
    ids=["arrays", "dataset", "repeated", "mapped"],
)
def test_a_further_call_that_is_paused_continues_its_order(
    tmp_path: Path, data: Callable[[], Any], options: dict[str, Any], step: int
) -> None:
    """The last batch of an epoch is smaller: TensorFlow loses the orders to come. The second call begins at step 9."""
    found = read_by(tmp_path / "once", data, [2], epochs=3, **options)
    assert len(found) == 18
    assert read_by(tmp_path / "paused", data, [2, 2], After(step), epochs=3, **options) == found
    assert (step, "pause") in saved(tmp_path / "paused")


class Lowest(keras.callbacks.Callback):  # type: ignore[misc]
    """Remembers the lowest loss of all calls, as a ModelCheckpoint does, and in how many calls and epochs it was."""

    def __init__(self) -> None:
        super().__init__()
        self.best, self.calls, self.epochs = float("inf"), 0, 0

    def on_train_begin(self, logs: Any = None) -> None:
        self.calls += 1

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        self.best, self.epochs = min(self.best, logs["loss"]), self.epochs + 1


@pytest.mark.parametrize("steps", every(2, [5, 9, 11]))
def test_a_callback_that_calls_share_keeps_its_memory(tmp_path: Path, steps: int) -> None:
    """It is not in the second call. The loss is lowest in the first. A CSVLogger begins its file in each call."""

    def script(folder: str, *stops: Any) -> Any:
        calls.CALLS.clear()
        model, lowest = a_line(), Lowest()
        rows = keras.callbacks.CSVLogger(str(tmp_path / f"{folder}.csv"))
        for number, callbacks in enumerate(([lowest], [], [lowest])):
            callbacks = [*callbacks, rows, *stops]
            target = Y + 10 * number
            trainerd.keras.fit(
                model, X, target, epochs=2, callbacks=callbacks, batch_size=30, verbose=0, logdir=tmp_path / folder
            )
        return lowest.best, lowest.calls, lowest.epochs, Path(rows.filename).read_text()

    with pytest.raises(trainerd.keras.Paused):
        script("paused", After(steps))
    assert script("paused") == script("calm")
    assert script("paused") == script("calm"), "nothing is left to train"


def test_a_callback_that_holds_open_what_no_checkpoint_has_is_resumed(tmp_path: Path) -> None:
    """A TensorBoard callback that writes at batches holds a writer open in training. At its end it holds none."""
    for epochs, stops in ((2, [After(5)]), (2, []), (2, []), (3, [])):
        calls.CALLS.clear()
        board = keras.callbacks.TensorBoard(str(tmp_path / "board"), update_freq=1)
        with contextlib.suppress(trainerd.keras.Paused):
            trainerd.keras.fit(
                a_line(), X, Y, epochs=epochs, batch_size=15, callbacks=[board, *stops], verbose=0, logdir=tmp_path
            )
    assert saved(tmp_path)[0] == (12, "finish")


def rivals(folder: Path | None, *stops: Any) -> tuple[list[keras.Model], list[Any], list[float]]:
    """A script that trains two models in turns, of which one has the layers of the other, and a third one at last."""

    def fit(model: keras.Model, x: Any, y: Any) -> None:
        options: dict[str, Any] = {"epochs": 2, "batch_size": 15, "shuffle": False, "verbose": 0}
        if folder is None:
            found = model.fit(x, y, **options)
        else:
            found = trainerd.keras.fit(model, x, y, callbacks=[*stops], logdir=folder, **options)
        returned.append((found.epoch, found.history))

    returned, seen = list[Any](), list[float]()
    judge = keras.Sequential([keras.Input([4]), keras.layers.Dense(1, kernel_initializer="ones")])
    maker = keras.Sequential([keras.Input([4]), keras.layers.Dense(4, kernel_initializer="ones"), judge])
    judge.compile(keras.optimizers.Adam(0.01), "mse")
    maker.compile(keras.optimizers.SGD(0.01, momentum=0.9), "mse")
    fit(judge, X, Y)
    seen.append(float(np.sum(judge.get_weights()[0])))
    fit(maker, X, -Y)
    fit(judge, X, Y)
    last = a_model()
    fit(last, X, Y)
    return [judge, maker, last], returned, seen


@pytest.mark.long
@pytest.mark.parametrize("steps", [19, 6, 11, 27])
def test_several_models_resume_as_if_there_had_been_no_stop(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, steps: int
) -> None:
    expected, returned, saw = rivals(None)
    monkeypatch.delattr(sys, "ps1")  # a prompt takes another model for the first one again
    for _ in range(2):  # the second one finds that this process was asked to pause
        with pytest.raises(trainerd.keras.Paused):
            rivals(tmp_path, After(steps))
        calls.CALLS.clear()  # as in a new process
    assert saved(tmp_path)[0][0] == steps
    found, mine, seen = rivals(tmp_path)
    assert (mine, seen) == (returned, saw)
    for one, other in zip(expected, found, strict=True):
        assert_same(one, other)
    calls.CALLS.clear()
    again, mine, seen = rivals(tmp_path)  # nothing is left to train
    assert (mine, seen) == (returned, saw), "code between two calls sees what it saw"
    assert_same(found[1], again[1])


def test_code_after_a_complete_call_sees_the_optimizer_of_its_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delattr(sys, "ps1")

    def run() -> list[tuple[int, float, float]]:
        calls.CALLS.clear()  # as in a new process
        seen = []
        for model in (a_model(keras.optimizers.Adam(0.1)), a_line()):
            halved = keras.callbacks.LearningRateScheduler(lambda epoch, rate: rate / 2)
            trainerd.keras.fit(model, X, Y, epochs=2, verbose=0, callbacks=[halved], logdir=tmp_path)
            optimizer = model.optimizer
            slots = sum(float(np.abs(each.numpy()).sum()) for each in optimizer.variables)
            seen.append((int(optimizer.iterations), float(optimizer.learning_rate), slots))
        return seen

    expected = run()
    assert expected[0][0] == 4 and expected[0][1] == pytest.approx(0.025)
    assert run() == expected


def test_after_a_call_that_failed_no_other_model_takes_its_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delattr(sys, "ps1")
    trainerd.keras.fit(a_line(), X, Y, verbose=0, logdir=tmp_path)
    fails = keras.callbacks.LambdaCallback(on_epoch_end=lambda epoch, logs: 1 / 0)
    failing = a_line()
    with pytest.raises(JobError):
        trainerd.keras.fit(failing, X, Y, verbose=0, callbacks=[fails], logdir=tmp_path)
    with pytest.raises(EntryError, match=r"call 2 of this script in .* has failed, so no call of another model"):
        trainerd.keras.fit(a_line(), X, Y, verbose=0, logdir=tmp_path)
    assert len(trainerd.keras.fit(failing, X, Y, verbose=0, logdir=tmp_path).epoch) == 1, "it is tried again"


def test_a_script_whose_calls_have_changed_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(sys, "ps1")
    first, second = a_model(), a_model()
    for model in (first, second, second):
        trainerd.keras.fit(model, X, Y, verbose=0, logdir=tmp_path)
    calls.CALLS.clear()
    trainerd.keras.fit(second, X, Y, verbose=0, logdir=tmp_path)
    with pytest.raises(DataError, match=r"call 2 of fit in this run trained model 2 of the script, and now .* model 1"):
        trainerd.keras.fit(second, X, Y, verbose=0, logdir=tmp_path)
    calls.CALLS.clear()
    at_end = keras.callbacks.LambdaCallback(on_epoch_end=lambda epoch, logs: 1 / 0)
    trainerd.keras.fit(first, X, Y, verbose=0, logdir=tmp_path / "other")
    with pytest.raises(JobError):
        trainerd.keras.fit(second, X, Y, verbose=0, callbacks=[at_end], logdir=tmp_path / "other")
    calls.CALLS.clear()
    trainerd.keras.fit(second, X, Y, verbose=0, logdir=tmp_path / "other")
    with pytest.raises(DataError, match=r"by call 2 of fit in this run, which trained another model than now"):
        trainerd.keras.fit(second, X, Y, verbose=0, logdir=tmp_path / "other")
    calls.CALLS.clear()
    wider = keras.Sequential([keras.layers.Dense(3), keras.layers.Dense(1)])
    wider.compile("sgd", "mse")
    with pytest.raises(
        DataError, match=r"call 1 .* a model with other weights: model.weights: 2 with 40 .* → 4 with 19"
    ):
        trainerd.keras.fit(wider, X, Y, verbose=0, logdir=tmp_path)


def fits(folder: Path, *given: Any, batch_size: int = 20) -> list[int]:
    """A script that calls `fit` with a number of examples, or with a dataset. The epochs of each call."""
    calls.CALLS.clear()  # as in a new process
    model, found = a_line(), list[int]()
    for data in given:
        x, y = (X[:data], Y[:data]) if isinstance(data, int) else (data, None)
        settings = {"checkpoint": {"keep_last": 1}}
        options: dict[str, Any] = {"batch_size": batch_size, "verbose": 0, "logdir": folder, "settings": settings}
        found.append(len(trainerd.keras.fit(model, x, y, **options).epoch))
    return found


def test_a_complete_call_with_other_data_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(sys, "ps1")
    fits(tmp_path, 60, 40, shuffled(), 20)
    assert fits(tmp_path, 60, 40, shuffled(), 20) == [1, 1, 1, 1]
    assert fits(tmp_path, 60, 30, shuffled(), 10) == [1, 1, 1, 1], "the model may have chosen them"
    with pytest.raises(DataError, match=r"call 1 of fit in this run is complete, .* other data: .*batch_size 20 → 10"):
        fits(tmp_path, 60, batch_size=10)
    with pytest.raises(DataError, match=r"call 2 .*input.pipeline: arrays\(batch_size=20, .* → TensorSlice"):
        fits(tmp_path, 60, shuffled())
    with pytest.raises(DataError, match=r"call 3 .*float32\[None, 4\], .* → float32\[10, 4\]") as error:
        fits(tmp_path, 60, 40, tf.data.Dataset.from_tensor_slices((X, Y)).batch(10, drop_remainder=True))
    accept = RunDirectory(tmp_path).accept_changes
    assert f"`touch {accept}` before the start" in str(error.value)
    accept.touch()
    assert fits(tmp_path, 50, 30, 20, 20) == [1, 1, 1, 1] and not accept.exists(), "it holds for one start"
    assert saved(tmp_path)[0] == (12, "finish"), "nothing was trained again"


def test_a_call_that_has_a_name_is_refused_by_it_and_one_of_an_older_version_is_not(tmp_path: Path) -> None:
    data, model = CallData(RunDirectory(tmp_path), {PIPELINE: "arrays(batch_size=10)"}), a_line()
    data.require_same(0, {"epoch": [0]}, model)
    with pytest.raises(DataError, match=r"call 1 of fit in this run \(name='warm'\) .*batch_size 20 → 10"):
        data.require_same(0, {"name": "warm", "data": {PIPELINE: "arrays(batch_size=20)"}}, model)


def test_a_call_is_known_by_its_name_wherever_it_stands(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(sys, "ps1")

    def fit(*names: str | None, epochs: int = 1, stop: Any = None) -> list[int]:
        calls.CALLS.clear()
        model = a_line()
        options: dict[str, Any] = {"epochs": epochs, "verbose": 0, "callbacks": [stop] if stop else []}
        found = [trainerd.keras.fit(model, X, Y, logdir=tmp_path, name=name, **options) for name in names]
        return [len(each.epoch) for each in found]

    fit("first", "second")
    assert fit("second", "third") == [1, 1] and saved(tmp_path)[0][0] == 6, "a call that is complete may be left out"
    assert fit("first", "second", "third", epochs=2) == [1, 1, 2], "only the newest one trains on"
    with pytest.raises(DataError, match=r"call 1 of fit in this run has name='first', and now name=None"):
        fit(None)
    with pytest.raises(DataError, match="call 2 of fit in this run has name='second', and now name='other'"):
        fit("first", "other")
    with pytest.raises(EntryError, match="an earlier call has name='third'"):
        fit("third", "third")


def test_calls_after_the_end_that_the_config_sets_train_nothing(tmp_path: Path) -> None:
    settings = {"max_steps": 3, "name": "short"}
    for _ in range(2):
        model = a_line()
        found = [
            trainerd.keras.fit(model, X, Y, verbose=0, epochs=2, logdir=tmp_path, settings=settings) for _ in range(3)
        ]
        assert [len(each.epoch) for each in found] == [1, 0, 0] and found[1].params["epochs"] == 2
        assert saved(tmp_path)[0] == (3, "finish")
        state = read_state(RunDirectory(tmp_path).state)
        assert state is not None and state.name == "short"
        calls.CALLS.clear()


def test_a_call_does_not_follow_a_run_that_went_back(tmp_path: Path) -> None:
    model = a_line()
    settings = {"checkpoint": {"save_model_steps": 1}}
    trainerd.keras.fit(model, X, Y, verbose=0, epochs=2, logdir=tmp_path, settings=settings)
    for path in tmp_path.glob("model.ckpt-4*"):
        path.unlink()
    with pytest.raises(DataError, match=r"at step 3, and call 2 follows step 4\. Start the program again"):
        trainerd.keras.fit(model, X, Y, verbose=0, epochs=2, logdir=tmp_path, settings=settings)


def test_a_run_directory_that_was_removed_begins_with_the_first_call(tmp_path: Path) -> None:
    def train() -> None:
        trainerd.keras.fit(a_line(), X, Y, verbose=0, logdir=tmp_path / "run")

    train()
    shutil.rmtree(tmp_path / "run")
    train()
    calls.CALLS.clear()
    train()
    assert len(saved(tmp_path / "run")) == 1
