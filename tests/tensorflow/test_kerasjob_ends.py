"""How a KerasJob ends, what it shows and what it refuses."""

from __future__ import annotations

import itertools
from collections import Counter, OrderedDict, defaultdict, deque
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

import keras
import numpy as np
import pytest
import tensorflow as tf

import trainerd
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
    shuffled,
    train,
    unknown,
)
from trainerd.config.schema import Config
from trainerd.errors import BackendError, DataError, EntryError, JobError
from trainerd.loop.flag import Flag, Request
from trainerd.proof.check import EPOCH_STEPS, rehearse
from trainerd.sessions.keras.job_session import KerasJobSession

pytestmark = pytest.mark.long


def test_the_end_of_an_epoch_gives_its_metrics() -> None:
    model = a_model()
    session = opened(trainerd.KerasJob(model, shuffled(), (X, Y), validation_freq=2))
    first = session.run_until(100)
    assert session.step == 6 and sorted(first.last()) == ["loss", "mae"]
    assert first.then is not None and sorted(first.then()) == ["epoch", "loss", "mae"]
    second = session.run_until(100)
    assert second.then is not None
    figures = second.then()
    assert figures["epoch"] == 2 and figures["val_mae"] == pytest.approx(model.evaluate(X, Y, verbose=0)[1])


def test_other_callbacks_make_a_stopped_training_continue(tmp_path: Path) -> None:
    numbers = itertools.count()

    class Since(keras.callbacks.Callback):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.since = next(numbers)  # such as the time

    def make(patience: int) -> trainerd.KerasJob:
        stop = keras.callbacks.EarlyStopping("loss", patience=patience, min_delta=100.0)
        board = keras.callbacks.TensorBoard(str(tmp_path / f"board-{next(numbers)}"))  # as tutorials name it
        return trainerd.KerasJob(a_line(), shuffled(), callbacks=[stop, board, Since()], epochs=8)

    session = opened(make(1))
    assert train(session) == "a callback stopped the training in epoch 2"
    session.snapshot().write(tmp_path / "model.ckpt-12", lambda size: None)
    same, patient = opened(make(1)), opened(make(5))
    same.restore(tmp_path / "model.ckpt-12")
    assert same.run_until(100).over == "a callback stopped the training in epoch 2" and same.step == 12
    patient.restore(tmp_path / "model.ckpt-12")
    train(patient)
    assert patient.step == 36


def test_metrics_in_progress_resume(tmp_path: Path) -> None:
    whole, parts = opened(trainerd.KerasJob(a_model(), shuffled())), opened(trainerd.KerasJob(a_model(), shuffled()))
    expected = whole.run_until(5).last()
    parts.run_until(3)
    parts.snapshot().write(tmp_path / "model.ckpt-3", lambda size: None)
    again = opened(trainerd.KerasJob(a_model(), shuffled()))
    again.restore(tmp_path / "model.ckpt-3")
    assert again.run_until(5).last() == expected


# ---------------------------------------------------------------------- what it does not take


class StopsAfter(keras.callbacks.Callback):  # type: ignore[misc]
    def __init__(self, step: int) -> None:
        super().__init__()
        self.step = step

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        self.model.stop_training = int(self.model.optimizer.iterations) == self.step


def test_a_stop_within_an_epoch_is_remembered_before_the_end_of_that_epoch(tmp_path: Path) -> None:
    """It may fail, or be given up by a pause: the next start does that end, and no step."""

    def make(step: int) -> trainerd.KerasJob:
        return trainerd.KerasJob(a_line(), shuffled(), callbacks=[StopsAfter(step)], epochs=4)

    session = opened(make(8))
    first = session.run_until(100)
    assert first.then is not None
    first.then()
    expected = session.run_until(100)
    assert session.step == 8 and expected.then is not None
    session.snapshot().write(tmp_path / "model.ckpt-8", lambda size: None)
    same, other = opened(make(8)), opened(make(15))
    same.restore(tmp_path / "model.ckpt-8")
    again = same.run_until(100)
    assert again.then is not None and again.then() == expected.then()
    assert same.run_until(100).over == "a callback stopped the training in epoch 2" and same.step == 8
    other.restore(tmp_path / "model.ckpt-8")
    assert train(other) == "a callback stopped the training in epoch 3" and other.step == 15


