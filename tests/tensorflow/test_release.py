"""Releases of models of every form, verified by a process that has nothing of trainerd."""

from __future__ import annotations

import errno
import math
import re
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf

from tests.fake import FakeSession, FakeSnapshot
from trainerd import open_job
from trainerd.checkpoints import manifest
from trainerd.checkpoints.manifest import About
from trainerd.checkpoints.store import CheckpointStore
from trainerd.config import parse as configs
from trainerd.errors import ReleaseError, StorageError
from trainerd.loop.contract import Exportable
from trainerd.release.alone import fitted, made
from trainerd.release.archive import archive
from trainerd.release.export import Release, release
from trainerd.release.verify import references_of, verify, worst
from trainerd.rundir.paths import RunDirectory
from trainerd.sessions.keras.callbacks import Callbacks


def two_inputs(*, named: bool) -> Any:
    keras.utils.set_random_seed(1)
    a, b = keras.Input([3], name="a"), keras.Input([2], name="b", dtype="string")
    index = keras.layers.StringLookup(vocabulary=["cat", "dog"])(b)
    words = keras.layers.Flatten()(keras.layers.Embedding(3, 2)(index))
    output = keras.layers.Dense(1)(keras.layers.Concatenate()([a, words]))
    return keras.Model({"a": a, "b": b} if named else [a, b], output)


def batches(*, named: bool) -> Any:
    a, b = tf.random.stateless_normal([2, 3], [1, 2]), tf.constant([["cat", "dog"], ["hen", "cat"]])
    return lambda count: [{"a": a, "b": b} if named else (a, b)]


def written(model: Any, form: str, folder: Path) -> Path:
    path = folder / ("model.keras" if form == "keras" else "savedmodel")
    model.save(path) if form == "keras" else model.export(str(path), verbose=False)
    return path


@pytest.mark.parametrize(
    ("form", "named"),
    [("keras", True), ("keras", False), ("savedmodel", True), ("savedmodel", False)],
)
@pytest.mark.long
def test_a_model_with_several_inputs(tmp_path: Path, form: str, named: bool) -> None:
    model = two_inputs(named=named)
    path = written(model, form, tmp_path)
    references = references_of(Exportable(model=model, examples=batches(named=named)), set(), {}, tmp_path)
    assert re.fullmatch("3 variables, outputs (bit for bit|to .*)", verify(path, form, references, tmp_path))


@pytest.mark.long
def test_a_value_that_is_not_the_models_is_named(tmp_path: Path) -> None:
    model = two_inputs(named=True)
    path = written(model, "keras", tmp_path)
    model.layers[-1].kernel.assign_add(tf.ones_like(model.layers[-1].kernel))
    references = references_of(Exportable(model=model, examples=batches(named=True)), set(), {}, tmp_path)
    with pytest.raises(ReleaseError, match=r"lacks 1 of the model's 3 variables: dense\S*/kernel"):
        verify(path, "keras", references, tmp_path)


def test_outputs_differ_as_a_share_of_the_largest() -> None:
    ones, texts = np.array([0.0, 2.0, np.nan]), np.array([b"cat"], object)
    assert worst([ones, texts], [ones + 0.02, texts]) == pytest.approx(0.01)
    assert worst([ones], [np.array([0.0, 2.0, 1.0])]) == worst([ones], [ones[:2]]) == math.inf
    assert worst([texts], [np.array([b"dog"], object)]) == math.inf


def prepared_by_the_step(count: int) -> list[Any]:
    return [tf.ones([8])]  # and the model takes [batch, steps, 1]


@pytest.mark.long
def test_an_exported_model_is_called_with_what_its_signature_says(tmp_path: Path) -> None:
    model = keras.Sequential([keras.Input([None, 1]), keras.layers.Dense(2)])
    model.export(str(tmp_path / "savedmodel"), verbose=False)
    references = references_of(Exportable(model=model, examples=prepared_by_the_step), set(), {}, tmp_path)
    compared = verify(tmp_path / "savedmodel", "savedmodel", references, tmp_path)
    assert (
        "on generated inputs: no batch of the job fits the signature" in compared and "(float32[?, ?, 1])" in compared
    )


@pytest.mark.long
def test_a_savedmodel_that_holds_no_variable_is_no_release(tmp_path: Path) -> None:
    module = tf.Module()
    module.serve = tf.function(lambda x: 2.0 * x, input_signature=[tf.TensorSpec([None])])
    tf.saved_model.save(module, str(tmp_path / "savedmodel"))
    references = references_of(Exportable(export=lambda folder: None), set(), {}, tmp_path)
    with pytest.raises(ReleaseError, match="holds no variable"):
        verify(tmp_path / "savedmodel", "savedmodel", references, tmp_path)


def test_values_are_made_and_examples_fitted_by_a_signature() -> None:
    signature = [tf.TensorSpec([None, 3, None], tf.float32, "a"), tf.TensorSpec([None], tf.string, "b")]
    numbers, texts = made(signature)
    assert numbers.shape == [2, 3, 32] and len(np.unique(numbers)) > 100 and texts.numpy().tolist() == [b"", b""]
    assert np.isfinite(made(tf.TensorSpec([2], tf.bfloat16))).all()
    given = {"b": tf.constant(["x"]), "c": tf.constant(1), "a": tf.ones([1, 3, 5], tf.float64)}
    found = fitted(given, signature)
    assert isinstance(found, list) and isinstance(fitted(given, tuple(signature)), tuple)
    assert [each.dtype for each in found] == [tf.float32, tf.string]
    for wrong in ([tf.ones([1, 3, 5])], (tf.ones([4]), given["b"]), (given["a"], tf.constant([1]))):
        with pytest.raises((LookupError, TypeError, ValueError)):
            fitted(wrong, signature)
    with pytest.raises(ValueError, match="unknown TensorShape"):
        made(tf.TensorSpec(None, tf.float32))


