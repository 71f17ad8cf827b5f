"""Keras models under the loop: what `fit` gives is what they give, interrupted or not."""

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
from trainerd.errors import DataError, EntryError, JobError
from trainerd.sessions.kerasjob import KerasJobSession
from trainerd.supervisor.flag import Flag, Request

RANDOM = np.random.default_rng(1)
X = RANDOM.normal(size=(60, 4)).astype(np.float32)
Y = (X @ RANDOM.normal(size=(4, 1)) + 0.1 * RANDOM.normal(size=(60, 1))).astype(np.float32)


def a_model(**options: Any) -> keras.Model:
    keras.utils.set_random_seed(7)
    model = keras.Sequential([keras.layers.Dense(8, "relu"), keras.layers.Dropout(0.3), keras.layers.Dense(1)])
    model.compile(keras.optimizers.Adam(0.01), "mse", metrics=["mae"], **options)
    return model


def reshuffled() -> tf.data.Dataset:
    """Six batches of ten, in another order each epoch."""
    return tf.data.Dataset.from_tensor_slices((X, Y)).shuffle(60, seed=3).batch(10)


def shuffled() -> tf.data.Dataset:
    """The same in one order: where `fit` knows how many there are, it shuffles twice between two epochs."""
    return tf.data.Dataset.from_tensor_slices((X, Y)).shuffle(60, seed=3, reshuffle_each_iteration=False).batch(10)


def unknown() -> tf.data.Dataset:
    """The same, of a length that nobody knows beforehand."""
    return shuffled().filter(lambda x, y: True)


def endless() -> tf.data.Dataset:
    return reshuffled().repeat()


class Marks(keras.callbacks.Callback):  # type: ignore[misc]
    """Notes what it is called for."""

    def __init__(self, batches: bool = False) -> None:
        super().__init__()
        self.seen: list[Any] = []
        self.count = 0
        if batches:
            self.on_train_batch_begin = lambda batch, logs=None: self.seen.append(f"batch {batch}")
            self.on_train_batch_end = lambda batch, logs=None: self.seen.append(f"end {batch} {sorted(logs)}")

    def on_train_begin(self, logs: Any = None) -> None:
        self.seen.append("train")

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        self.seen.append(f"epoch {epoch}")
        self.count += 1

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        self.seen.append(f"epoch end {epoch} {sorted(logs)}")

    def on_train_end(self, logs: Any = None) -> None:
        self.seen.append("train end")

    def on_test_begin(self, logs: Any = None) -> None:
        self.seen.append("test")


def opened(job: trainerd.KerasJob) -> KerasJobSession:
    session = KerasJobSession(job)
    session.bind(Flag())
    return session


def train(session: KerasJobSession, limit: int = 2**62) -> str:
    """What the loop does. Why it ended."""
    while session.step < limit:
        steps = session.run_until(limit)
        if steps.then is not None:
            steps.then()
        if steps.over:
            session.end(finished=True)
            return steps.over
    return ""


def in_parts(make: Callable[[], trainerd.KerasJob], stops: list[int], folder: Path) -> KerasJobSession:
    """Train a job, saved and restored into a new one at each of these steps."""
    session = opened(make())
    for stop in stops:
        train(session, stop)
        prefix = folder / f"model.ckpt-{stop}"
        session.snapshot().write(prefix, lambda size: None)
        session.end(finished=False)
        session = opened(make())
        session.restore(prefix)
    train(session)
    return session


def values(model: keras.Model) -> list[Any]:
    """Weights, and what the optimizer keeps; not its count of what it did."""
    return [variable.numpy() for variable in [*model.weights, *model.optimizer.variables]]


def assert_same(one: keras.Model, other: keras.Model) -> None:
    for mine, theirs in zip(values(one), values(other), strict=True):
        assert np.array_equal(mine, theirs)


# ---------------------------------------------------------------------- as under fit


@pytest.mark.filterwarnings("ignore:Your input ran out of data")  # as fit says of it
@pytest.mark.parametrize(("data", "steps"), [(shuffled, None), (endless, 6), (shuffled, 4), (endless, 4)])
def test_it_trains_to_what_fit_trains_to(data: Callable[[], tf.data.Dataset], steps: int | None) -> None:
    fitted, mine = a_model(), a_model()
    history = fitted.fit(data(), epochs=4, steps_per_epoch=steps, validation_data=(X, Y), verbose=0, shuffle=False)
    session = opened(trainerd.KerasJob(mine, data(), (X, Y), steps_per_epoch=steps, epochs=4))
    assert train(session) == "epochs = 4 are done"
    assert_same(fitted, mine)
    assert mine.history.history == history.history and mine.history.epoch == history.epoch


