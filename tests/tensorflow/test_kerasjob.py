"""Keras models under the loop: what `fit` gives is what they give, interrupted or not."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf

import trainerd
from tests.cases import every
from tests.tensorflow.models import (
    Marks,
    X,
    Y,
    a_line,
    a_model,
    assert_same,
    endless,
    in_parts,
    opened,
    reshuffled,
    shuffled,
    train,
    unknown,
    with_adam,
)
from trainerd.errors import JobError
from trainerd.loop.flag import Flag, Request
from trainerd.sessions.keras.callbacks import Callbacks
from trainerd.sessions.keras.job_session import KerasJobSession

# ---------------------------------------------------------------------- as under fit


@pytest.mark.filterwarnings("ignore:Your input ran out of data")  # as fit says of it
@pytest.mark.parametrize(("data", "steps"), every(4, [(shuffled, None), (endless, 6), (endless, 4), (shuffled, 4)]))
def test_it_trains_to_what_fit_trains_to(data: Callable[[], tf.data.Dataset], steps: int | None) -> None:
    fitted, mine = a_model(), a_model()
    history = fitted.fit(data(), epochs=4, steps_per_epoch=steps, validation_data=(X, Y), verbose=0, shuffle=False)
    session = opened(trainerd.KerasJob(mine, data(), (X, Y), steps_per_epoch=steps, epochs=4))
    assert train(session) == "epochs = 4 are done"
    assert_same(fitted, mine)
    assert mine.history.history == history.history and mine.history.epoch == history.epoch


def test_data_of_unknown_length_ends_an_epoch_where_it_ends() -> None:
    """`fit` is no peer here: where the batch does not come, it counts half a step all the same."""
    known, mine = a_line(), a_line()
    train(opened(trainerd.KerasJob(known, shuffled(), epochs=3)))
    session = opened(trainerd.KerasJob(mine, unknown(), epochs=3))
    train(session)
    assert session.step == 18
    assert_same(known, mine)


def test_a_compiled_step_is_compiled_here_too() -> None:
    fitted, mine = a_model(jit_compile=True), a_model(jit_compile=True)
    fitted.fit(shuffled(), epochs=2, verbose=0, shuffle=False)
    train(opened(trainerd.KerasJob(mine, shuffled(), epochs=2)))
    assert_same(fitted, mine)


def test_callbacks_are_called_as_fit_calls_them() -> None:
    fitted, mine = [Marks(), Marks(batches=True)], [Marks(), Marks(batches=True)]
    options: dict[str, Any] = {"steps_per_epoch": 3, "epochs": 2, "validation_freq": [2]}
    a_line().fit(endless(), validation_data=(X, Y), verbose=0, shuffle=False, callbacks=fitted, **options)
    train(opened(trainerd.KerasJob(a_line(), endless(), (X, Y), callbacks=mine, **options)))
    for one, other in zip(mine, fitted, strict=True):
        assert one.seen == other.seen
        assert one.params == {**other.params, "verbose": 0}


class Guided(keras.Sequential):  # type: ignore[misc]
    """A step as Keras's guide writes it: what it gives holds the results of all metrics."""

    def train_step(self, data: Any) -> dict[str, Any]:
        x, y = data
        with tf.GradientTape() as tape:
            loss = self.compute_loss(x=x, y=y, y_pred=self(x, training=True))
        self.optimizer.apply(tape.gradient(loss, self.trainable_weights), self.trainable_weights)
        return self.of_step(y, self(x), loss)

    def of_step(self, y: Any, predicted: Any, loss: Any) -> dict[str, Any]:
        for metric in self.metrics:
            metric.update_state(loss) if metric.name == "loss" else metric.update_state(y, predicted)
        return {metric.name: metric.result() for metric in self.metrics}


class TwoLosses(Guided):
    """A step that gives figures of its own, and leaves the model's metrics as they are."""

    def of_step(self, y: Any, predicted: Any, loss: Any) -> dict[str, Any]:
        return {"d_loss": loss, "g_loss": 2.0 * loss}


class OneLoss(Guided):
    """A step that gives the loss, and keeps a metric beside."""

    def of_step(self, y: Any, predicted: Any, loss: Any) -> dict[str, Any]:
        self.metrics[-1].update_state(y, predicted)
        return {"loss": loss}


