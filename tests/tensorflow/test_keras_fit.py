"""`trainerd.keras.fit` beside Keras's own: the same arguments, the same numbers, and a run around them."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf

import trainerd
from tests.tensorflow.graphs import saved, state
from tests.tensorflow.models import X, Y, a_line, a_model, assert_same, shuffled, terminate
from trainerd.errors import ConfigError, EntryError
from trainerd.programs.keras import calls
from trainerd.rundir.state import Phase


class Stops(keras.callbacks.Callback):  # type: ignore[misc]
    """Asks for a pause after a step of the whole training."""

    def __init__(self, step: int) -> None:
        super().__init__()
        self.step = step

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        if int(self.model.optimizer.iterations) == self.step:
            terminate()


LABELS = (Y[:, 0] > 0).astype(np.int64) + (Y[:, 0] > 1)


def of_two_inputs() -> keras.Model:
    keras.utils.set_random_seed(7)
    left, right = keras.Input((2,), name="left"), keras.Input((2,), name="right")
    model = keras.Model({"left": left, "right": right}, keras.layers.Dense(1)(keras.layers.Add()([left, right])))
    model.compile("adam", "mse")
    return model


def a_classifier() -> keras.Model:
    keras.utils.set_random_seed(7)
    model = keras.Sequential([keras.layers.Dense(3, "softmax")])
    model.compile("sgd", "sparse_categorical_crossentropy", metrics=["accuracy"])
    return model


def labelled() -> tf.data.Dataset:
    return tf.data.Dataset.from_tensor_slices((X, LABELS)).batch(8)


class Endless(keras.utils.PyDataset):  # type: ignore[misc]
    """Batches without an end."""

    num_batches = None

    def __getitem__(self, at: int) -> tuple[Any, Any]:
        return X[:5], Y[:5]


class Halves(keras.utils.PyDataset):  # type: ignore[misc]
    """Batches of several lengths, which come in another order after each beginning and each end of an epoch."""

    begun = ended = 0

    def __len__(self) -> int:
        return 4

    def __getitem__(self, at: int) -> tuple[Any, Any]:
        at = (at + self.begun + 2 * self.ended) % 4
        return X[15 * at : 15 * at + 15 - at], Y[15 * at : 15 * at + 15 - at]

    def on_epoch_begin(self) -> None:
        self.begun += 1

    def on_epoch_end(self) -> None:
        self.ended += 1


class Augments(keras.utils.PyDataset):  # type: ignore[misc]
    """Batches that differ each time."""

    def __init__(self) -> None:
        super().__init__()
        self.rng = np.random.default_rng(3)

    def __len__(self) -> int:
        return 4

    def __getitem__(self, at: int) -> tuple[Any, Any]:
        batch = X[8 * at : 8 * at + 8]
        return batch + self.rng.normal(size=batch.shape) + np.random.normal(), Y[8 * at : 8 * at + 8]


def generated() -> Any:
    while True:
        yield from ((X[at : at + 8], Y[at : at + 8].astype(np.float64)) for at in range(0, 56, 8))


class Peeks(keras.Sequential):  # type: ignore[misc]
    """Its step reads a number of a tensor, so it cannot be traced. Its layers and its optimizer are not built."""

    def train_step(self, data: Any) -> Any:
        logs = super().train_step(data)
        return logs | {"seen": float(logs["loss"])}


def eager(kind: Any = keras.Sequential) -> keras.Model:
    keras.utils.set_random_seed(7)
    model = kind([keras.layers.Dense(8, "relu"), keras.layers.Dropout(0.3), keras.layers.Dense(1)])
    model.compile("adam", "mse", metrics=["mae"], run_eagerly=True)
    return model


CALLS: dict[str, tuple[Callable[[], keras.Model], Callable[[], dict[str, Any]]]] = {
    "a dataset": (a_model, lambda: {"x": shuffled(), "validation_data": (X, Y)}),
    "a dataset in parts": (a_line, lambda: {"x": shuffled().repeat(), "steps_per_epoch": 4}),
    "arrays of which some are for validation": (
        a_model,
        lambda: {
            "x": X,
            "y": Y,
            "batch_size": 7,
            "validation_split": 0.3,
            "validation_freq": 2,
            "validation_batch_size": 5,
        },
    ),
    "a dict of arrays, weights of examples, later epochs": (
        of_two_inputs,
        lambda: {
            "x": {"left": X[:, :2], "right": X[:, 2:]},
            "y": Y,
            "sample_weight": np.abs(X[:, 0]),
            "initial_epoch": 2,
        },
    ),
    "weights of classes": (a_classifier, lambda: {"x": X, "y": LABELS, "class_weight": {0: 0.5, 1: 2.0, 2: 1.5}}),
    "weights of classes of a dataset": (
        a_classifier,
        lambda: {"x": labelled(), "class_weight": {0: 0.5, 1: 2.0, 2: 1.5}},
    ),
    "weights of classes of booleans": (a_line, lambda: {"x": X, "y": Y > 0, "class_weight": {0: 0.5, 1: 2.0}}),
    "arrays in so many steps": (a_line, lambda: {"x": X, "y": Y, "steps_per_epoch": 4}),
    "a PyDataset": (a_line, lambda: {"x": Halves()}),
    "a generator": (a_line, lambda: {"x": generated(), "steps_per_epoch": 5}),
    "a model that runs eagerly": (eager, lambda: {"x": shuffled(), "validation_data": (X, Y)}),
    "a step that cannot be traced": (functools.partial(eager, Peeks), lambda: {"x": X, "y": Y, "batch_size": 7}),
}


@pytest.mark.parametrize("name", CALLS)
def test_it_trains_to_what_fit_trains_to(tmp_path: Path, name: str) -> None:
    make, arguments = CALLS[name]
    fitted, mine = make(), make()
    expected = fitted.fit(**arguments(), epochs=4, shuffle=False, verbose=0)
    found = trainerd.keras.fit(mine, **arguments(), epochs=4, shuffle=False, verbose=0, logdir=tmp_path)
    assert found.history == expected.history and found.epoch == expected.epoch
    assert_same(fitted, mine)
    assert state(tmp_path).phase is Phase.FINISHED and state(tmp_path).epochs == 4
    assert state(tmp_path).last_step == state(tmp_path).step


def train(folder: Path, *callbacks: Any, epochs: int = 4, **options: Any) -> tuple[keras.Model, Any]:
    model = a_model()
    stop = keras.callbacks.EarlyStopping("loss", patience=9, restore_best_weights=True)
    arguments = {"validation_split": 0.2, "batch_size": 8, "verbose": 0} | options
    history = trainerd.keras.fit(model, X, Y, epochs=epochs, callbacks=[stop, *callbacks], logdir=folder, **arguments)
    return model, history.history


def test_paused_in_mid_epoch_and_continued_with_more_epochs_it_ends_where_it_would_have(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    whole, history = train(tmp_path / "whole", settings={"checkpoint": {"save_model_steps": 6, "keep_last": 2}})
    assert [step for step, _ in saved(tmp_path / "whole")] == [24, 18]
    with pytest.raises(trainerd.keras.Paused) as caught:
        train(tmp_path / "parts", Stops(8), epochs=2, verbose=1)
    assert caught.value.code == 0 and saved(tmp_path / "parts")[0] == (8, "pause")
    train(tmp_path / "parts", epochs=2, verbose="auto")
    shown = re.sub(r"\x1b\[[0-9;]*m|[\b\r]", "", capsys.readouterr().out)
    assert re.findall(r"Epoch \d/\d", shown) == ["Epoch 1/2", "Epoch 2/2", "Epoch 2/2"]
    assert re.search(r"2/6 [^\n]*\nEpoch 2/2", shown), "a pause ends the line"
    assert re.search(r"6/6 .* - loss: \d\.\d+ - mae: \d\.\d+ - val_loss: ", shown)
    calls.CALLS.clear()  # as in a new process
    parts, continued = train(tmp_path / "parts")
    assert_same(whole, parts)
    assert continued == history and len(history["val_loss"]) == 4


def test_a_step_that_python_runs_resumes_in_mid_epoch(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    def run(folder: Path, *callbacks: Any) -> tuple[keras.Model, Any]:
        model = eager(Peeks)
        history = trainerd.keras.fit(model, X, Y, 8, epochs=2, verbose=0, callbacks=callbacks, logdir=folder)
        return model, history.history

    whole, expected = run(tmp_path / "whole")
    with pytest.raises(trainerd.keras.Paused):
        run(tmp_path / "parts", Stops(5))
    calls.CALLS.clear()  # as in a new process
    parts, found = run(tmp_path / "parts")
    assert_same(whole, parts)
    assert found == expected and "the training step cannot be traced" in caplog.text


def test_random_numbers_of_batches_that_no_checkpoint_holds_are_named(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    trainerd.keras.fit(a_line(), Augments(), verbose=0, logdir=tmp_path)
    said = "no checkpoint holds what the batches of an Augments use: rng (of the type Generator); its place in"
    assert said in caplog.text


def test_an_epoch_of_python_batches_restarts_where_it_was_interrupted(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    ends: list[int] = []

    class Notes(keras.callbacks.Callback):  # type: ignore[misc]
        def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
            ends.append(int(self.model.optimizer.iterations))

    def run(*callbacks: Any) -> None:
        data, model = Halves(), a_line()
        trainerd.keras.fit(model, data, epochs=3, verbose=0, callbacks=[Notes(), *callbacks], logdir=tmp_path)

    with pytest.raises(trainerd.keras.Paused):
        run(Stops(6))
    run()
    assert ends == [4, 6 + 4, 6 + 4 + 4]
    assert (
        "the position in a Halves with an `on_epoch_begin` cannot be saved: a resume restarts the epoch" in caplog.text
    )


class Numbered(keras.utils.PyDataset):  # type: ignore[misc]
    """Batches of two lengths, which it is asked for by their number."""

    def __len__(self) -> int:
        return 4

    def __getitem__(self, at: int) -> tuple[Any, Any]:
        return X[15 * at : 15 * at + 15 - at], Y[15 * at : 15 * at + 15 - at]


@pytest.mark.parametrize("shuffle", [False, True])
def test_a_pydataset_without_a_state_resumes_with_its_next_batch(tmp_path: Path, shuffle: bool) -> None:
    def run(folder: Path, *callbacks: Any) -> tuple[keras.Model, Any]:
        model, data = a_line(), Numbered(workers=1 + shuffle)
        options: dict[str, Any] = {"epochs": 3, "verbose": 0, "shuffle": shuffle, "callbacks": [*callbacks]}
        return model, trainerd.keras.fit(model, data, logdir=folder, **options).history

    fitted = a_line()
    expected = fitted.fit(Numbered(), epochs=3, shuffle=False, verbose=0).history
    whole, history = run(tmp_path / "whole")
    assert (history == expected) is not shuffle
    with pytest.raises(trainerd.keras.Paused):
        run(tmp_path / "parts", Stops(6))
    parts, continued = run(tmp_path / "parts")
    assert continued == history
    assert_same(whole, parts)


class Noisy(keras.Model):  # type: ignore[misc]
    """Draws from Keras's own seed generator in its step, and from one that no model lists."""

    seeds = keras.random.SeedGenerator(3)

    def __init__(self) -> None:
        super().__init__()
        self.dense = keras.layers.Dense(1)

    def call(self, x: Any, training: bool = False) -> Any:
        if training:
            x = x + keras.random.normal(tf.shape(x)) + keras.random.uniform(tf.shape(x), seed=Noisy.seeds)
        return self.dense(x)


