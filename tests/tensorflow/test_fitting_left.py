"""The callback for programs that keep `model.fit`: what becomes of a `fit` that an error has left, and nobody told."""

from __future__ import annotations

import contextlib
import shutil
import signal
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf

import trainerd
from tests.conftest import Fork
from tests.tensorflow.graphs import saved, state
from tests.tensorflow.models import At, Once, X, Y, a_model, assert_same, reshuffled, terminate
from trainerd.errors import InUseError
from trainerd.rundir.state import Phase

pytestmark = pytest.mark.long


@pytest.mark.parametrize("is_removed", [False, True])
def test_a_fit_that_failed_makes_way_for_the_next_in_its_run_directory(tmp_path: Path, is_removed: bool) -> None:
    """A notebook's cell, run again: with another Supervise, and no `with` statement."""

    def train(*before: Any, name: str = "run") -> keras.Model:
        supervise, model = trainerd.keras.Supervise(str(tmp_path / name)), a_model()
        data = supervise.data(reshuffled())
        model.fit(data, epochs=2, verbose=0, shuffle=False, callbacks=[*before, supervise])
        assert supervise.step == 12
        return model

    with pytest.raises(OSError, match="of another callback"):
        train(Once(8))
    if is_removed:
        shutil.rmtree(tmp_path / "run")
    with pytest.raises(OSError, match="of another callback"):
        train(Once(2))
    if not is_removed:
        assert saved(tmp_path / "run") == [(8, "failure")]
    model = train()
    assert saved(tmp_path / "run")[0] == (12, "finish")
    assert_same(model, train(name="whole"))


def test_a_fit_within_another_one_is_refused_its_run_directory(tmp_path: Path) -> None:
    def train(*before: Any, name: str = "run") -> None:
        with trainerd.keras.Supervise(str(tmp_path / name)) as supervise:
            data = supervise.data(reshuffled())
            a_model().fit(data, epochs=2, verbose=0, shuffle=False, callbacks=[*before, supervise])

    with pytest.raises(InUseError):
        train(At(3, train))
    assert saved(tmp_path / "run")[0] == (3, "failure")
    train(At(3, lambda: train(name="another")))
    assert [saved(tmp_path / name)[0] for name in ("run", "another")] == [(12, "finish")] * 2


@pytest.mark.parametrize("is_within", [True, False])
def test_a_fit_that_is_tried_again_resumes_where_it_failed(tmp_path: Path, is_within: bool) -> None:
    """In one `with` statement, or in none: the error was caught, and nobody told of it."""

    def train(name: str, *fails: Any) -> keras.Model:
        supervise, model = trainerd.keras.Supervise(str(tmp_path / name)), a_model()
        data = supervise.data(reshuffled())
        with supervise if is_within else contextlib.nullcontext():
            for each in [*fails, keras.callbacks.Callback()]:
                with contextlib.suppress(OSError):
                    model.fit(data, epochs=3, verbose=0, shuffle=False, callbacks=[each, supervise])
        assert supervise.step == int(model.optimizer.iterations) == 18
        return model

    assert_same(train("whole"), train("parts", Once(4), Once(9)))
    assert [step for step, _ in saved(tmp_path / "parts")] == [18, 13, 4]


def test_a_with_statement_whose_error_was_caught_within_saves_the_last_step(tmp_path: Path) -> None:
    with trainerd.keras.Supervise(str(tmp_path)) as supervise, contextlib.suppress(OSError):
        data = supervise.data(reshuffled())
        a_model().fit(data, epochs=3, verbose=0, shuffle=False, callbacks=[Once(9), supervise])
    assert saved(tmp_path) == [(9, "failure")] and state(tmp_path).phase is Phase.FAILED


def test_another_fit_of_a_model_is_not_counted(tmp_path: Path) -> None:
    supervise, model = trainerd.keras.Supervise(str(tmp_path)), a_model()
    data = supervise.data(reshuffled())
    with contextlib.suppress(OSError):
        model.fit(data, epochs=3, verbose=0, shuffle=False, callbacks=[Once(9), supervise])
    weights = [weight.numpy() for weight in model.weights]
    model.fit(X, Y, verbose=0)
    assert saved(tmp_path) == [(9, "failure")]
    again = trainerd.keras.Supervise(str(tmp_path))
    model.fit(again.data(reshuffled()), epochs=1, verbose=0, shuffle=False, callbacks=[again])
    assert all(np.array_equal(was, weight) for was, weight in zip(weights, model.weights, strict=True))


