"""What is written past SaveV2 is TensorFlow's own format: TensorFlow reads it, and finds damage in it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
import xxhash
from tensorflow.core.protobuf.tensor_bundle_pb2 import BundleEntryProto

from trainerd.checkpoints.format import bundle_writer, sstable
from trainerd.checkpoints.format.bundle_writer import Item, write
from trainerd.checkpoints.format.input_size import input_bytes
from trainerd.checkpoints.snapshot import UnsoundError

DTYPES = [
    *(tf.float16, tf.bfloat16, tf.float32, tf.float64, tf.complex64, tf.complex128),
    *(tf.int8, tf.int16, tf.int32, tf.int64, tf.uint8, tf.uint16, tf.uint32, tf.uint64, tf.bool),
    *(tf.as_dtype("float8_e4m3fn"), tf.as_dtype("float8_e5m2")),
]


@pytest.fixture
def all_is_large(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bundle_writer, "LARGE", 0)
    monkeypatch.setattr(bundle_writer, "WORTHWHILE", 0)


def some(dtype: tf.DType, *shape: int) -> tf.Tensor:
    numbers = tf.random.stateless_uniform(shape, [1, 2], 0, 4, tf.int32)
    return tf.cast(tf.cast(numbers, tf.float32) if dtype.size == 1 and dtype.is_floating else numbers, dtype)


def with_graph(items: list[Item]) -> list[Item]:
    """As in every checkpoint, a string beside the variables."""
    return [*items, Item("graph", "", tf.constant("objects"))]


def written(folder: Path, items: list[Item], **options: Any) -> Path:
    prefix = folder / "model.ckpt-7"
    options.setdefault("refuse_nan", True)
    digests = write(prefix, with_graph(items), lambda size: None, **options)
    for name, digest in digests.items():
        assert xxhash.xxh3_128_hexdigest((folder / name).read_bytes()) == digest
    names = sorted(path.name for path in folder.iterdir())
    assert names == ["model.ckpt-7.data-00000-of-00001", "model.ckpt-7.index"]
    return prefix


def test_the_size_of_an_iterators_state_is_in_the_index(tmp_path: Path) -> None:
    numbers = tf.data.Dataset.range(1000).map(
        lambda n: tf.random.stateless_uniform([256], [n, n], None, None, tf.int64)  # TensorFlow compresses the buffer
    )
    buffered = numbers.shuffle(100, seed=1)
    iterator, variable = iter(buffered), tf.Variable(tf.zeros([100_000]))
    next(iterator)
    prefix = Path(tf.train.Checkpoint(iterator=iterator, variable=variable).write(str(tmp_path / "model.ckpt-7")))
    content = 100 * 256 * 8
    assert content < input_bytes(prefix) < content + 100_000
    assert input_bytes(tmp_path / "none") == 0


@pytest.mark.usefixtures("all_is_large")
@pytest.mark.parametrize("dtype", DTYPES, ids=lambda dtype: dtype.name)
def test_every_type_is_read_by_tensorflow(tmp_path: Path, dtype: tf.DType) -> None:
    shapes = {"empty": [0, 3], "scalar": [], "cube": [3, 5, 7], "long": [700_000]}
    values = {name: some(dtype, *shape) for name, shape in shapes.items()}
    names = list(values)
    prefix = written(tmp_path, [Item(name, "", values[name]) for name in names])
    read = tf.raw_ops.RestoreV2(
        prefix=str(prefix), tensor_names=names, shape_and_slices=[""] * len(names), dtypes=[dtype] * len(names)
    )
    for name, found in zip(names, read, strict=True):
        assert found.shape == values[name].shape
        assert found.numpy().tobytes() == values[name].numpy().tobytes()


def mixed() -> list[Item]:
    """Large and small ones, strings, and a part of a larger variable."""
    return [
        Item("large", "", some(tf.float32, 3_000_000)),
        Item("small", "", some(tf.float32, 3)),
        Item("text", "", tf.constant(["a", "", "b" * 1000])),
        Item("part", "10 4 2,3:-", some(tf.float32, 3, 4)),
        Item("also/large", "", some(tf.int64, 70_000)),
    ]


def test_what_savev2_wrote_and_what_it_did_not_are_one_checkpoint(tmp_path: Path) -> None:
    items = mixed()
    prefix = written(tmp_path, items)
    reader = tf.train.load_checkpoint(str(prefix))
    shapes = reader.get_variable_to_shape_map()
    assert (
        set(shapes) == {item.key for item in items} | {"graph"}
        and shapes["large"] == [3_000_000]
        and shapes["part"] == [10, 4]
    )
    for item in items:
        if not item.slices:
            np.testing.assert_array_equal(reader.get_tensor(item.key), item.tensor)


def test_the_index_says_what_savev2_says(tmp_path: Path) -> None:
    """All but where a tensor is: that SaveV2 decides by the order of the keys."""
    for name in ("ours", "theirs"):
        (tmp_path / name).mkdir()
    items = mixed()
    ours = sstable.read(written(tmp_path / "ours", items).with_name("model.ckpt-7.index").read_bytes())
    all_items = with_graph(items)
    tf.raw_ops.SaveV2(
        prefix=str(tmp_path / "theirs" / "a"),
        tensor_names=[item.key for item in all_items],
        shape_and_slices=[item.slices for item in all_items],
        tensors=[item.tensor for item in all_items],
    )
    theirs = sstable.read((tmp_path / "theirs" / "a.index").read_bytes())
    assert ours.keys() == theirs.keys() and ours[b""] == theirs[b""]
    for key in ours.keys() - {b""}:
        one, other = BundleEntryProto.FromString(ours[key]), BundleEntryProto.FromString(theirs[key])
        one.offset = other.offset = 0
        assert one == other, key


@pytest.mark.parametrize("size", [10_000, 3_000_000])
@pytest.mark.parametrize("dtype", [tf.float32, tf.bfloat16, tf.complex64], ids=lambda dtype: dtype.name)
def test_a_nan_anywhere_is_found(tmp_path: Path, dtype: tf.DType, size: int) -> None:
    for place in (0, size // 2, size - 1):
        value = tf.cast(tf.tensor_scatter_nd_update(tf.zeros([size]), [[place]], [np.nan]), dtype)
        items = [Item("fine", "", some(tf.float32, 3_000_000)), Item("bad/.ATTRIBUTES/VARIABLE_VALUE", "", value)]
        with pytest.raises(UnsoundError, match="'bad' holds a NaN"):
            write(tmp_path / f"{place}", with_graph(items), lambda size: None, refuse_nan=True)


def test_a_nan_is_written_where_it_may_be(tmp_path: Path) -> None:
    prefix = written(tmp_path, [Item("bad", "", tf.fill([3_000_000], np.nan))], refuse_nan=False)
    assert np.isnan(tf.train.load_checkpoint(str(prefix)).get_tensor("bad")).all()


def test_a_flipped_bit_is_found_by_tensorflow_itself(tmp_path: Path) -> None:
    prefix = written(tmp_path, [Item("large", "", some(tf.float32, 3_000_000))])
    data = prefix.with_name("model.ckpt-7.data-00000-of-00001")
    content = bytearray(data.read_bytes())
    content[5_000_001] ^= 1
    data.write_bytes(content)
    with pytest.raises(tf.errors.OpError, match="Checksum does not match"):
        tf.train.load_checkpoint(str(prefix)).get_tensor("large")


def test_an_index_that_is_not_as_it_was_known_is_left_to_savev2(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def refuse(table: bytes) -> dict[bytes, bytes]:
        raise sstable.TableError("it is compressed")

    monkeypatch.setattr(sstable, "read", refuse)
    prefix = tmp_path / "model.ckpt-7"
    assert write(prefix, mixed(), lambda size: None, refuse_nan=True) == {}
    assert "compressed" in caplog.text
    names = sorted(path.name for path in tmp_path.iterdir())
    assert names == ["model.ckpt-7.data-00000-of-00001", "model.ckpt-7.index"]
    np.testing.assert_array_equal(tf.train.load_checkpoint(str(prefix)).get_tensor("small"), some(tf.float32, 3))
