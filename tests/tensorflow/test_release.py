"""Releases of models of every form, verified by a process that has nothing of trainerd."""

from __future__ import annotations

import errno
from pathlib import Path
from typing import Any

import keras
import pytest
import tensorflow as tf

from trainerd.errors import ReleaseError, StorageError
from trainerd.loop.contract import Exportable
from trainerd.release.archive import archive
from trainerd.release.export import SAVEDMODEL, _write
from trainerd.release.verify import references_of, verify
from trainerd.sessions.keras.callbacks import Callbacks


def two_inputs(*, named: bool) -> Any:
    keras.utils.set_random_seed(1)
    a, b = keras.Input([3], name="a"), keras.Input([2], name="b")
    output = keras.layers.Dense(1)(keras.layers.Concatenate()([a, b]))
    return keras.Model({"a": a, "b": b} if named else [a, b], output)


def batches(*, named: bool, ordered: type = tuple) -> Any:
    a, b = tf.random.stateless_normal([4, 3], [1, 2]), tf.random.stateless_normal([4, 2], [3, 4])
    inputs = {"a": a, "b": b} if named else ordered([a, b])
    return lambda count: [inputs]


@pytest.mark.parametrize(
    ("form", "named"),
    [
        ("keras", True),
        *(pytest.param(*each, marks=pytest.mark.long) for each in [("keras", False), ("savedmodel", False)]),
        pytest.param("savedmodel", True, marks=pytest.mark.long),
    ],
)
def test_a_model_with_several_inputs(tmp_path: Path, form: str, named: bool) -> None:
    model = two_inputs(named=named)
    path = tmp_path / ("model.keras" if form == "keras" else "savedmodel")
    model.save(path) if form == "keras" else model.export(str(path), verbose=False)
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    exportable = Exportable(model=model, examples=batches(named=named))
    references = references_of(exportable, {}, {}, scratch)
    assert references.folder
    assert "outputs" in verify(path, form, references, scratch)
    model.layers[-1].kernel.assign_add(tf.ones_like(model.layers[-1].kernel))
    (scratch / "batch-0.npz").unlink()
    changed = references_of(exportable, {}, {}, scratch)
    with pytest.raises(ReleaseError, match="differ from the checkpoint's"):
        verify(path, form, changed, scratch)


def test_validation_without_end_is_taken_as_far_as_it_is_evaluated(tmp_path: Path) -> None:
    endless = tf.data.Dataset.from_tensors((tf.ones([2, 3]), tf.ones([2, 1]))).repeat()
    for steps, count in ((3, 3), (None, 0)):
        folder = tmp_path / str(steps)
        folder.mkdir()
        references = references_of(Exportable(validation=(endless, None, None), validation_steps=steps), {}, {}, folder)
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
def test_a_full_disk_is_no_fault_of_the_job(tmp_path: Path, error: Exception) -> None:
    def export(directory: Path) -> None:
        raise error

    with pytest.raises(StorageError, match="cannot write savedmodel: no space left on the device"):
        _write(Exportable(export=export), SAVEDMODEL, tmp_path / "savedmodel")


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
        callbacks.begin_anew()
        assert one.seen == []