@pytest.mark.parametrize("kind", [Guided, TwoLosses, OneLoss])
def test_what_a_step_of_the_models_own_gives_is_passed_to_callbacks(kind: Any) -> None:
    def model() -> keras.Model:
        keras.utils.set_random_seed(7)
        made = kind([keras.layers.Dense(1)])
        made.compile(keras.optimizers.Adam(0.01), "mse", metrics=None if kind is TwoLosses else ["mae"])
        return made

    fitted, mine = model(), model()
    history = fitted.fit(shuffled(), epochs=3, verbose=0, shuffle=False)
    train(opened(trainerd.KerasJob(mine, shuffled(), epochs=3)))
    assert_same(fitted, mine)
    assert mine.history.history.keys() == history.history.keys()
    for name, figures in history.history.items():
        assert mine.history.history[name] == pytest.approx(figures), name


class WithArrays(Guided):
    """A step that gives arrays, and a text, beside its figures."""

    def of_step(self, y: Any, predicted: Any, loss: Any) -> dict[str, Any]:
        few = predicted[: 1 + tf.cast(self.optimizer.iterations % 3, tf.int32), 0]
        return {"loss": loss, "all": y - predicted, "few": few, "rough": tf.cast(few, tf.bfloat16), "text": "odd"}


class TwoSums(keras.metrics.Metric):  # type: ignore[misc]
    """A metric that gives several by name."""

    def __init__(self) -> None:
        super().__init__()
        self.sums = self.add_weight(shape=[2], name="sums", initializer="zeros")

    def update_state(self, y: Any, predicted: Any, sample_weight: Any = None) -> None:
        self.sums.assign_add([tf.reduce_sum(y), tf.reduce_sum(predicted)])

    def result(self) -> dict[str, Any]:
        return {"of_y": self.sums[0], "of_predicted": self.sums[1]}


class WithDict(keras.Sequential):  # type: ignore[misc]
    """Keras's own step, and metrics of both kinds."""


class Notes(keras.callbacks.Callback):  # type: ignore[misc]
    """Keeps all that it is told."""

    def __init__(self, batches: bool) -> None:
        super().__init__()
        self.seen: list[Any] = []
        if batches:
            self.on_train_batch_end = lambda batch, logs=None: self.seen.append((batch, dict(logs)))

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        self.seen.append((epoch, dict(logs)))


@pytest.mark.parametrize(
    ("kind", "batches"), every(4, [(WithArrays, False), (WithArrays, True), (Guided, False), (WithDict, True)])
)
def test_callbacks_get_the_arrays_that_a_step_gives(tmp_path: Path, kind: Any, batches: bool) -> None:
    def model() -> keras.Model:
        keras.utils.set_random_seed(7)
        made = kind([keras.layers.Dense(1)])
        metrics = {Guided: [keras.metrics.F1Score()], WithDict: [keras.metrics.F1Score(), TwoSums()]}
        made.compile("adam", "mse", metrics=metrics.get(kind))
        return made

    def as_given(value: Any) -> Any:
        return value if isinstance(value, bytes | str) else np.asarray(value, np.float32)

    fitted = Notes(batches)
    model().fit(shuffled(), epochs=2, verbose=0, shuffle=False, callbacks=[fitted])
    notes: list[Notes] = []

    def job() -> trainerd.KerasJob:
        notes.append(Notes(batches))
        return trainerd.KerasJob(model(), shuffled(), callbacks=[notes[-1]], epochs=2)

    in_parts(job, [6, 9], tmp_path)
    mine = notes[-1].seen
    assert [number for number, _ in mine] == [number for number, _ in fitted.seen]
    for (number, here), (_, there) in zip(mine, fitted.seen, strict=True):
        there.pop("text", None)  # a text is no number
        assert here.keys() == there.keys(), number
        for name, value in here.items():
            np.testing.assert_allclose(as_given(value), as_given(there[name]), 1e-5, err_msg=f"{name} {number}")