def test_data_of_unknown_length_ends_an_epoch_where_it_ends() -> None:
    """`fit` is no peer here: where the batch does not come, it counts half a step all the same."""
    known, mine = a_model(), a_model()
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
    a_model().fit(endless(), validation_data=(X, Y), verbose=0, shuffle=False, callbacks=fitted, **options)
    train(opened(trainerd.KerasJob(a_model(), endless(), (X, Y), callbacks=mine, **options)))
    for one, other in zip(mine, fitted, strict=True):
        assert one.seen == other.seen
        assert one.params == {**other.params, "verbose": 0}


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


@pytest.mark.parametrize("stops", [[], [6, 7, 15], [5, 17, 18]])
def test_interrupted_in_mid_epoch_it_ends_where_fit_ends(tmp_path: Path, stops: list[int]) -> None:
    for name in ("fit", "mine"):
        (tmp_path / name).mkdir()
    fitted = a_model()
    history = fitted.fit(
        shuffled(),
        epochs=40,
        validation_data=(X, Y),
        verbose=0,
        shuffle=False,
        callbacks=callbacks_that_watch(tmp_path / "fit"),
    )
    made: list[Any] = []

    def make() -> trainerd.KerasJob:
        callbacks = callbacks_that_watch(tmp_path / "mine")
        made.append((a_model(), callbacks))
        return trainerd.KerasJob(made[-1][0], shuffled(), (X, Y), callbacks=callbacks, epochs=40)

    session = in_parts(make, stops, tmp_path)
    mine, callbacks = made[-1]
    assert_same(fitted, mine)
    assert mine.history.history == history.history and len(history.epoch) < 40
    assert (tmp_path / "fit" / "log.csv").read_text() == (tmp_path / "mine" / "log.csv").read_text()
    assert callbacks[-1].count == len(history.epoch)
    assert session.run_until(session.step + 1).over.startswith("a callback stopped the training in epoch")


@pytest.mark.parametrize(
    ("data", "steps", "stops"),
    [(reshuffled, None, [4, 6, 15]), (endless, 4, [2, 8]), (unknown, None, [2, 6]), (reshuffled, 4, [6, 12])],
)
def test_the_data_goes_on_where_it_was(
    tmp_path: Path, data: Callable[[], tf.data.Dataset], steps: int | None, stops: list[int]
) -> None:
    made: list[Any] = []

    def make() -> trainerd.KerasJob:
        made.append(a_model())
        return trainerd.KerasJob(made[-1], data(), steps_per_epoch=steps, epochs=4)

    in_parts(make, [], tmp_path)
    in_parts(make, stops, tmp_path)
    assert_same(made[0], made[-1])


@pytest.mark.parametrize("waits", [(0.0, 0.0), (0.05, 0.0), (0.0, 0.05)])
def test_how_far_the_data_was_fetched_ahead_changes_nothing(tmp_path: Path, waits: tuple[float, float]) -> None:
    """Near the end of an epoch a thread may stand before it or behind it, when it is saved and when it goes on."""
    made: list[Any] = []

    def make() -> trainerd.KerasJob:
        made.append(a_model())
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


def test_what_was_trained_after_the_checkpoint_leaves_no_rows(tmp_path: Path) -> None:
    def make() -> trainerd.KerasJob:
        log = keras.callbacks.CSVLogger(str(tmp_path / "log.csv"), separator=";")
        return trainerd.KerasJob(a_model(), shuffled(), callbacks=[log], epochs=3)

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