@pytest.mark.parametrize(("kind", "batches"), [("best", 9), ("averages", 12)])
def test_a_loop_over_fit_continues_in_the_midst_of_a_later_one(tmp_path: Path, kind: str, batches: int) -> None:
    """Those before it train nothing, though Keras ends each: with the best weights, or averaged ones."""

    def train(name: str, *fails: Any) -> keras.Model:
        stop = keras.callbacks.EarlyStopping("loss", patience=9, restore_best_weights=True)
        callbacks, model = [stop] if kind == "best" else [], a_model()
        model.compile(keras.optimizers.Adam(0.01, use_ema=kind == "averages"), "mse")
        with trainerd.keras.Supervise(str(tmp_path / name), callbacks=callbacks) as supervise:
            data = supervise.data(reshuffled())
            for epoch in range(3):
                given = [*callbacks, *fails, supervise]
                model.fit(data, initial_epoch=epoch, epochs=epoch + 1, verbose=0, shuffle=False, callbacks=given)
            assert supervise.step == 18
        return model

    whole = train("whole")
    with pytest.raises(OSError, match="of another callback"):
        train("parts", Once(batches))
    assert_same(whole, train("parts"))


class Replays(keras.callbacks.Callback):  # type: ignore[misc]
    """Trains in a way of its own around each batch."""

    def on_train_batch_begin(self, batch: int, logs: Any = None) -> None:
        self.model.train_on_batch(X[:10], Y[:10])

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        self.model.train_on_batch(X[10:20], Y[10:20])


def test_a_callbacks_own_training_is_no_step_of_fits(tmp_path: Path) -> None:
    for fails in (Once(12), Once(99)):
        with contextlib.suppress(OSError), trainerd.keras.Supervise(str(tmp_path)) as supervise:
            data = supervise.data(reshuffled())
            a_model().fit(data, epochs=3, verbose=0, shuffle=False, callbacks=[Replays(), fails, supervise])
    assert supervise.step == 18 and [step for step, _ in saved(tmp_path)] == [18, 12]


@pytest.mark.parametrize("how", ["on_epoch_end", "pause"])
def test_a_callbacks_stop_in_mid_epoch_is_one_though_the_epochs_end_failed(tmp_path: Path, how: str) -> None:
    is_over = False

    def fail() -> None:
        if is_over:
            raise OSError("of another callback")

    def train(name: str, *, fails: bool) -> Any:
        model = a_model()
        limit = At(9 if not saved(tmp_path / name) else 99, lambda: stop(model))
        fails_at = keras.callbacks.Callback()
        if fails and how == "pause":
            fails_at = At(9, terminate)
        elif fails:
            setattr(fails_at, how, lambda *args, **options: fail())
        plateau = keras.callbacks.ReduceLROnPlateau("loss", patience=1, min_delta=99.0, factor=0.5)
        with trainerd.keras.Supervise(str(tmp_path / name), callbacks=[plateau]) as supervise:
            callbacks = [limit, plateau, fails_at, supervise]
            options: dict[str, Any] = {"validation_data": (X, Y), "verbose": 0, "shuffle": False}
            model.fit(supervise.data(reshuffled()), epochs=4, callbacks=callbacks, **options)
        return model, supervise.step, plateau.wait, float(model.optimizer.learning_rate.numpy())

    def stop(model: keras.Model) -> None:
        nonlocal is_over
        model.stop_training = is_over = True

    whole, *expected = train("whole", fails=False)
    is_over = False
    with pytest.raises((OSError, trainerd.keras.Paused)):
        train("parts", fails=True)
    assert [step for step, _ in saved(tmp_path / "parts")] == [9]
    model, *found = train("parts", fails=False)
    assert found == expected and found[0] == 9
    assert_same(whole, model)


class Ends(keras.callbacks.Callback):  # type: ignore[misc]
    """Counts, and never begins anew by itself."""

    count = 0

    def __init__(self) -> None:
        super().__init__()
        self.epochs: list[int] = []

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        self.count += 1
        self.epochs.append(epoch)


def test_callbacks_that_are_used_again_remember_what_was_saved(tmp_path: Path) -> None:
    ends, model = Ends(), a_model()
    fails = keras.callbacks.LambdaCallback(on_epoch_end=lambda epoch, logs: 1 / (ends.count - 1))
    for more in ([fails], []):
        supervise = trainerd.keras.Supervise(str(tmp_path), callbacks=[ends])
        with contextlib.suppress(ZeroDivisionError), supervise:
            data = supervise.data(reshuffled())
            model.fit(data, epochs=3, verbose=0, shuffle=False, callbacks=[ends, *more, supervise])
    assert ends.count == 3 and ends.epochs == [0, 1, 2]


