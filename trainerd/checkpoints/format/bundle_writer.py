"""Writing tensors as TensorFlow's checkpoint format: `prefix.index`, and one or two files `prefix.data-0000N-of-0000M`.

SaveV2 writes small tensors, and those without plain memory. Large tensors are written here, since SaveV2 can only write
through the page cache: docs/benchmarks.md has the cost. The data file is tensors one after another, the
index a table of BundleEntryProto, with the place and the CRC-32C of each (tensorflow/core/util/tensor_bundle). That is
a format on disk, which later versions of TensorFlow have to read too; its protocol buffer is not in `tf.`:
tests/tensorflow/test_internals.py names the versions for which it holds.
"""

from __future__ import annotations

import glob
import logging
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf
import xxhash
from crc32c import crc32c
from google.protobuf.message import DecodeError  # type: ignore[import-untyped]
from numpy.typing import NDArray
from tensorflow.core.protobuf.tensor_bundle_pb2 import BundleEntryProto, BundleHeaderProto

from trainerd.checkpoints.format import sstable
from trainerd.checkpoints.format.direct_io import BLOCK, IN_PLACE, LOT, DirectFile, address
from trainerd.checkpoints.format.os_errors import as_os_errors
from trainerd.checkpoints.format.rewritten_file import RewrittenFile
from trainerd.checkpoints.format.unchanged import Unchanged
from trainerd.checkpoints.snapshot import Earlier, UnsoundError, no_earlier

log = logging.getLogger(__name__)

LARGE = 1 << 18  # bytes: from there on a tensor is worth an entry made in Python
WORTHWHILE = 1 << 23  # bytes of large tensors: below it SaveV2 is as fast
_PIECE = 1 << 20  # bytes that are checked in one go: they stay in the processor's cache meanwhile
_ALIGNMENT = 64  # bytes: of TensorFlow's own memory, and a multiple of every number's size


@dataclass(frozen=True)
class Form:
    """The properties that tensors of one dtype and shape have in common.

    It is computed once: asking each tensor at each checkpoint is slow in Python, and costs the loop time.

    Attributes:
      dtype: the type.
      size: bytes; of strings, what is in them.
      entry: what a BundleEntryProto says of type and shape. Serialized protocol buffers are merged by joining them.
    """

    dtype: tf.DType
    size: int
    entry: bytes = b""

    @classmethod
    def of(cls, dtype: tf.DType, shape: tf.TensorShape) -> Form | None:
        """Return the form of tensors of a dtype and shape; None for strings and for shapes that are not fully known."""
        if dtype == tf.string or not shape.is_fully_defined():
            return None
        entry = BundleEntryProto(dtype=dtype.as_datatype_enum, shape=shape.as_proto())
        return cls(dtype, int(shape.num_elements() * dtype.size), entry.SerializeToString())

    @cached_property
    def numpy(self) -> type:
        """NumPy's type of a number."""
        found: type = self.dtype.as_numpy_dtype
        return found

    @cached_property
    def may_hold_nan(self) -> bool:
        """True if its dtype has a NaN."""
        return bool(self.dtype.is_floating or self.dtype.is_complex)

    @cached_property
    def is_large(self) -> bool:
        """True if it is large enough to be written here, and its memory is its content, byte by byte."""
        dtype = self.dtype
        is_plain = dtype.is_floating or dtype.is_integer or dtype.is_complex or dtype.is_bool
        return bool(self.size >= LARGE and is_plain and dtype.size > 0)


@dataclass(frozen=True)
class Item:
    """One tensor, under its key and slice in the form of SaveV2.

    Attributes:
      key: its name in the file.
      slices: the part of a larger tensor that it is.
      tensor: its value.
      known: its form, if that is known beforehand.
      allows_nan: whether it may be saved with a NaN in it.
    """

    key: str
    slices: str
    tensor: tf.Tensor
    known: Form | None = None
    allows_nan: bool = False

    @cached_property
    def form(self) -> Form:
        """Its form."""
        if self.known is not None:
            return self.known
        if self.tensor.dtype == tf.string:
            return Form(tf.string, int(tf.reduce_sum(tf.strings.length(self.tensor))))
        return Form.of(self.tensor.dtype, self.tensor.shape) or Form(self.tensor.dtype, 0)

    @property
    def is_large(self) -> bool:
        """True if it is written here and not by SaveV2."""
        return not self.slices and self.form.is_large

    @property
    def is_checked(self) -> bool:
        """True if it must be without a NaN, and its dtype has one."""
        return self.form.may_hold_nan and not self.allows_nan

    def require_no_nan(self, piece: NDArray[np.uint8]) -> None:
        """Check a part of its memory.

        Raises:
          UnsoundError: it holds a NaN.
        """
        if self.is_checked and _has_nan(piece.view(self.form.numpy)):
            raise UnsoundError(f"the variable {self.key.split('/.ATTRIBUTES')[0]!r} holds a NaN")