class Fails(keras.callbacks.Callback):  # type: ignore[misc]
    def __init__(self, method: str = "on_epoch_end") -> None:
        super().__init__()
        self.method = method

    def on_test_begin(self, logs: Any = None) -> None:
        if self.method == "on_test_begin":
            raise KeyError("no such figure")

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        raise KeyError("no such figure")


def uncompiled() -> keras.Model:
    return keras.Sequential([keras.layers.Dense(1)])


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: trainerd.KerasJob(uncompiled(), shuffled()), "is not compiled"),
        (lambda: trainerd.KerasJob("model", shuffled()), "must be a keras.Model"),
        (lambda: trainerd.KerasJob(a_line(), endless()), "the data has no end, so give steps_per_epoch"),
        (
            lambda: trainerd.KerasJob(a_line(), shuffled(), endless()),
            "so give validation_steps",
        ),
        (
            lambda: trainerd.KerasJob(a_line(), shuffled(), (X, Y, Y, Y)),
            "validation_data must be .* is a tuple of 4",
        ),
        (lambda: trainerd.KerasJob(a_line(), [X, Y]), "must be a tf.data.Dataset, or a tuple of arrays"),
        (lambda: trainerd.KerasJob(a_line(), (X, Y[:5])), "same number of examples"),
        (lambda: trainerd.KerasJob(a_line(), (None, X)), "not an array of examples"),
        (lambda: trainerd.KerasJob(a_line(), (X.tolist(), Y.tolist())), "not an array of examples"),
        (lambda: trainerd.KerasJob(a_line(), (X, "y")), "not an array of examples"),
        (lambda: trainerd.KerasJob(returning(1.0), shuffled()), "must return a dict of name to value"),
        (lambda: trainerd.KerasJob(a_line(), shuffled(), callbacks=["x"]), "is not a keras.callbacks.Callback"),
        (
            lambda: trainerd.KerasJob(a_line(), shuffled(), callbacks=[keras.callbacks.BackupAndRestore("b")]),
            "leave BackupAndRestore out",
        ),
        (lambda: trainerd.KerasJob(a_line(), tf.data.Dataset.from_tensors(X)), "does not trace"),
    ],
)
def test_what_it_cannot_train_it_refuses(make: Callable[[], trainerd.KerasJob], words: str) -> None:
    with pytest.raises(EntryError, match=words):
        KerasJobSession(make())


def test_a_model_of_another_backend_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(keras.config, "backend", lambda: "jax")
    with pytest.raises(BackendError, match="Keras's backend is 'jax'"):
        KerasJobSession(trainerd.KerasJob(a_line(), shuffled()))


def returning(value: Any) -> keras.Model:
    class Odd(keras.Model):  # type: ignore[misc]
        def train_step(self, data: Any) -> Any:
            return value

    model = Odd()
    model.compile("sgd", "mse")
    return model


@pytest.mark.parametrize(
    "options",
    [
        *({name: value} for name in ("steps_per_epoch", "epochs", "validation_steps") for value in (0, -1, 1.5, "2")),
        *({"batch_size": value} for value in (None, 0, -4, "4", True)),
        *({"validation_freq": value} for value in (0, "1", 1.0, [1, 0], None)),
        *({"validation_data": value} for value in ((X, Y, X, Y), endless())),
        *({"callbacks": value} for value in (3, keras.callbacks.CallbackList([]))),
    ],
)
def test_a_wrong_argument_is_refused_before_it_trains(options: dict[str, Any]) -> None:
    with pytest.raises(EntryError, match=next(iter(options))):
        KerasJobSession(trainerd.KerasJob(a_line(), (X, Y), **options))


@pytest.mark.parametrize("shuffle", [False, True])
def test_arrays_are_taken_in_the_forms_that_fit_takes(shuffle: bool) -> None:
    def two() -> keras.Model:
        keras.utils.set_random_seed(7)
        ins = [keras.Input([4]), keras.Input([1])]
        joined = keras.layers.Concatenate()(ins)
        model = keras.Model(ins, [keras.layers.Dense(1)(joined), keras.layers.Dense(2)(joined)])
        model.compile("sgd", ["mse", "mse"])
        return model

    wide = X.astype(np.float64)
    for data in (([X, Y], [Y, X[:, :2]]), ((wide, Y), (Y, X[:, :2]), None)):
        plain, ours = two(), two()
        plain.fit(*data[:2], epochs=1, shuffle=False, verbose=0)
        session = opened(trainerd.KerasJob(ours, data, epochs=1, shuffle=shuffle))
        train(session)
        assert session.step == 2
        if not shuffle:
            assert all(map(np.allclose, ours.get_weights(), plain.get_weights()))