@pytest.mark.parametrize(("stops", "shuffle"), [([3], True), ([4, 9], True), ([3], False)])
def test_arrays_are_trained_in_batches(tmp_path: Path, stops: list[int], shuffle: bool) -> None:
    made: list[Any] = []

    def make() -> trainerd.KerasJob:
        made.append(a_model())
        return trainerd.KerasJob(made[-1], (X, Y), epochs=3, batch_size=16, shuffle=shuffle)

    assert in_parts(make, stops, tmp_path).step == 3 * 4
    interrupted = made[-1]
    in_parts(make, [], tmp_path)
    assert_same(interrupted, made[-1])
    if not shuffle:
        fitted = a_model()
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
def test_the_loop_leaves_the_graph_for_callbacks_that_want_each_batch(
    make: Callable[[], Any], wanted: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    session = opened(trainerd.KerasJob(a_model(), endless(), steps_per_epoch=1000, callbacks=[make()]))
    steps = session.run_until(4)
    assert len(steps.rows) == (1 if wanted else 4)
    session.end(finished=False)


def test_a_paused_batch_is_announced_once() -> None:
    marks = Marks(batches=True)
    session = KerasJobSession(trainerd.KerasJob(a_model(), shuffled(), callbacks=[marks], epochs=1))
    flag = Flag()
    session.bind(flag)
    train(session, 2)
    flag.raise_for(Request.SAVE)
    assert session.run_until(6).first == 3 and session.step == 2
    flag.take()
    train(session)
    batches = [mark for mark in marks.seen if mark.startswith("batch")]
    assert batches == [f"batch {n}" for n in range(6)]


# ---------------------------------------------------------------------- what is shown, and how it ends


def test_the_end_of_an_epoch_gives_its_figures() -> None:
    model = a_model()
    session = opened(trainerd.KerasJob(model, shuffled(), (X, Y), validation_freq=2))
    first = session.run_until(100)
    assert session.step == 6 and sorted(first.last()) == ["loss", "mae"]
    assert first.then is not None and sorted(first.then()) == ["epoch", "loss", "mae"]
    second = session.run_until(100)
    assert second.then is not None
    figures = second.then()
    assert figures["epoch"] == 2 and figures["val_mae"] == pytest.approx(model.evaluate(X, Y, verbose=0)[1])


def test_other_callbacks_make_a_stopped_training_go_on(tmp_path: Path) -> None:
    def make(patience: int) -> trainerd.KerasJob:
        stop = keras.callbacks.EarlyStopping("loss", patience=patience, min_delta=100.0)
        return trainerd.KerasJob(a_model(), shuffled(), callbacks=[stop], epochs=8)

    session = opened(make(1))
    assert train(session) == "a callback stopped the training in epoch 1"
    session.snapshot().write(tmp_path / "model.ckpt-12", lambda size: None)
    same, patient = opened(make(1)), opened(make(5))
    same.restore(tmp_path / "model.ckpt-12")
    assert same.run_until(100).over == "a callback stopped the training in epoch 1" and same.step == 12
    patient.restore(tmp_path / "model.ckpt-12")
    train(patient)
    assert patient.step == 36


def test_metrics_in_progress_go_on(tmp_path: Path) -> None:
    whole, parts = opened(trainerd.KerasJob(a_model(), shuffled())), opened(trainerd.KerasJob(a_model(), shuffled()))
    expected = whole.run_until(5).last()
    parts.run_until(3)
    parts.snapshot().write(tmp_path / "model.ckpt-3", lambda size: None)
    again = opened(trainerd.KerasJob(a_model(), shuffled()))
    again.restore(tmp_path / "model.ckpt-3")
    assert again.run_until(5).last() == expected


# ---------------------------------------------------------------------- what it does not take


class Fails(keras.callbacks.Callback):  # type: ignore[misc]
    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        raise KeyError("no such figure")


def uncompiled() -> keras.Model:
    return keras.Sequential([keras.layers.Dense(1)])


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: trainerd.KerasJob(uncompiled(), shuffled()), "is not compiled"),
        (lambda: trainerd.KerasJob("model", shuffled()), "must be a keras.Model"),
        (lambda: trainerd.KerasJob(a_model(run_eagerly=True), shuffled()), "without run_eagerly"),
        (lambda: trainerd.KerasJob(a_model(), endless()), "give steps_per_epoch"),
        (lambda: trainerd.KerasJob(a_model(), [X, Y]), "must be a tf.data.Dataset, or a tuple of arrays"),
        (lambda: trainerd.KerasJob(a_model(), (X, Y[:5])), "same number of examples"),
        (lambda: trainerd.KerasJob(a_model(), (X, None)), "no array of examples"),
        (lambda: trainerd.KerasJob(a_model(), shuffled(), callbacks=["x"]), "is no keras.callbacks.Callback"),
        (
            lambda: trainerd.KerasJob(a_model(), shuffled(), callbacks=[keras.callbacks.BackupAndRestore("b")]),
            "leave BackupAndRestore out",
        ),
        (lambda: trainerd.KerasJob(a_model(), tf.data.Dataset.from_tensors(X)), "does not trace"),
    ],
)
def test_what_it_cannot_train_it_refuses(make: Callable[[], trainerd.KerasJob], words: str) -> None:
    with pytest.raises(EntryError, match=words):
        KerasJobSession(make())