def write(
    prefix: Path,
    items: Sequence[Item],
    moved: Callable[[int], None],
    *,
    refuse_nan: bool,
    unchanged: Unchanged | None = None,
    earlier: Earlier = no_earlier,
) -> dict[str, str]:
    """Write a checkpoint's files. May be called on any thread.

    A large data file of this name that is there already is written over, and not replaced.

    Args:
      prefix: what their names begin with.
      items: the tensors.
      moved: called with the number of bytes done.
      refuse_nan: whether a NaN must not be saved.
      unchanged: finds the tensors that did not change over the last checkpoints: they get a file of their own.
      earlier: called for that file; see `Snapshot.write`.

    Returns:
      The 128-bit XXH3 of those for which it is known already, by name.

    Raises:
      OSError: they cannot be written.
      UnsoundError: a tensor holds a NaN that must not be saved.
    """
    large = [item for item in items if item.is_large]
    if sum(item.form.size for item in large) < WORTHWHILE:
        _save(prefix, items, moved, refuse_nan)
        return {}
    small = [item for item in items if not item.is_large]
    beside = prefix.with_name("small")
    _save(beside, small, moved, refuse_nan)
    index, data = beside.with_name("small.index"), beside.with_name("small.data-00000-of-00001")
    try:
        entries = sstable.read(index.read_bytes())
    except sstable.TableError as error:
        log.warning("TensorFlow writes the whole checkpoint, since the format of its index is unknown: %s", error)
        data.unlink()
        _save(prefix, items, moved, refuse_nan)
        return {}
    finally:
        index.unlink()
    by_key = {item.key: item for item in large}
    unchanged = unchanged or Unchanged()
    sizes = {key: item.form.size for key, item in by_key.items()}
    same = unchanged.choose(sizes, lambda key: _memory(by_key[key].tensor))
    paths, sums = _data_paths(prefix, 2 if same else 1), dict[str, int]()
    with _opened(paths[0]) as file:
        appending = _Appending(file, moved)
        with data.open("rb", buffering=0) as beginning:
            while piece := beginning.read(_PIECE):
                appending.plain(piece)
        data.unlink()
        for item in [item for item in large if item.key not in same]:
            place = appending.tensor(item, _memory(item.tensor), refuse_nan)
            entries[item.key.encode()] = item.form.entry + bytes(place.SerializeToString())
            sums[item.key] = place.crc32c
        file.finish()
    digests = {paths[0].name: appending.digest.hexdigest()}
    if same:
        chosen = [item for item in large if item.key in same]
        digests[paths[1].name] = _write_unchanged(paths[1], chosen, unchanged, moved, earlier, refuse_nan=refuse_nan)
        entries |= {key.encode(): entry for key, entry in unchanged.entries.items()}
        entries[b""] += BundleHeaderProto(num_shards=len(paths)).SerializeToString()
    prefix.with_name(f"{prefix.name}.index").write_bytes(sstable.write(entries))
    unchanged.write_elsewhere(sums)
    return digests


def keys_of_unchanged(prefix: Path) -> list[str]:
    """Return the keys of the tensors that a checkpoint has in the file of those that did not change."""
    try:
        entries = sstable.read(prefix.with_name(f"{prefix.name}.index").read_bytes())
        return [key.decode() for key, entry in entries.items() if key and BundleEntryProto.FromString(entry).shard_id]
    except (OSError, sstable.TableError, DecodeError, UnicodeDecodeError):
        return []  # another program's


def _data_paths(prefix: Path, count: int) -> list[Path]:
    """Return the paths of so many data files, and remove those of an earlier state that had another number."""
    paths = [prefix.with_name(f"{prefix.name}.data-{number:05}-of-{count:05}") for number in range(count)]
    for path in prefix.parent.glob(f"{glob.escape(prefix.name)}.data-*"):
        if path not in paths:
            path.unlink()
    return paths


def _opened(path: Path) -> RewrittenFile | DirectFile:
    """Open a data file for writing. An existing file is written over, unless other checkpoints share it."""
    if path.exists() and path.stat().st_nlink == 1:
        return RewrittenFile(path)
    path.unlink(missing_ok=True)
    return DirectFile(path)


