"""`trainerd.keep`: objects of Python and NumPy in each checkpoint."""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf

import trainerd
from tests.tensorflow.models import X, Y, a_line, terminate
from trainerd.checkpoints.contents.kept import KEPT, kept_state, restore_kept
from trainerd.checkpoints.format import bundle_writer
from trainerd.checkpoints.format.bundle_writer import Item
from trainerd.errors import DataError, EntryError, JobError
from trainerd.programs.keras import calls


@pytest.fixture(autouse=True)
def nothing_is_kept_before_or_after() -> Iterator[None]:
    KEPT.objects.clear()
    KEPT.restored.clear()
    yield
    KEPT.objects.clear()
    KEPT.restored.clear()


class Counter:
    """Has a state as PyTorch's objects do."""

    count = 0

    def state_dict(self) -> dict[str, Any]:
        return {"count": self.count}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.count = state["count"]


def save(prefix: Path) -> None:
    items = [Item(key, "", tf.convert_to_tensor(value), allows_nan=True) for key, value in kept_state(1).items()]
    bundle_writer.write(prefix, items, lambda size: None, refuse_nan=True)


def test_each_kind_is_restored_where_it_is(tmp_path: Path) -> None:
    array = trainerd.keep("array", np.array([[1.0, np.nan], [3.0, 4.0]], np.float32))
    row, names = np.arange(3), np.array(["a", "bc"])
    held: dict[Any, Any] = {"row": row, "names": names, 7: (1, 2.5, None), "half": np.float16(0.5)}
    values = trainerd.keep("values", held)
    replay = trainerd.keep("replay", deque([(np.ones(4) * n, n, np.float32(n)) for n in range(5)], maxlen=5))
    numbers, python = trainerd.keep("numpy", np.random.default_rng(1)), trainerd.keep("python", random.Random(1))
    counter, seen, log = trainerd.keep("own", Counter()), trainerd.keep("seen", {1, 2}), trainerd.keep("log", ["a"])
    counter.count = 5
    save(tmp_path / "ckpt")
    drawn = numbers.random(), python.random()
    array[:], row[:], counter.count = 0, 0, 0
    values["more"] = values.pop(7)
    replay.append((np.zeros(4), 9, np.float32(9)))
    seen.add(3)
    log[:] = ["b", "c"]
    restore_kept(tmp_path / "ckpt")
    np.testing.assert_array_equal(array, np.array([[1.0, np.nan], [3.0, 4.0]], np.float32))
    assert values.keys() == {"row", "names", 7, "half"} and values[7] == (1, 2.5, None)
    assert values["row"] is row and [*row] == [0, 1, 2] and [*values["names"]] == ["a", "bc"]
    assert values["half"].dtype == np.float16
    assert replay.maxlen == 5 and [(*each[0], *each[1:]) for each in replay] == [(n, n, n, n, n, n) for n in range(5)]
    assert (numbers.random(), python.random()) == drawn
    assert (counter.count, seen, log) == (5, {1, 2}, ["a"])
    assert len(tf.train.list_variables(str(tmp_path / "ckpt"))) < 20, "arrays that are alike are one tensor"


@pytest.mark.parametrize(
    ("name", "thing", "says"),
    [
        ("rate", 0.5, "'rate' is of type float"),
        ("model", object(), "'model' is of type object"),
        ("replay", {"all": [1, lambda: 0]}, "'replay' contains an object of type function, which cannot be saved"),
        ("a/b", {}, "without a slash, not 'a/b'"),
    ],
)
def test_what_cannot_be_kept_is_refused(name: str, thing: Any, says: str) -> None:
    with pytest.raises(EntryError, match=says):
        trainerd.keep(name, thing)


def test_another_kind_of_object_than_was_saved_is_refused(tmp_path: Path) -> None:
    trainerd.keep("x", np.zeros((2, 3)))
    save(tmp_path / "ckpt")
    trainerd.keep("x", np.zeros(6))
    with pytest.raises(DataError, match=r"\[6\] .* an array of shape \[2, 3\] .*Put the object back as it was"):
        restore_kept(tmp_path / "ckpt")