@keras.saving.register_keras_serializable("tests")
class Incomplete(keras.layers.Layer):  # type: ignore[misc]
    """A layer of whose four variables Keras writes one."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self._layers = [keras.layers.Dense(3)]  # a name that Keras uses itself
        self.bias = self.add_weight(shape=[3], initializer="zeros", name="bias")  # as the bias of the Dense
        self.scale = tf.Variable(2.0, name="scale")

    def call(self, x: Any) -> Any:
        return self.scale * self._layers[0](x) + self.bias


def test_weights_that_lack_a_variable_are_no_release(tmp_path: Path) -> None:
    model = keras.Sequential([keras.Input([2]), Incomplete(name="odd"), keras.layers.Dense(1)])
    model.compile("adam", "mse")
    model.fit(np.ones([4, 2]), np.ones([4, 1]), verbose=0)
    before = [each.numpy().copy() for each in model.weights]
    path = tmp_path / "model.weights.h5"
    model.save_weights(path)
    references = references_of(Exportable(model=model), set(), {}, tmp_path)
    lacking = r"lacks 3 of the model's 6 variables: \S+/odd/dense\S*/kernel, \S+/odd/dense\S*/bias, scale"
    with pytest.raises(ReleaseError, match=lacking):
        verify(path, "weights", references, tmp_path)
    after = [each.numpy() for each in model.weights]
    assert all(map(np.array_equal, before, after)), "the model is as it was"
    whole = keras.Sequential([keras.Input([2]), keras.layers.Dense(1), keras.layers.Dropout(0.5)])
    whole.seen = tf.Variable(0.0)  # as a train_step of one's own counts in
    whole.layers[0].noise = tf.random.Generator.from_seed(1)  # like the seed of a Dropout, no part of what it gives
    whole.save_weights(path)
    assert verify(path, "weights", references_of(Exportable(model=whole), set(), {}, tmp_path), tmp_path) == (
        "2 variables"
    )


def test_validation_without_end_is_taken_as_far_as_it_is_evaluated(tmp_path: Path) -> None:
    endless = tf.data.Dataset.from_tensors((tf.ones([2, 3]), tf.ones([2, 1]))).repeat()
    for steps, count in ((3, 3), (None, 0)):
        folder = tmp_path / str(steps)
        folder.mkdir()
        references = references_of(
            Exportable(validation=(endless, None, None), validation_steps=steps), set(), {}, folder
        )
        found = tf.data.Dataset.load(references.validation) if references.validation else []
        assert len(list(found)) == count


@pytest.mark.parametrize(
    "error",
    [
        OSError(errno.ENOSPC, "No space left on device"),
        OSError(
            "Can't write data (file write failed: errno = 28, error message = 'No space left on device')"
        ),  # h5py's
        tf.errors.ResourceExhaustedError(None, None, "variables.data-00000-of-00001; No space left on device"),
    ],
)
def test_a_full_disk_is_no_fault_of_the_job(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: Exception) -> None:
    def export(directory: Path) -> None:
        raise error

    class Exports(FakeSession):
        def exportable(self) -> Exportable:
            return Exportable(export=export)

    rundir = RunDirectory(tmp_path / "run")
    rundir.create()
    CheckpointStore(rundir).publish(FakeSnapshot(5, 10.0), About("finish"))
    config = configs.parse({"entry": "a:b", "logdir": str(rundir.path)})
    monkeypatch.setattr(open_job, "open_session", lambda config: Exports())
    with pytest.raises(StorageError, match="cannot write savedmodel: no space left on the device"):
        release(Release(config, rundir, manifest.read(rundir.manifest(5))), tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_the_same_files_make_the_same_archive(tmp_path: Path) -> None:
    for number in (1, 2):
        folder = tmp_path / str(number) / "out"
        folder.mkdir(parents=True)
        (folder / "b").write_text("b")
        (folder / "a").write_text("a" * number * 0 + "a")
        for ending in (".tar.gz", ".zip"):
            archive(folder, tmp_path / f"{number}{ending}")
    for ending in (".tar.gz", ".zip"):
        assert (tmp_path / f"1{ending}").read_bytes() == (tmp_path / f"2{ending}").read_bytes()


def test_callbacks_are_put_back_as_they_were_made_each_time() -> None:
    class Remembers(keras.callbacks.Callback):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.seen: list[int] = []

        def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
            self.seen.append(epoch)

    one = Remembers()
    callbacks = Callbacks([one], keras.Sequential([keras.Input([1]), keras.layers.Dense(1)]), epochs=None, steps=None)
    for _ in range(3):
        callbacks.begin()
        callbacks.call("on_epoch_end", 0, {}, step=1)
        callbacks.call("on_epoch_end", 1, {}, step=2)
        assert one.seen == [0, 1]
        callbacks.reset()
        assert one.seen == []