def test_random_numbers_of_no_model_go_on_after_a_pause(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    def run(folder: Path, *callbacks: Any) -> Any:
        calls.CALLS.clear()
        keras.utils.clear_session()  # Keras 3.12 leaves its own generator where it was
        keras.utils.set_random_seed(1)
        Noisy.seeds = keras.random.SeedGenerator(3)
        model = Noisy()
        model.compile("sgd", "mse")
        return trainerd.keras.fit(model, X, Y, epochs=3, verbose=0, callbacks=[*callbacks], logdir=folder).history

    with pytest.raises(trainerd.keras.Paused):
        run(tmp_path / "parts", Stops(3))
    assert run(tmp_path / "parts") == run(tmp_path / "whole")
    assert "No checkpoint holds it" not in caplog.text


class Table:
    """What trainerd uses of a pandas.DataFrame, which makes an array of objects of columns with several types."""

    shape, dtype = (60, 4), object

    def __init__(self, *columns: Any) -> None:
        self._columns = columns
        self.dtypes = [each.dtype for each in columns]

    def to_numpy(self) -> Any:
        return np.stack([each.astype(object) for each in self._columns], axis=1)


def test_a_table_of_numbers_and_booleans_is_trained_as_keras_does(tmp_path: Path) -> None:
    columns = [*X.T[:3], X[:, 3] > 0]
    found = trainerd.keras.fit(a_line(), Table(*columns), Y, verbose=0, logdir=tmp_path / "run")
    expected = trainerd.keras.fit(a_line(), np.stack(columns, 1), Y, verbose=0, logdir=tmp_path / "array")
    assert found.history == expected.history
    with pytest.raises(EntryError, match=r"a part of the data is not an array of examples: .*Unsupported object type"):
        trainerd.keras.fit(a_line(), Table(*X.T[:3], np.full(60, "12")), Y, logdir=tmp_path / "text")


def test_a_setting_that_no_config_has_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="keep_lst"):
        train(tmp_path, settings={"checkpoint": {"keep_lst": 2}})


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ({"x": "data"}, "x is of type str"),
        ({"x": iter([])}, "x has no batches"),
        ({"x": Halves(), "y": Y}, "x is a Halves, which contains the batches, so y must be left out"),
        ({"x": shuffled(), "y": Y}, "which contains the batches, so y must be left out"),
        ({"x": shuffled(), "validation_split": 0.1}, "validation_split is for arrays"),
        ({"x": X, "y": Y, "validation_split": 1.5}, "must be between 0 and 1, and is 1.5"),
        (
            {"x": X, "y": Y, "sample_weight": Y, "class_weight": {0: 1.0}},
            "class_weight or sample_weight, not both",
        ),
        ({"x": X, "y": Y, "validation_split": 0.99}, "examples leaves none to train or validate with"),
        ({"x": Endless()}, "x is a PyDataset without an end. Give its length"),
        (
            {"x": tf.distribute.MirroredStrategy(["CPU:0"]).experimental_distribute_dataset(shuffled())},
            "x is a DistributedDataset. Give the tf.data.Dataset itself",
        ),
        ({"x": X, "y": Y[:9]}, "the same number of examples"),
        ({"x": X, "y": Y, "epochs": 0}, "epochs must be a whole number, 1 or more"),
    ],
)
def test_what_cannot_be_trained_is_named(tmp_path: Path, arguments: dict[str, Any], says: str) -> None:
    with pytest.raises(EntryError, match=says):
        trainerd.keras.fit(a_line(), **arguments, logdir=tmp_path / "run")
    assert not list(tmp_path.rglob("*.index"))
