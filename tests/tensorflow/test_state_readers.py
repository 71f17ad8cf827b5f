"""The tensors of a large state are read one by one, and are those that a traced function reads."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import keras
import pytest
import tensorflow as tf

from trainerd.checkpoints.contents import state_readers
from trainerd.checkpoints.contents.state_readers import reader_of
from trainerd.checkpoints.format.snapshotter import Snapshotter


class Count(tf.train.experimental.PythonState):  # type: ignore[misc]
    """Counts how often it is saved."""

    saved = 0

    def serialize(self) -> str:
        self.saved += 1
        return f"state {self.saved > 0}"

    def deserialize(self, string: str) -> None:
        del string


@pytest.fixture
def state() -> dict[str, Any]:
    model = keras.Sequential([keras.Input((3,)), keras.layers.Dense(2), keras.layers.BatchNormalization()])
    optimizer = keras.optimizers.Adam()
    optimizer.build(model.trainable_variables)
    dataset = tf.data.Dataset.range(10).shuffle(10, seed=1)
    unknown = tf.Variable([1, 2], shape=tf.TensorShape([None]), dtype=tf.int32)
    parts = {"model": model, "optimizer": optimizer, "names": tf.Variable(["a", "b"]), "unknown": unknown}
    return {**parts, "iterator": iter(dataset), "python": Count()}


def test_both_ways_read_the_same(state: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    next(state["iterator"])
    checkpoint, hidden = tf.train.Checkpoint(**state), {"hidden/a": keras.Variable(2.0), "hidden/b": tf.Variable([1])}
    traced = reader_of(checkpoint, hidden)
    monkeypatch.setattr(state_readers, "MANY", 0)
    monkeypatch.delattr(state_readers, "traced_reader")
    each = reader_of(checkpoint, hidden)
    assert [str(spec) for spec in each.specs] == [str(spec) for spec in traced.specs], "so fingerprints are the same"
    assert (each.slices, each.object_graph) == (traced.slices, traced.object_graph)
    for (key, _, _), one, other in zip(each.specs, each.read(), traced.read(), strict=True):
        if not key.startswith("iterator"):
            assert tf.io.serialize_tensor(one) == tf.io.serialize_tensor(other), key
        else:
            assert one.dtype == other.dtype and one.shape == other.shape, key


def test_a_position_that_was_read_alone_is_gone_on_from(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(state_readers, "MANY", 0)
    dataset = tf.data.Dataset.range(100).shuffle(50, seed=1)
    iterator, other = iter(dataset), iter(dataset)
    snapshotter = Snapshotter(tf.train.Checkpoint(iterator=iterator), {})
    for _ in range(7):
        next(iterator)
    snapshotter.take(7).write(tmp_path / "model", lambda size: None)
    tf.train.Checkpoint(iterator=other).read(str(tmp_path / "model"))
    assert [int(next(other)) for _ in range(93)] == [int(next(iterator)) for _ in range(93)]


def test_a_value_stays_when_a_step_writes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(state_readers, "MANY", 0)
    weight, hidden = tf.Variable([1.0, 2.0]), tf.Variable(3)
    reader = reader_of(tf.train.Checkpoint(weight=weight), {"hidden/a": hidden})
    read = dict(zip((key for key, _, _ in reader.specs), reader.read(), strict=True))
    weight.assign_add([1.0, 1.0])
    hidden.assign(4)
    assert read["weight/.ATTRIBUTES/VARIABLE_VALUE"].numpy().tolist() == [1.0, 2.0]
    assert read["hidden/a"].numpy() == 3


def test_what_writes_in_place_is_read_by_the_function(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(state_readers, "MANY", 0)
    table = tf.lookup.experimental.MutableHashTable(tf.int64, tf.int64, 0)
    traced: list[tf.train.Checkpoint] = []
    monkeypatch.setattr(state_readers, "traced_reader", lambda checkpoint, hidden: traced.append(checkpoint))
    checkpoint = tf.train.Checkpoint(table=table, a=tf.Variable(1))
    reader_of(checkpoint, {})
    assert traced == [checkpoint]