def callbacks_that_watch(folder: Path) -> list[Any]:
    return [
        keras.callbacks.EarlyStopping("val_loss", patience=2, min_delta=0.05, restore_best_weights=True),
        keras.callbacks.ReduceLROnPlateau("val_loss", factor=0.5, patience=1, min_delta=0.02),
        keras.callbacks.LearningRateScheduler(lambda epoch, rate: rate * 0.9),
        keras.callbacks.CSVLogger(str(folder / "log.csv")),
        keras.callbacks.TensorBoard(str(folder / "board")),
        keras.callbacks.ModelCheckpoint(str(folder / "best.keras"), save_best_only=True),
        Marks(),
    ]


@pytest.fixture(scope="module")
def watched(tmp_path_factory: pytest.TempPathFactory) -> tuple[keras.Model, keras.callbacks.History, str]:
    """The model, the history and the log of a `fit` that nothing interrupts."""
    folder, model = tmp_path_factory.mktemp("fit"), with_adam()
    options: dict[str, Any] = {"validation_data": (X, Y), "verbose": 0, "shuffle": False}
    history = model.fit(shuffled(), epochs=40, callbacks=callbacks_that_watch(folder), **options)
    return model, history, (folder / "log.csv").read_text()


@pytest.mark.long
def test_interrupted_in_mid_epoch_and_at_its_end_it_ends_where_fit_ends(
    tmp_path: Path, watched: tuple[keras.Model, keras.callbacks.History, str]
) -> None:
    fitted, history, rows = watched
    made: list[Any] = []

    def make() -> trainerd.KerasJob:
        callbacks = callbacks_that_watch(tmp_path)
        made.append((with_adam(), callbacks))
        return trainerd.KerasJob(made[-1][0], shuffled(), (X, Y), callbacks=callbacks, epochs=40)

    end = 6 * len(history.epoch)  # an epoch's end at which training is over, and its callbacks are not told
    session = in_parts(make, [5, 18, end], tmp_path)
    mine, callbacks = made[-1]
    assert_same(fitted, mine)
    assert mine.history.history == history.history and len(history.epoch) < 40
    assert (tmp_path / "log.csv").read_text() == rows
    assert callbacks[-1].count == len(history.epoch)
    assert session.run_until(session.step + 1).over.startswith("a callback stopped the training in epoch")
    assert session.changes == session.step + 1
    session.snapshot().write(tmp_path / f"model.ckpt-{end}", lambda size: None)
    again = opened(make())
    again.restore(tmp_path / f"model.ckpt-{end}")
    train(again)
    assert again.changes == again.step and made[-1][1][-1].seen.count("train end") == 1  # told once, not at each start
    assert_same(fitted, made[-1][0])


@pytest.mark.parametrize(
    ("data", "steps", "stops"),
    [
        (reshuffled, None, [6, 15]),
        pytest.param(endless, 4, [2, 8], marks=pytest.mark.long),
        pytest.param(unknown, None, [2, 6], marks=pytest.mark.long),
        pytest.param(reshuffled, 4, [6, 12], marks=pytest.mark.long),
    ],
)
def test_the_data_resumes_where_it_was(
    tmp_path: Path, data: Callable[[], tf.data.Dataset], steps: int | None, stops: list[int]
) -> None:
    made: list[Any] = []

    def make() -> trainerd.KerasJob:
        made.append(a_line())
        return trainerd.KerasJob(made[-1], data(), steps_per_epoch=steps, epochs=4)

    in_parts(make, [], tmp_path)
    in_parts(make, stops, tmp_path)
    assert_same(made[0], made[-1])


@pytest.mark.parametrize("waits", [(0.05, 0.0), pytest.param((0.0, 0.05), marks=pytest.mark.long)])
def test_how_far_the_data_was_fetched_ahead_changes_nothing(tmp_path: Path, waits: tuple[float, float]) -> None:
    """Near the end of an epoch a thread may stand before it or behind it, when it is saved and when it goes on."""
    made: list[Any] = []

    def make() -> trainerd.KerasJob:
        made.append(a_line())
        return trainerd.KerasJob(made[-1], reshuffled().prefetch(2), epochs=3)

    in_parts(make, [], tmp_path)
    session = opened(make())
    train(session, 5)
    time.sleep(waits[0])
    session.snapshot().write(tmp_path / "model.ckpt-5", lambda size: None)
    session.end(finished=False)
    again = opened(make())
    again.restore(tmp_path / "model.ckpt-5")
    time.sleep(waits[1])
    train(again)
    assert_same(made[0], made[-1])