@pytest.mark.parametrize("when", ["on_train_begin", "on_epoch_begin"])
def test_a_callback_that_stops_before_a_batch_has_one_as_under_fit(when: str) -> None:
    def stopping(model: keras.Model) -> keras.callbacks.Callback:
        def stop(*arguments: Any) -> None:
            model.stop_training = True

        return keras.callbacks.LambdaCallback(**{when: stop})

    plain, ours = a_line(), a_line()
    plain.fit(shuffled(), epochs=3, callbacks=[stopping(plain)], shuffle=False, verbose=0)
    session = opened(trainerd.KerasJob(ours, shuffled(), callbacks=stopping(ours), epochs=3))
    train(session)
    assert session.step == int(plain.optimizer.iterations) == 1


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
        return trainerd.KerasJob(a_line(), shuffled(), (X * 50, Y), callbacks=callbacks, epochs=epochs), counts

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
    first = opened(trainerd.KerasJob(a_line(), shuffled(), callbacks=[Counts()], epochs=9))
    train(first, 18)
    flag = Flag()
    first.bind(flag)
    flag.raise_for(Request.PAUSE)
    first.run_until(19)  # callbacks are told of the batch, and wait for it
    first.snapshot().write(tmp_path / "model.ckpt-18", lambda size: None)
    counts = Counts()
    second = opened(trainerd.KerasJob(a_line(), shuffled(), callbacks=[counts], epochs=9))
    second.restore(tmp_path / "model.ckpt-18")
    assert counts.left == 0 and counts.began == 19 and counts.ended == 18
    train(second, 20)
    assert counts.began == counts.ended == 20


def test_the_best_weights_of_a_small_type_are_kept(tmp_path: Path) -> None:
    import ml_dtypes

    from trainerd.checkpoints.contents.python_state import is_plain, packed, unpacked

    value = np.array([[1.5, -2.0]], dtype=ml_dtypes.bfloat16)
    found = unpacked(packed({"best": [value, 3, None, np.float32(2.5)]}))["best"]
    assert found[0].dtype == value.dtype and np.array_equal(found[0], value)
    assert found[1:] == [3, None, 2.5] and isinstance(found[3], np.float32)
    odd = {0: (1, [2, (3,)]), None: {"a": {1.5: "x", True: value}}, "s": ()}
    again = unpacked(packed(odd))
    assert again[0] == odd[0] and again["s"] == () and list(again) == list(odd) and again[None]["a"][1.5] == "x"
    kinds = {"d": deque([1, (2,)], maxlen=2), "s": {"a", 3}, "f": frozenset([1]), "b": b"\0\xff"}
    again = unpacked(packed(kinds))
    assert again == kinds and again["d"].maxlen == 2
    for numbers in ([1.0, 2.0], 3.0):
        tensor = unpacked(packed({"t": tf.constant(numbers)}))["t"]
        assert isinstance(tensor, tf.Tensor) and tensor.dtype == tf.float32 and tensor.numpy().tolist() == numbers
    small = unpacked(packed({"t": tf.cast([1.0, 2.0], tf.dtypes.experimental.float8_e5m2)}))["t"]
    assert small.dtype == tf.dtypes.experimental.float8_e5m2 and small.numpy().tolist() == [1.0, 2.0]
    assert not is_plain(np.zeros(1, [("a", "i4")])) and not is_plain(tf.quantization.quantize([1.0], 0, 1, tf.qint8)[0])
    for name in ("__set__", "__tuple__", "__tensor__", "__bytes__", "__array__"):
        assert unpacked(packed({"d": {name: [1]}})) == {"d": {name: [1]}}


class Point(NamedTuple):
    epoch: int
    value: float