class Counts(keras.callbacks.Callback):  # type: ignore[misc]
    """Counts down from what it is told at the beginning, and is told of batches."""

    def __init__(self) -> None:
        super().__init__()
        self.left, self.began, self.ended = 0, 0, 0
        self.logs: list[Any] = []

    def on_train_begin(self, logs: Any = None) -> None:
        self.left = 2

    def on_train_batch_begin(self, batch: int, logs: Any = None) -> None:
        self.began += 1

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        self.ended += 1

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        self.left = max(0, self.left - 1)
        self.logs.append(dict(logs))

    def on_train_end(self, logs: Any = None) -> None:
        self.logs.append(dict(logs))


def test_the_end_of_an_epoch_that_failed_is_done_again_as_it_was(tmp_path: Path) -> None:
    def make(*more: Any, epochs: int = 3) -> tuple[trainerd.KerasJob, Counts]:
        counts = Counts()
        callbacks = [counts, *more]
        return trainerd.KerasJob(a_model(), shuffled(), (X * 50, Y), callbacks=callbacks, epochs=epochs), counts

    job, expected = make()
    train(opened(job))
    failing = opened(make(Fails())[0])
    with pytest.raises(JobError):
        train(failing)
    failing.snapshot().write(tmp_path / "model.ckpt-6", lambda size: None)
    job, counts = make(keras.callbacks.Callback())
    again = opened(job)
    again.restore(tmp_path / "model.ckpt-6")
    train(again)
    assert counts.logs == expected.logs and counts.left == 0
    assert {"loss", "val_loss"} <= set(counts.logs[-1]) and counts.logs[-1] == counts.logs[-2]


def test_what_is_again_as_it_was_made_is_remembered_too(tmp_path: Path) -> None:
    first = opened(trainerd.KerasJob(a_model(), shuffled(), callbacks=[Counts()], epochs=9))
    train(first, 18)
    flag = Flag()
    first.bind(flag)
    flag.raise_for(Request.PAUSE)
    first.run_until(19)  # callbacks are told of the batch, and wait for it
    first.snapshot().write(tmp_path / "model.ckpt-18", lambda size: None)
    counts = Counts()
    second = opened(trainerd.KerasJob(a_model(), shuffled(), callbacks=[counts], epochs=9))
    second.restore(tmp_path / "model.ckpt-18")
    assert counts.left == 0 and counts.began == 19 and counts.ended == 18
    train(second, 20)
    assert counts.began == counts.ended == 20


def test_the_best_weights_of_a_small_type_are_kept(tmp_path: Path) -> None:
    import ml_dtypes

    from trainerd.sessions.pythonstate import packed, unpacked

    value = np.array([[1.5, -2.0]], dtype=ml_dtypes.bfloat16)
    found = unpacked(packed({"best": [value, 3, None, np.float32(2.5)]}))["best"]
    assert found[0].dtype == value.dtype and np.array_equal(found[0], value)
    assert found[1:] == [3, None, 2.5] and isinstance(found[3], np.float32)


def test_a_callback_that_fails_is_named(tmp_path: Path) -> None:
    session = opened(trainerd.KerasJob(a_model(), shuffled(), callbacks=[Fails()], epochs=2))
    with pytest.raises(JobError, match="a callback's on_epoch_end failed after step 6") as caught:
        train(session)
    assert caught.value.sound and "no such figure" in str(caught.value.details)
    session.snapshot().write(tmp_path / "model.ckpt-6", lambda size: None)
    again = opened(trainerd.KerasJob(a_model(), shuffled(), epochs=2))
    again.restore(tmp_path / "model.ckpt-6")
    train(again)
    assert again.step == 12


def test_no_data_at_all_is_told() -> None:
    session = opened(trainerd.KerasJob(a_model(), unknown().take(0)))
    with pytest.raises(JobError, match="no batch at all"):
        train(session)


def test_a_checkpoint_of_another_kind_of_job_does_not_fit(tmp_path: Path) -> None:
    tf.train.Checkpoint(v=tf.Variable(1.0)).write(str(tmp_path / "model.ckpt-1"))
    with pytest.raises(DataError, match="it is not of a KerasJob"):
        opened(trainerd.KerasJob(a_model(), shuffled())).restore(tmp_path / "model.ckpt-1")