def test_values_wait_for_an_object_that_is_given_later_and_a_new_object_stays(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    trainerd.keep("early", {"n": 1})
    save(tmp_path / "ckpt")
    KEPT.objects.clear()
    trainerd.keep("new", {"n": 2})
    restore_kept(tmp_path / "ckpt")
    assert trainerd.keep("early", {"n": 0}) == {"n": 1}
    assert "as the program made them: new" in caplog.text


def test_an_object_that_becomes_what_cannot_be_saved_fails_the_save() -> None:
    things = trainerd.keep("things", {"a": 1})
    things["a"] = print  # type: ignore[assignment]
    with pytest.raises(JobError, match="'things' could not be saved after step 4"):
        kept_state(4)


@pytest.mark.parametrize("place", ["epoch begin", "epoch end", "train end"])
def test_what_callbacks_did_to_kept_objects_between_two_steps_is_undone_where_one_fails(
    tmp_path: Path, place: str
) -> None:
    played = trainerd.keep("played", {"rows": [np.zeros(2)]})
    numbers, own = trainerd.keep("numbers", np.random.default_rng(3)), trainerd.keep("own", Counter())

    def play(where: str) -> None:
        played["rows"][0][:] += 1
        played["rows"].append(numbers.random(2))
        own.count += 1
        if where == place:
            raise ValueError("no game")

    plays = keras.callbacks.LambdaCallback(
        on_epoch_begin=lambda epoch, logs: play("epoch begin"),
        on_epoch_end=lambda epoch, logs: play("epoch end"),
        on_train_end=lambda logs: play("train end"),
    )
    model, expected = a_line(), ["epoch begin", "epoch end", "train end"].index(place)
    with pytest.raises(JobError, match=f"on_{place.replace(' ', '_')} of the callback"):
        trainerd.keras.fit(model, X, Y, verbose=0, callbacks=[plays], logdir=tmp_path)
    assert (own.count, len(played["rows"]), played["rows"][0][0]) == (expected, 1 + expected, expected)
    assert numbers.random() == np.random.default_rng(3).random(2 * expected + 1)[-1]


COUNT = {"batches": 0}


class Collects(keras.callbacks.Callback):  # type: ignore[misc]
    """Puts what it draws into a buffer; asks for a pause after a step of the whole training."""

    def __init__(self, buffer: Any, random_numbers: Any, step: int) -> None:
        super().__init__()
        self.buffer, self.numbers, self.step = buffer, random_numbers, step
        self.count: Any = lambda: COUNT.update(batches=COUNT["batches"] + 1)

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        self.buffer.append(self.numbers.random(2))
        self.count()
        if int(self.model.optimizer.iterations) == self.step:
            terminate()


def test_a_replay_buffer_is_the_same_after_a_pause_between_calls_and_in_one(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    def run(folder: Path, step: int = 0) -> list[Any]:
        calls.CALLS.clear()
        KEPT.objects.clear()
        model = a_line()
        COUNT["batches"] = 0
        trainerd.keep("count", COUNT)
        buffer = trainerd.keep("replay", deque[Any](maxlen=7))
        numbers = trainerd.keep("numbers", np.random.default_rng(3))
        for epoch in range(3):
            buffer.append(numbers.random(2))
            collects = Collects(buffer, numbers, step)
            trainerd.keras.fit(
                model, X, Y, batch_size=20, initial_epoch=epoch, epochs=epoch + 1, verbose=0, callbacks=[collects],
                logdir=folder,
            )  # fmt: skip
        assert COUNT["batches"] == 3 * 3
        return [[*each] for each in buffer]

    whole = run(tmp_path / "whole")
    for step in (2, 5):
        with pytest.raises(trainerd.keras.Paused):
            run(tmp_path / "parts", step)
    assert run(tmp_path / "parts") == whole
    assert "changes state that no checkpoint holds" not in caplog.text