class Collects(keras.callbacks.Callback):  # type: ignore[misc]
    """Remembers in collections of several kinds, and once in what cannot be saved."""

    def __init__(self) -> None:
        super().__init__()
        self.by_parity: dict[int, list[int]] = defaultdict(list)
        self.last: deque[int] = deque(maxlen=3)
        self.seen: set[int] = set()
        self.best: Any = None
        self.lost: Any = None
        self.none: Any = 0
        self.pair, self.point, self.known = (0, 0.0), Point(0, 0.0), [(-1, -1)]
        self.nested: dict[str, dict[int, list[int]]] = defaultdict(lambda: defaultdict(list))
        self.odd: dict[str, int] = defaultdict(lambda: 1 // 0)
        self.parts: dict[str, Any] = {"train": defaultdict(lambda: 0), "val": Counter(), "points": [Point(0, 0.0)]}
        self.later: Any = None

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        self.by_parity[epoch % 2].append(epoch)
        self.last.append(epoch)
        self.seen.add(epoch)
        self.best = tf.constant(float(epoch))
        self.lost = object()
        self.pair, self.point = max(self.pair, (epoch, 1.0)), Point(epoch, 1.0)
        self.known.append((epoch, 1))
        self.nested["all"][epoch].append(epoch)
        self.odd["last"] = epoch
        self.none = ()
        self.parts["train"][epoch] += 1
        self.parts["val"][epoch] += 1
        self.parts["points"] = [Point(epoch, self.parts["points"][0].epoch)]
        self.later = self.later or {"counts": Counter(), "ordered": OrderedDict(), "default": defaultdict(int)}
        for found in self.later.values():
            found[epoch] = found.get(epoch, 0) + 1


def test_collections_are_remembered_and_what_cannot_be_is_reported(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    first = opened(trainerd.KerasJob(a_line(), shuffled(), callbacks=[Collects()], epochs=5))
    train(first, 25)
    for _ in range(2):
        first.snapshot().write(tmp_path / "model.ckpt-25", lambda size: None)
    [reported] = [each.getMessage() for each in caplog.records if getattr(each, "event", "") == "callbacks"]
    assert (
        "the callback Collects changes state that no checkpoint holds" in reported
        and ": lost (of the type object)" in reported
    )
    collects = Collects()
    second = opened(trainerd.KerasJob(a_line(), shuffled(), callbacks=[collects], epochs=5))
    second.restore(tmp_path / "model.ckpt-25")
    train(second)
    assert collects.by_parity == {0: [0, 2, 4], 1: [1, 3]} and list(collects.last) == [2, 3, 4]
    assert collects.none == () and collects.pair == (4, 1.0) and collects.point.epoch == 4 and (1, 1) in collects.known
    assert collects.nested == {"all": {epoch: [epoch] for epoch in range(5)}} and collects.nested["x"][7] == []
    assert collects.seen == set(range(5)) and collects.best == 4.0 and collects.by_parity[7] == []
    once = dict.fromkeys(range(5), 1)
    assert collects.parts == {"train": once, "val": once, "points": [Point(4, 3)]}
    assert collects.later == {"counts": once, "ordered": once, "default": once}
    assert [type(each) for each in collects.later.values()] == [Counter, OrderedDict, defaultdict]
    assert collects.later["default"][9] == collects.later["counts"][9] == 0


class Forgets(keras.callbacks.Callback):  # type: ignore[misc]
    """Keeps all that it keeps where no checkpoint holds it, from the start or from the first epoch on."""

    steps = itertools.count()
    number = 0

    def __init__(self) -> None:
        super().__init__()
        self.memory, self.cycle = Counter, itertools.cycle([1])
        self.notes, self.settings = [object()], (Path("x"), {"rate": 0.1, "of": print})
        self.layer: Any = None
        self.later: Any = None
        self.rate = SimpleNamespace(value=0.1)

    def on_train_begin(self, logs: Any = None) -> None:
        self.layer = self.model.layers[0]

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        Forgets.number += 1
        self.model.seen = epoch
        self.later = self.later or np.random.default_rng(1)


def test_what_a_callback_forgets_is_named_before_the_first_step(caplog: pytest.LogCaptureFixture) -> None:
    session = opened(trainerd.KerasJob(a_line(), shuffled(), callbacks=[Forgets(), Marks()]))
    session.run_until(1)
    [reported] = [each.getMessage() for each in caplog.records if getattr(each, "event", "") == "callbacks"]
    assert "the callback Forgets" in reported
    for words in ("cycle (of", "notes (of", "rate (of", "steps on the class", "number on the class", "seen on the mo"):
        assert words in reported
    for words in ("memory", "settings", "layer", "later"):
        assert words not in reported
    train(session, 7)
    session.snapshot()
    assert "later (of the type Generator)" in caplog.text


class CountsInPlace(keras.callbacks.Callback):  # type: ignore[misc]
    """Counts epochs, in an array that stays the same one too."""

    def __init__(self) -> None:
        super().__init__()
        self.array, self.parts, self.number = np.zeros(1), {"a": [np.zeros(1)]}, 0

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        self.array += 1
        self.parts["a"][0] += 1
        self.number += 1


def test_an_array_that_is_changed_where_it_is_counts_an_end_that_failed_once(tmp_path: Path) -> None:
    def upload(epoch: int, logs: Any) -> None:
        if epoch == 1 and not (tmp_path / "model.ckpt-1.index").exists():
            raise OSError("no network")

    def job() -> tuple[CountsInPlace, Any]:
        counts = CountsInPlace()
        callbacks = [counts, keras.callbacks.LambdaCallback(on_epoch_end=upload)]
        return counts, opened(trainerd.KerasJob(a_line(), shuffled(), callbacks=callbacks, epochs=3))

    _, first = job()
    with pytest.raises(JobError):
        train(first)
    first.snapshot().write(tmp_path / "model.ckpt-1", lambda size: None)
    counts, second = job()
    second.restore(tmp_path / "model.ckpt-1")
    train(second)
    assert counts.number == counts.array[0] == counts.parts["a"][0][0] == 3


class Tells(keras.Sequential):  # type: ignore[misc]
    """Its steps give what cannot be saved, and what an epoch's end is told though no step follows a pause."""

    def train_step(self, data: Any) -> dict[str, Any]:
        super().train_step(data)
        count = tf.cast(self.optimizer.iterations, tf.int64)
        return {"mine": count, "both": tf.stack([count, 7])}

    def test_step(self, data: Any) -> dict[str, Any]:
        return {"loss": tf.constant(1.0), "words": tf.constant(["a", "b"]), "complex": tf.constant(1 + 2j)}


def test_logs_that_cannot_be_saved_keep_no_checkpoint_from_being_restored(tmp_path: Path) -> None:
    reported: list[Any] = []

    def job() -> trainerd.KerasJob:
        model = Tells([keras.layers.Dense(1)])
        model.compile("sgd", "mse")
        tells = keras.callbacks.LambdaCallback(on_epoch_end=lambda epoch, logs: reported.append(dict(logs)))
        return trainerd.KerasJob(model, unknown(), (X, Y), callbacks=[tells], epochs=3)

    for stop in (6, 12):  # the next run finds the end of the data
        session = opened(job())
        if stop == 12:
            session.restore(tmp_path / "model.ckpt-6")
        train(session, stop)
        session.snapshot().write(tmp_path / f"model.ckpt-{stop}", lambda size: None)
    last = opened(job())
    last.restore(tmp_path / "model.ckpt-12")
    train(last)
    assert [int(each["mine"]) for each in reported] == [6, 12, 18] and [each["both"][0] for each in reported] == [
        6,
        12,
        18,
    ]
    assert all(each["val_words"].tolist() == [b"a", b"b"] and each["val_complex"] == 1 + 2j for each in reported)


def test_the_end_of_data_that_nobody_foresees_is_reported_after_a_pause_too(tmp_path: Path) -> None:
    """With steps an epoch beside it; and each batch that comes is begun, after one that did not come."""
    reported: list[Any] = []
    marks = Marks(batches=True)

    def job() -> trainerd.KerasJob:
        model = Tells([keras.layers.Dense(1)])
        model.compile("sgd", "mse")
        tells = keras.callbacks.LambdaCallback(on_epoch_end=lambda epoch, logs: reported.append(int(logs["mine"])))
        return trainerd.KerasJob(model, unknown(), callbacks=[tells, marks], steps_per_epoch=4, epochs=4)

    in_parts(job, [6], tmp_path)
    assert reported == [4, 6, 10, 12]
    begun, ended = ([each for each in marks.seen if each.startswith(word)] for word in ("batch", "end"))
    assert [each.split()[1] for each in ended] == ["0", "1", "2", "3", "0", "1"] * 2
    assert [each.split()[1] for each in begun] == [*"012301", "2", *"0123", "0", "1", "2"]


@pytest.mark.parametrize(("max_steps", "epochs"), [(12, 2), (13, 3), (None, 2**31 - 1)])
def test_callbacks_get_a_number_of_epochs_where_the_job_has_none(max_steps: int | None, epochs: int) -> None:
    marks = Marks()
    KerasJobSession(trainerd.KerasJob(a_line(), shuffled(), callbacks=[marks]), max_steps=max_steps)
    assert marks.params["epochs"] == epochs


def test_a_rehearsal_goes_past_the_end_of_an_epoch_with_a_validation() -> None:
    marks = Marks()
    job = trainerd.KerasJob(a_model(), shuffled(), (X, Y), callbacks=[marks], validation_freq=3)
    config = Config(entry="a:b", logdir="r", target="val_mae <= 0.1")
    lines = list(rehearse(KerasJobSession(job, trial_steps=EPOCH_STEPS), config))
    assert any("val_mae" in line for line in lines)
    called = [each.partition(" [")[0] for each in marks.seen]
    assert called[:6] == ["train", "epoch 0", "test", "test", "epoch end 0", "epoch 1"] and marks.params["steps"] == 6
    failing = trainerd.KerasJob(a_model(), shuffled(), callbacks=[Fails()])
    with pytest.raises(JobError, match="callback Fails failed after step 2"):
        list(rehearse(KerasJobSession(failing, trial_steps=EPOCH_STEPS), config))


@pytest.mark.filterwarnings("ignore:Your input ran out of data")  # a generator's length is not known
def test_a_rehearsal_names_a_validation_that_does_not_repeat(caplog: pytest.LogCaptureFixture) -> None:
    draws = np.random.default_rng(1)

    def elements(noise: float) -> Any:
        yield X + np.float32(draws.normal() * noise), Y

    def rehearsed(noise: float) -> str:
        spec = (tf.TensorSpec(X.shape), tf.TensorSpec(Y.shape))
        data = tf.data.Dataset.from_generator(lambda: elements(noise), output_signature=spec)
        session = KerasJobSession(trainerd.KerasJob(a_model(), shuffled(), data), trial_steps=EPOCH_STEPS)
        list(rehearse(session, Config(entry="a:b", logdir="r")))
        return caplog.text

    assert not rehearsed(0.0)
    said = rehearsed(1.0)
    assert "gave other metrics" in said and "mae" in said and "FlatMap" in said


@pytest.mark.parametrize("method", ["on_epoch_end", "on_test_begin"])
def test_a_callback_that_fails_is_named(tmp_path: Path, method: str) -> None:
    session = opened(trainerd.KerasJob(a_line(), shuffled(), (X, Y), callbacks=[Marks(), Fails(method)], epochs=2))
    with pytest.raises(JobError, match=f"^{method} of the callback Fails failed after step 6") as caught:
        train(session)
    assert caught.value.sound and "no such figure" in str(caught.value.details)
    session.snapshot().write(tmp_path / "model.ckpt-6", lambda size: None)
    again = opened(trainerd.KerasJob(a_line(), shuffled(), epochs=2))
    again.restore(tmp_path / "model.ckpt-6")
    train(again)
    assert again.step == 12


def test_no_data_at_all_is_reported() -> None:
    session = opened(trainerd.KerasJob(a_line(), unknown().take(0)))
    with pytest.raises(JobError, match="the data has no batches"):
        train(session)


def test_a_checkpoint_of_another_kind_of_job_does_not_fit(tmp_path: Path) -> None:
    tf.train.Checkpoint(v=tf.Variable(1.0)).write(str(tmp_path / "model.ckpt-1"))
    with pytest.raises(DataError, match="it is not of a KerasJob"):
        opened(trainerd.KerasJob(a_line(), shuffled())).restore(tmp_path / "model.ckpt-1")


class Freezes(keras.callbacks.Callback):  # type: ignore[misc]
    def on_train_begin(self, logs: Any = None) -> None:
        self.model.layers[0].trainable = False


def test_what_a_callback_freezes_after_the_step_was_made_is_refused() -> None:
    """`fit` makes its step later, and would leave that layer as it is."""
    session = opened(trainerd.KerasJob(a_model(), shuffled(), callbacks=[Freezes()]))
    with pytest.raises(JobError, match=r"a callback changed `trainable`"):
        train(session)
    model = a_model()
    model.layers[0].trainable = False
    train(opened(trainerd.KerasJob(model, shuffled(), callbacks=[Freezes()], epochs=1)))


@pytest.mark.parametrize("swaps", [True, False])
def test_an_evaluation_that_fails_leaves_the_weights_of_the_last_step(swaps: bool) -> None:
    def read(x: Any) -> Any:
        raise OSError("the disk is gone")

    held_out = tf.data.Dataset.from_tensors((X, Y)).map(
        lambda x, y: (tf.ensure_shape(tf.py_function(read, [x], tf.float32), X.shape), y)
    )
    model = a_line()
    model.compile(keras.optimizers.Adam(0.05, use_ema=True, ema_momentum=0.9), "mse")
    callbacks = [keras.callbacks.SwapEMAWeights()] if swaps else []
    session = opened(trainerd.KerasJob(model, shuffled(), validation_data=held_out, callbacks=callbacks))
    with pytest.raises(JobError, match="evaluate failed after step 6") as caught:
        train(session)
    assert caught.value.sound
    alone = a_line()
    alone.compile(keras.optimizers.Adam(0.05, use_ema=True, ema_momentum=0.9), "mse")
    train(opened(trainerd.KerasJob(alone, shuffled())), 6)
    assert_same(alone, model)


def with_changes_between_steps(*more: Any) -> tuple[keras.Model, KerasJobSession]:
    model = a_model()
    model.compile(keras.optimizers.Adam(0.01, use_ema=True), "mse", metrics=["mae"])
    halves = keras.callbacks.LearningRateScheduler(lambda epoch, now: now * 0.9)
    plateau = keras.callbacks.ReduceLROnPlateau("val_loss", patience=1, min_delta=10.0, factor=0.5)
    callbacks = [halves, plateau, keras.callbacks.SwapEMAWeights(), Counts(), *more]
    return model, opened(trainerd.KerasJob(model, shuffled(), (X, Y), callbacks=callbacks, epochs=4))


@pytest.fixture(scope="module")
def whole() -> keras.Model:
    """The same without an error, trained once for all cases."""
    model, session = with_changes_between_steps()
    train(session)
    return model


@pytest.mark.parametrize("method", ["on_epoch_begin", "on_epoch_end", "on_train_end"])
def test_what_callbacks_did_between_two_steps_is_undone_where_one_fails(
    tmp_path: Path, whole: keras.Model, method: str
) -> None:
    """A rate is not lowered twice, averaged weights not swapped back, and what is best so far not put in twice."""

    def fail(*args: Any, **options: Any) -> None:
        if method == "on_train_end" or failing[0].optimizer.iterations >= 12:
            raise OSError("the disk of another callback is full")

    fails = keras.callbacks.Callback()
    setattr(fails, method, fail)
    failing = with_changes_between_steps(fails)
    with pytest.raises(JobError) as caught:
        train(failing[1])
    assert caught.value.sound
    failing[1].snapshot().write(tmp_path / "model.ckpt", lambda size: None)
    model, again = with_changes_between_steps()
    again.restore(tmp_path / "model.ckpt")
    train(again)
    assert_same(whole, model)


class Thaws(keras.callbacks.Callback):  # type: ignore[misc]
    """Fine-tunes a layer from the second epoch on, which has no effect on a step that is made."""

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        self.model.layers[0].trainable = epoch >= 1


def test_what_a_callback_thaws_later_keeps_no_run_from_going_on(tmp_path: Path) -> None:
    made: list[Any] = []

    def job() -> trainerd.KerasJob:
        made.append(a_model())
        made[-1].layers[0].trainable = False
        return trainerd.KerasJob(made[-1], shuffled(), callbacks=[Thaws()], epochs=3)

    in_parts(job, [], tmp_path)
    in_parts(job, [6, 8], tmp_path)
    assert_same(made[0], made[-1])


class Rows(keras.callbacks.CSVLogger):  # type: ignore[misc]
    """A program's own, whose end is more than a file that is closed."""

    def on_train_end(self, logs: Any) -> None:
        raise AssertionError("the training has not ended")


def test_a_pause_closes_the_files_of_a_programs_own_logger_and_no_more(tmp_path: Path) -> None:
    path = tmp_path / "log.csv"
    session = opened(trainerd.KerasJob(a_line(), shuffled(), callbacks=[Rows(str(path))]))
    train(session, 6)
    session.end(finished=False)
    assert path.read_text().startswith("epoch,")
    path.write_text("secs,loss\n1,2\n3,4\n")
    session.snapshot().write(tmp_path / "model.ckpt-6", lambda size: None)
    again = opened(trainerd.KerasJob(a_line(), shuffled(), callbacks=[Rows(str(path))]))
    again.restore(tmp_path / "model.ckpt-6")
    assert path.read_text() == "secs,loss\n1,2\n3,4\n"
    again.end(finished=False)