@pytest.mark.long
def test_a_validation_that_shuffles_is_the_same_after_a_resume(tmp_path: Path) -> None:
    """Of a part of the data: the rate follows it."""

    def make() -> trainerd.KerasJob:
        model = a_model()  # sets the seed of all
        held_out = tf.data.Dataset.from_tensor_slices((X, Y)).shuffle(60, seed=5).batch(8).take(2)
        plateau = keras.callbacks.ReduceLROnPlateau("val_loss", patience=1, min_delta=0.05)
        return trainerd.KerasJob(model, shuffled(), held_out, callbacks=[plateau], epochs=5)

    whole, parts = in_parts(make, [], tmp_path), in_parts(make, [8, 19], tmp_path)
    histories = [session.exportable().model.history.history["val_loss"] for session in (whole, parts)]
    assert histories[0] == histories[1] and len(histories[0]) == 5
    assert_same(whole.exportable().model, parts.exportable().model)


class Tracker:
    """An object that gives its state."""

    def __init__(self) -> None:
        self.count = 0

    def state_dict(self) -> dict[str, int]:
        return {"count": self.count}

    def load_state_dict(self, state: dict[str, int]) -> None:
        self.count = state["count"]


class Draws(keras.callbacks.Callback):  # type: ignore[misc]
    """Draws the rate from generators of its own, and counts in objects."""

    def __init__(self) -> None:
        super().__init__()
        self.numpy, self.old, self.python = np.random.default_rng(3), np.random.RandomState(4), random.Random(5)
        self.philox = np.random.Generator(np.random.Philox(6))
        self.keras, self.tensorflow = keras.random.SeedGenerator(7), tf.random.Generator.from_seed(8)
        self.variable, self.tracker = tf.Variable(0.0), Tracker()
        self.drawn: list[float] = []

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        self.variable.assign_add(1.0)
        self.tracker.count += 1
        of_keras = float(keras.random.uniform([], seed=self.keras))
        self.drawn += [self.numpy.random(), self.old.rand(), self.python.random(), self.philox.random(), of_keras]
        self.drawn += [float(self.tensorflow.uniform([])), float(self.variable), self.tracker.count]
        self.model.optimizer.learning_rate = 0.01 * self.drawn[-8]


@pytest.mark.parametrize("fails", [False, pytest.param(True, marks=pytest.mark.long)])
def test_objects_with_a_state_resume_where_they_were(
    tmp_path: Path, fails: bool, caplog: pytest.LogCaptureFixture
) -> None:
    """Also where the end of an epoch failed, and is done again."""
    made: list[Draws] = []

    def upload(epoch: int, logs: Any) -> None:
        if fails and len(made) == 2:
            raise OSError("no network")

    def make() -> trainerd.KerasJob:
        made.append(Draws())
        callbacks = [made[-1], keras.callbacks.LambdaCallback(on_epoch_end=upload)]
        return trainerd.KerasJob(a_model(), shuffled(), callbacks=callbacks, epochs=3)

    whole = in_parts(make, [], tmp_path)
    if fails:
        failing, prefix = opened(make()), tmp_path / "model.ckpt-6"
        with pytest.raises(JobError, match="of the callback LambdaCallback"):
            train(failing)
        failing.snapshot().write(prefix, lambda size: None)
        parts = opened(make())
        parts.restore(prefix)
        train(parts)
    else:
        parts = in_parts(make, [8], tmp_path)
    assert made[-1].drawn == made[0].drawn and len(made[0].drawn) == 24
    assert_same(whole.exportable().model, parts.exportable().model)
    assert "no checkpoint holds" not in caplog.text


class Logs(keras.callbacks.CSVLogger):  # type: ignore[misc]
    """A program's own."""


