"""The sorted table that a TensorFlow checkpoint's index is: LevelDB's format, uncompressed. Needs no TensorFlow.

The format is that of tensorflow/core/lib/io/format.h, which is LevelDB's (doc/table_format.md there): blocks of entries
whose keys share prefixes, an index of the blocks, and a footer with its place. Every block has a masked CRC-32C.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping

from crc32c import crc32c

_MAGIC = 0xDB4775248B80FB57
_FOOTER_BYTES = 48
_TRAILER_BYTES = 5  # of a block: how it is compressed, and its checksum
_BLOCK_BYTES = 4096
_RESTART_EVERY = 16  # entries; a key there is whole


class TableError(ValueError):
    """The error for bytes that are not a table, or not one that is understood here."""


def masked(crc: int) -> int:
    """Return a CRC as it is stored: a CRC of data that holds its own CRC would be a constant."""
    return (((crc >> 15) | (crc << 17)) + 0xA282EAD8) & 0xFFFFFFFF


def write(entries: Mapping[bytes, bytes]) -> bytes:
    """Return a table with these entries."""
    table = bytearray()
    blocks: list[tuple[bytes, bytes]] = []  # the last key of each block, and the block's place
    block = _Block()
    for key, value in sorted(entries.items()):
        block.add(key, value)
        if block.size >= _BLOCK_BYTES:
            blocks.append((key, _append(table, block)))
            block = _Block()
    if block.size or not blocks:
        blocks.append((block.last_key, _append(table, block)))
    meta = _append(table, _Block())
    index = _Block(restart_every=1)
    for last_key, place in blocks:
        index.add(last_key, place)
    footer = meta + _append(table, index)
    return bytes(table) + footer.ljust(_FOOTER_BYTES - 8, b"\0") + struct.pack("<Q", _MAGIC)


def read(table: bytes) -> dict[bytes, bytes]:
    """Return the entries of a table.

    Raises:
      TableError: it is damaged, or compressed.
    """
    if len(table) < _FOOTER_BYTES or struct.unpack("<Q", table[-8:])[0] != _MAGIC:
        raise TableError("it does not end as a table does")
    footer = table[-_FOOTER_BYTES:]
    _, after_meta = _read_place(footer, 0)
    index, _ = _read_place(footer, after_meta)
    entries: dict[bytes, bytes] = {}
    for _, place in _entries(_block(table, index)):
        entries |= dict(_entries(_block(table, _read_place(place, 0)[0])))
    return entries


class _Block:
    """A block that is being built."""

    def __init__(self, restart_every: int = _RESTART_EVERY) -> None:
        self.last_key = b""
        self._content = bytearray()
        self._restarts: list[int] = []
        self._every = restart_every
        self._count = 0

    @property
    def size(self) -> int:
        """Bytes of its entries."""
        return len(self._content)

    def add(self, key: bytes, value: bytes) -> None:
        """Add an entry; keys come in their order."""
        shared = 0
        if self._count % self._every == 0:
            self._restarts.append(len(self._content))
        else:
            while shared < min(len(key), len(self.last_key)) and key[shared] == self.last_key[shared]:
                shared += 1
        self._content += _varint(shared) + _varint(len(key) - shared) + _varint(len(value)) + key[shared:] + value
        self.last_key = key
        self._count += 1

    def to_bytes(self) -> bytes:
        """Return the block without its trailer."""
        restarts = self._restarts or [0]
        return bytes(self._content) + struct.pack(f"<{len(restarts) + 1}I", *restarts, len(restarts))


def _append(table: bytearray, block: _Block) -> bytes:
    """Append a block to a table. Return its place, as it is stored."""
    content = block.to_bytes()
    place = _varint(len(table)) + _varint(len(content))
    table += content + b"\0" + struct.pack("<I", masked(crc32c(content + b"\0")))
    return place


def _block(table: bytes, place: tuple[int, int]) -> bytes:
    begin, size = place
    content, trailer = table[begin : begin + size], table[begin + size : begin + size + _TRAILER_BYTES]
    if len(content) + len(trailer) != size + _TRAILER_BYTES:
        raise TableError("it ends too soon")
    if trailer[0] != 0:
        raise TableError("it is compressed")
    if struct.unpack("<I", trailer[1:])[0] != masked(crc32c(content + trailer[:1])):
        raise TableError("a checksum does not match")
    return content


def _entries(block: bytes) -> Iterator[tuple[bytes, bytes]]:
    [restarts] = struct.unpack("<I", block[-4:])
    position, end, key = 0, len(block) - 4 * (restarts + 1), b""
    while position < end:
        shared, position = read_varint(block, position)
        unshared, position = read_varint(block, position)
        size, position = read_varint(block, position)
        key = key[:shared] + block[position : position + unshared]
        position += unshared
        yield key, block[position : position + size]
        position += size


def _read_place(data: bytes, position: int) -> tuple[tuple[int, int], int]:
    begin, position = read_varint(data, position)
    size, position = read_varint(data, position)
    return (begin, size), position


def _varint(value: int) -> bytes:
    """Return a number in groups of seven bits, the least first."""
    found = bytearray()
    while value >= 0x80:
        found.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*found, value])


def read_varint(data: bytes, position: int) -> tuple[int, int]:
    """Return a number in groups of seven bits, and where it ends.

    Raises:
      TableError: it does not end.
    """
    value = shift = 0
    while True:
        if position >= len(data) or shift > 63:
            raise TableError("a number does not end")
        byte = data[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, position
        shift += 7
