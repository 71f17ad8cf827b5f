"""Reads from the index of a checkpoint how much of it is the position of its input. Needs no TensorFlow.

A shuffle buffer is in that position, element by element, and may be most of a checkpoint.
"""

from __future__ import annotations

from pathlib import Path

from trainerd.checkpoints.format import sstable
from trainerd.system.regular_files import MIB, read_regular

LARGE = MIB  # bytes: less is not worth a look
_LIMIT = 64 * MIB
_DTYPE, _SIZE = 1, 5  # fields of a BundleEntryProto
_VARIANT = 21  # the dtype of the states of iterators
_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5  # how a field is stored


def input_bytes(prefix: Path) -> int:
    """Return how many bytes of a checkpoint are states of iterators; 0 if its index cannot be read."""
    try:
        entries = sstable.read(read_regular(prefix.with_name(f"{prefix.name}.index"), _LIMIT))
        fields = [_numbers(entry) for key, entry in entries.items() if key]
    except (OSError, sstable.TableError):
        return 0
    return sum(each.get(_SIZE, 0) for each in fields if each.get(_DTYPE) == _VARIANT)


def _numbers(message: bytes) -> dict[int, int]:
    """Return the fields of a protocol buffer that are numbers, by their tags.

    Raises:
      TableError: it is not one.
    """
    found, position = dict[int, int](), 0
    while position < len(message):
        tag, position = sstable.read_varint(message, position)
        kind = tag & 7
        if kind == _VARINT:
            found[tag >> 3], position = sstable.read_varint(message, position)
        elif kind == _BYTES:
            size, position = sstable.read_varint(message, position)
            position += size
        elif kind in (_FIXED64, _FIXED32):
            position += 8 if kind == _FIXED64 else 4
        else:
            raise sstable.TableError(f"a field of the kind {kind}")
    return found