def _write_unchanged(
    path: Path,
    items: Sequence[Item],
    unchanged: Unchanged,
    moved: Callable[[int], None],
    earlier: Earlier,
    *,
    refuse_nan: bool,
) -> str:
    """Write the file of the tensors that did not change, or share that of an earlier checkpoint. Returns its XXH3.

    Its content depends on nothing else, such as the place of a tensor in memory: it is the same when written again.
    """

    def append_to(file: DirectFile | RewrittenFile | _Nowhere) -> str:
        appending = _Appending(file, moved, shard=1)
        for item in items:
            memory = _memory(item.tensor)
            place = appending.tensor(item, memory, refuse_nan)
            unchanged.place(item.key, memory, item.form.entry + bytes(place.SerializeToString()))
        return appending.digest.hexdigest()

    digest = append_to(_Nowhere()) if unchanged.digest is None else unchanged.digest  # an earlier process may have it
    if earlier(digest, path):
        return unchanged.written(digest)
    unchanged.rewrite()
    with _opened(path) as file:
        digest = append_to(file)
        file.finish()
    return unchanged.written(digest)


class _Nowhere:
    """A file that is not written: what is appended is only measured."""

    lot = LOT
    is_direct = False

    def __init__(self) -> None:
        self.size = 0

    def write(self, content: memoryview) -> None:
        """Count bytes."""
        self.size += len(content)


class _Appending:
    """Appends tensors to a data file.

    Args:
      file: the data file.
      moved: called with the number of bytes that were checked.
      shard: the number of the file. In the first one a gap may be left, so that a tensor can be written from its place.

    Attributes:
      digest: of all that was appended.
    """

    def __init__(
        self, file: DirectFile | RewrittenFile | _Nowhere, moved: Callable[[int], None], *, shard: int = 0
    ) -> None:
        self._file = file
        self._shard = shard
        self._is_aligned = shard == 0 and file.is_direct
        self._moved = moved
        self.digest = xxhash.xxh3_128()

    def plain(self, content: bytes) -> None:
        """Append these bytes."""
        self.digest.update(content)
        self._file.write(memoryview(content))
        self._moved(len(content))

    def tensor(self, item: Item, memory: NDArray[np.uint8], refuse_nan: bool) -> BundleEntryProto:
        """Append a tensor. Returns its place and its checksum, for the index.

        Raises:
          UnsoundError: it holds a NaN that must not be saved.
        """
        place = address(memory.data)
        if self._is_aligned and len(memory) >= IN_PLACE and place % _ALIGNMENT == 0:
            # A gap, so that it can be written from where it is.
            self.plain(bytes((place - self._file.size) % BLOCK))
        else:
            place = 0
        offset, crc, begin = self._file.size, 0, 0
        while begin < len(memory):
            lot = memory[begin : begin + self._file.lot - (place + begin) % BLOCK]
            for piece in _pieces(lot):
                crc = crc32c(piece.data, crc)  # first: of the three it waits the least for memory
                self.digest.update(piece.data)
                if refuse_nan:
                    item.require_no_nan(piece)
                self._moved(len(piece))
            self._file.write(lot.data)
            begin += len(lot)
        return BundleEntryProto(shard_id=self._shard, offset=offset, size=item.form.size, crc32c=sstable.masked(crc))


def _save(prefix: Path, items: Sequence[Item], moved: Callable[[int], None], refuse_nan: bool) -> None:
    """Write with SaveV2."""
    for item in items:
        if refuse_nan and item.is_checked:
            for piece in _pieces(_memory(item.tensor)):
                item.require_no_nan(piece)
                moved(len(piece))
    with as_os_errors(), tf.device("CPU:0"):
        tf.raw_ops.SaveV2(
            prefix=str(prefix),
            tensor_names=[item.key for item in items],
            shape_and_slices=[item.slices for item in items],
            tensors=[item.tensor for item in items],
        )


def _memory(tensor: tf.Tensor) -> NDArray[np.uint8]:
    """Return a tensor's memory, in bytes; without a copy where it is in this machine's memory."""
    if "CPU" not in tensor.device:
        with tf.device("CPU:0"):
            tensor = tf.identity(tensor)
    if tensor.dtype == tf.bfloat16:  # Python's buffers do not know it
        tensor = tf.bitcast(tensor, tf.uint16)
    try:
        found: NDArray[Any] = np.asarray(memoryview(tensor))
    except ValueError:  # nor the types of eight bits and less, which hold nothing large
        found = tensor.numpy()
    return np.ascontiguousarray(found).reshape(-1).view(np.uint8)


def _pieces(memory: NDArray[np.uint8]) -> Iterator[NDArray[np.uint8]]:
    return (memory[begin : begin + _PIECE] for begin in range(0, len(memory), _PIECE))


def _has_nan(numbers: NDArray[Any]) -> bool:
    """Return whether an array holds a NaN. Then its minimum is NaN, which is found without a second array."""
    if numbers.dtype.kind in "fc":
        return bool(numbers.size and np.isnan(np.minimum.reduce(numbers)))
    return bool(np.isnan(numbers.astype(np.float32)).any())