@pytest.mark.parametrize("kind", every(2, [Logs, keras.callbacks.CSVLogger]))
def test_rows_of_an_earlier_training_are_kept(tmp_path: Path, kind: Any) -> None:
    path = tmp_path / "log.csv"
    path.write_text("epoch,loss\n" + "".join(f"{epoch},0.1\n" for epoch in range(5)))

    def make() -> trainerd.KerasJob:
        log = kind(str(path), append=True)
        return trainerd.KerasJob(a_line(), shuffled(), callbacks=[log], epochs=3)

    in_parts(make, [3, 8], tmp_path)
    assert [line.split(",")[0] for line in path.read_text().splitlines()] == ["epoch", *"01234", *"012"]


@pytest.mark.parametrize("earlier", every(3, [5, 0, None]))
def test_rows_of_an_epoch_that_is_trained_again_are_distinguished_from_those_of_an_earlier_training(
    tmp_path: Path, earlier: int | None
) -> None:
    path = tmp_path / "log.csv"
    if earlier is not None:
        path.write_text("epoch,loss\n" + "".join(f"{epoch},0.1\n" for epoch in range(earlier)))

    def make() -> trainerd.KerasJob:
        log = keras.callbacks.CSVLogger(str(path), append=True)
        return trainerd.KerasJob(a_line(), shuffled(), callbacks=[log], epochs=3)

    first = opened(make())
    train(first, 3)
    first.snapshot().write(tmp_path / "model.ckpt-3", lambda size: None)
    train(first, 11)  # and then it is killed, in the third epoch
    first.end(finished=False)  # only to close its file
    for _ in range(2):
        again = opened(make())
        again.restore(tmp_path / "model.ckpt-3")
        train(again)
        epochs = [line.split(",")[0] for line in path.read_text().splitlines()]
        assert epochs == ["epoch", *map(str, range(earlier or 0)), *"012"]


def test_what_was_trained_after_the_checkpoint_leaves_no_rows(tmp_path: Path) -> None:
    def make() -> trainerd.KerasJob:
        log = keras.callbacks.CSVLogger(str(tmp_path / "log.csv"), separator=";")
        return trainerd.KerasJob(a_line(), shuffled(), callbacks=[log], epochs=3)

    first = opened(make())
    train(first, 8)
    snapshot = first.snapshot()
    snapshot.write(tmp_path / "model.ckpt-8", lambda size: None)
    train(first)  # and then it is killed
    whole = (tmp_path / "log.csv").read_text()
    assert len(whole.splitlines()) == 4
    with (tmp_path / "log.csv").open("a") as file:
        file.write("3;0.")
    again = opened(make())
    again.restore(tmp_path / "model.ckpt-8")
    assert len((tmp_path / "log.csv").read_text().splitlines()) == 2
    train(again)
    assert (tmp_path / "log.csv").read_text() == whole


@pytest.mark.parametrize(("stops", "shuffle"), every(3, [([3], True), ([4, 9], True), ([3], False)]))
def test_arrays_are_trained_in_batches(tmp_path: Path, stops: list[int], shuffle: bool) -> None:
    made: list[Any] = []

    def make() -> trainerd.KerasJob:
        made.append(a_line())
        return trainerd.KerasJob(made[-1], (X, Y), epochs=3, batch_size=16, shuffle=shuffle)

    assert in_parts(make, stops, tmp_path).step == 3 * 4
    interrupted = made[-1]
    in_parts(make, [], tmp_path)
    assert_same(interrupted, made[-1])
    if not shuffle:
        fitted = a_line()
        fitted.fit(X, Y, batch_size=16, epochs=3, shuffle=False, verbose=0)
        assert_same(fitted, made[-1])


def test_each_epoch_of_arrays_has_every_example_once() -> None:
    class Sum(keras.callbacks.Callback):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.losses: list[float] = []

        def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
            self.losses.append(logs["loss"])

    model = keras.Sequential([keras.layers.Dense(1)])
    model.compile(keras.optimizers.SGD(0.0), "mse")
    sums = Sum()
    train(opened(trainerd.KerasJob(model, (X, Y), callbacks=[sums], epochs=3, batch_size=16)))
    assert np.allclose(sums.losses, sums.losses[0], rtol=1e-5)