SIGNALLED = """
import signal, sys, time
import keras
import tensorflow as tf
import trainerd

model = keras.Sequential([keras.layers.Dense(1)])
model.compile("sgd", "mse")
supervise = trainerd.keras.Supervise(sys.argv[1])
dataset = tf.data.Dataset.from_tensors((tf.ones([1, 2]), tf.ones([1, 1]))).repeat(20)
fails = keras.callbacks.LambdaCallback(on_train_batch_end=lambda batch, logs: 1 / (7 - batch))
try:
    model.fit(supervise.data(dataset), epochs=1, verbose=0, callbacks=[fails, supervise])
except ZeroDivisionError:
    try:
        print("left", flush=True)
        for _ in range(1000):
            time.sleep(0.1)
    except KeyboardInterrupt:
        print("interrupted", flush=True)
        supervise = trainerd.keras.Supervise(sys.argv[1])
        model.fit(supervise.data(dataset), epochs=1, verbose=0, callbacks=[supervise])
        print(supervise.step)
"""


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_after_a_fit_that_failed_does_what_it_does_without(
    fork: Fork, tmp_path: Path, number: signal.Signals
) -> None:
    (tmp_path / "signalled.py").write_text(SIGNALLED)
    program = fork(tmp_path, program="signalled.py", arguments=[str(tmp_path)])
    program.until_printed("left\n")
    program.signal(number)
    code, printed = program.end(), program.text.splitlines()
    assert (8, "failure") in saved(tmp_path)
    if number is signal.SIGTERM:
        assert code == -signal.SIGTERM and "interrupted" not in printed
    else:
        assert code == 0 and "interrupted" in printed and "20" in printed


def failing_record() -> tf.data.Dataset:
    """Data whose fifth batch cannot be read."""
    return (
        reshuffled()
        .map(lambda x, y: (x, tf.ensure_shape(y, [10, 1])))
        .apply(
            lambda whole: whole.take(4).concatenate(
                whole.take(1).map(lambda x, y: (tf.debugging.check_numerics(x / 0.0, "a bad record"), y))
            )
        )
    )


def test_a_fit_of_the_same_model_elsewhere_is_its_own_after_one_that_failed_in_a_step(tmp_path: Path) -> None:
    model, trains = a_model(), []
    for name in "abc":
        one = trainerd.keras.Supervise(str(tmp_path / name))
        with contextlib.suppress(tf.errors.InvalidArgumentError):
            model.fit(failing_record(), epochs=2, verbose=0, shuffle=False, callbacks=[one])
        trains.append(model.train_function)
    other = trainerd.keras.Supervise(str(tmp_path / "other"))
    model.fit(other.data(reshuffled()), epochs=2, verbose=0, shuffle=False, callbacks=[other])
    assert other.step == 12 and saved(tmp_path / "other") == [(12, "finish")] and not saved(tmp_path / "a")
    assert not any(model.train_function is each for each in trains)  # nor do they pile up
    assert not isinstance(trains[-1].train, type(trains[-1]))


@pytest.mark.parametrize(
    ("then", "lives"), [("again", False), *((then, True) for then in ("plain", "again", "another", "left"))]
)
def test_a_fit_that_failed_on_another_thread_hangs_nobody(tmp_path: Path, then: str, lives: bool) -> None:
    """Be it that the thread has ended, or that it waits for other work."""
    model, supervise = a_model(), trainerd.keras.Supervise(str(tmp_path))
    data = supervise.data(reshuffled())
    with ThreadPoolExecutor(1) as pool, contextlib.ExitStack() as stack:
        options: dict[str, Any] = {"epochs": 2, "verbose": 0, "shuffle": False}
        with pytest.raises(OSError, match="of another callback"):
            pool.submit(model.fit, data, callbacks=[Once(8), supervise], **options).result()
        if not lives:
            pool.shutdown()
        if then == "plain":
            assert model.fit(X, Y, epochs=1, verbose=0).epoch == [0]
        elif then == "left":
            stack.enter_context(supervise)
            stack.close()
        else:
            if then == "another":
                supervise = trainerd.keras.Supervise(str(tmp_path))
                data = supervise.data(reshuffled())
            model.fit(data, callbacks=[supervise], **options)
            assert supervise.step == 12
        assert saved(tmp_path)[-1] == (8, "failure")


def test_a_fit_on_thread_after_thread_resumes(tmp_path: Path) -> None:
    """Of which one may have the identity of another that has ended."""
    model, supervise = a_model(), trainerd.keras.Supervise(str(tmp_path))
    data = supervise.data(reshuffled())

    def work(fails: Once) -> None:
        with contextlib.suppress(OSError):
            model.fit(data, epochs=2, verbose=0, shuffle=False, callbacks=[fails, supervise])

    for batches in (2, 3, 99):
        thread = threading.Thread(target=work, args=(Once(batches),))
        thread.start()
        thread.join()
    assert supervise.step == 12 and [step for step, _ in saved(tmp_path)] == [12, 5, 2]