@pytest.mark.parametrize(
    ("make", "wanted"),
    [
        (lambda: keras.callbacks.TensorBoard(), False),
        (lambda: keras.callbacks.TensorBoard(profile_batch=2), True),
        (lambda: keras.callbacks.TensorBoard(update_freq=5), True),
        (lambda: keras.callbacks.ModelCheckpoint("a.keras"), False),
        (lambda: keras.callbacks.ModelCheckpoint("a.keras", save_freq=5), True),
        (lambda: keras.callbacks.EarlyStopping(), False),
        (lambda: keras.callbacks.CSVLogger("a.csv"), False),
        (lambda: keras.callbacks.TerminateOnNaN(), True),
        (lambda: keras.callbacks.LambdaCallback(on_epoch_end=lambda epoch, logs: None), False),
        (lambda: keras.callbacks.LambdaCallback(on_train_batch_end=lambda batch, logs: None), True),
        (lambda: keras.callbacks.ProgbarLogger(), False),
    ],
)
def test_callbacks_that_want_each_batch_are_known(
    make: Callable[[], Any], wanted: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert Callbacks([make()], a_line(), epochs=None, steps=None).wants_batches is wanted


@pytest.mark.parametrize(("hook", "wanted"), [("on_epoch_end", False), ("on_train_batch_end", True)])
def test_the_loop_leaves_the_graph_for_callbacks_that_want_each_batch(hook: str, wanted: bool) -> None:
    callback = keras.callbacks.LambdaCallback(**{hook: lambda number, logs: None})
    session = opened(trainerd.KerasJob(a_line(), endless(), steps_per_epoch=1000, callbacks=[callback]))
    assert session.calls_python is wanted
    assert len(session.run_until(4).rows) == 4, "one boundary for all"
    session.end(finished=False)


class Named(keras.Model):  # type: ignore[misc]
    """Its step gives another name than its metrics have."""

    def __init__(self) -> None:
        super().__init__()
        self.dense = keras.layers.Dense(1)
        self.dense.build((None, 4))

    def train_step(self, data: Any) -> Any:
        x, y = data
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean((self.dense(x) - y) ** 2)
        self.optimizer.apply(tape.gradient(loss, self.trainable_variables), self.trainable_variables)
        return {"own_loss": loss}


def test_an_epochs_end_that_is_left_undone_has_the_logs_of_its_last_step(tmp_path: Path) -> None:
    def begun() -> KerasJobSession:
        keras.utils.set_random_seed(1)
        model = Named()
        model.compile("sgd")
        return opened(trainerd.KerasJob(model, shuffled(), epochs=2))

    session, resumed = begun(), begun()
    steps = session.run_until(9)
    session.snapshot().write(tmp_path / "model.ckpt-6", lambda size: None)
    resumed.restore(tmp_path / "model.ckpt-6")
    again = resumed.run_until(9)
    assert steps.then is not None and again.then is not None
    assert again.then() == steps.then() and resumed.step == 6


def test_batches_with_callbacks_are_of_one_boundary_up_to_a_raised_flag_or_an_error() -> None:
    flag = Flag()

    def interrupt(batch: int, logs: Any) -> None:
        if batch == 1:
            flag.raise_for(Request.SAVE)
        elif batch == 4:
            raise ValueError("here")

    interrupts = keras.callbacks.LambdaCallback(on_train_batch_end=interrupt)
    session = opened(trainerd.KerasJob(a_line(), shuffled(), callbacks=[interrupts], epochs=1))
    session.bind(flag)
    steps = session.run_until(6)
    assert (len(steps.rows), steps.then, session.step) == (2, None, 2)
    flag.take()
    with pytest.raises(
        JobError, match="on_train_batch_end of the callback LambdaCallback failed after step 5"
    ) as error:
        session.run_until(6)
    assert error.value.sound and session.step == 5


def test_a_paused_batch_is_announced_once() -> None:
    marks = Marks(batches=True)
    session = KerasJobSession(trainerd.KerasJob(a_line(), shuffled(), callbacks=[marks], epochs=1))
    flag = Flag()
    session.bind(flag)
    train(session, 2)
    flag.raise_for(Request.SAVE)
    assert session.run_until(6).first == 3 and session.step == 2
    flag.take()
    train(session)
    batches = [mark for mark in marks.seen if mark.startswith("batch")]
    assert batches == [f"batch {n}" for n in range(6)]