def test_a_run_restarted_begins_its_epoch_whole(tmp_path: Path) -> None:
    """After one that had gone on in mid-epoch, with the same Supervise."""
    supervise, model = trainerd.keras.Supervise(str(tmp_path / "run")), a_model()
    data = supervise.data(reshuffled())
    for batches in (9, 2, 99):
        if batches == 99:
            shutil.rmtree(tmp_path / "run")
            model = a_model()
        with contextlib.suppress(OSError):
            model.fit(data, epochs=2, verbose=0, shuffle=False, callbacks=[Once(batches), supervise])
    assert supervise.step == int(model.optimizer.iterations) == 12


def test_a_fit_without_it_begins_at_its_own_first_epoch(tmp_path: Path) -> None:
    """After one that had gone on in a later epoch, and failed."""
    model = a_model()
    for fails in (Once(8), Once(2)):
        supervise = trainerd.keras.Supervise(str(tmp_path))
        with contextlib.suppress(OSError):
            data = supervise.data(reshuffled())
            model.fit(data, epochs=6, verbose=0, shuffle=False, callbacks=[fails, supervise])
    assert model.fit(X, Y, epochs=1, verbose=0).epoch == [0] and saved(tmp_path)[0] == (10, "failure")


def test_an_evaluation_with_the_same_callbacks_changes_nothing(tmp_path: Path) -> None:
    with trainerd.keras.Supervise(str(tmp_path)) as supervise:
        model, other, evaluates = a_model(), a_model(), keras.callbacks.Callback()

        def evaluate(*args: Any, **options: Any) -> None:
            model.evaluate(X, Y, verbose=0, callbacks=[supervise])
            other.predict(X, verbose=0, callbacks=[supervise])

        evaluates.on_train_batch_end = evaluates.on_epoch_end = evaluate
        data = supervise.data(reshuffled())
        model.fit(data, epochs=2, verbose=0, shuffle=False, callbacks=[evaluates, supervise])
    assert supervise.step == 12 and saved(tmp_path) == [(12, "finish")]


class Stops(keras.callbacks.Callback):  # type: ignore[misc]
    """Stops when one of its methods is called so many times."""

    count = 0

    def __init__(self, method: str, last: int) -> None:
        super().__init__()
        self.last = last
        setattr(self, method, self.stop)

    def stop(self, *args: Any, **options: Any) -> None:
        self.count += 1
        if self.count == self.last:
            self.model.stop_training = True


@pytest.mark.parametrize(
    ("method", "last", "fails", "expected"),
    [
        ("on_train_batch_end", 8, ("on_train_batch_end", 8), 8),
        ("on_train_batch_begin", 8, ("on_train_batch_end", 8), 8),
        ("on_epoch_begin", 2, ("on_epoch_end", 1), 7),
    ],
)
def test_a_stop_is_neither_lost_nor_doubled_by_an_error(
    tmp_path: Path, method: str, last: int, fails: tuple[str, int], expected: int
) -> None:
    name, number = fails

    class Breaks(Stops):
        def stop(self, *args: Any, **options: Any) -> None:
            self.count += 1
            if self.count == number:
                raise OSError("of another callback")

    def train(*more: Any) -> int:
        stops = Stops(method, last)
        with trainerd.keras.Supervise(str(tmp_path), callbacks=[stops]) as supervise:
            data = supervise.data(reshuffled())
            a_model().fit(data, epochs=3, verbose=0, shuffle=False, callbacks=[stops, *more, supervise])
        return supervise.step

    with pytest.raises(OSError, match="of another callback"):
        train(Breaks(name, 99))
    assert train() == expected


class Writes(keras.callbacks.Callback):  # type: ignore[misc]
    """Has a file, which no checkpoint can hold."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.file: Any = path.open("w")

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        self.file.close()
        self.file = None
        raise OSError("of another callback")


@pytest.mark.filterwarnings("ignore::ResourceWarning")
def test_what_cannot_be_saved_of_a_callback_stays_as_it_has_become(tmp_path: Path) -> None:
    writes = Writes(tmp_path / "rows")
    with (
        pytest.raises(OSError, match="of another callback"),
        trainerd.keras.Supervise(str(tmp_path / "run"), callbacks=[writes]) as supervise,
    ):
        data = supervise.data(reshuffled())
        a_model().fit(data, epochs=3, verbose=0, shuffle=False, callbacks=[writes, supervise])
    assert writes.file is None
