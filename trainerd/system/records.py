"""The records of an event file: TensorFlow's TFRecord format, without a check of its checksums."""

from __future__ import annotations

import os
import struct
from collections.abc import Iterator
from typing import IO

_HEADER = struct.Struct("<QI")  # a record: its length, a checksum of that, the data, a checksum of those
_CHECKSUM = 4
_LIMIT = 1 << 30  # bytes of one record: a file may be damaged, or planted


def records(file: IO[bytes], largest: int | None = None) -> Iterator[bytes]:
    """Yield the data of each record, up to where a killed process or a full disk cut the file off.

    Args:
      file: open where a record begins. After each record it is at the end of that.
      largest: pass over those of more bytes. Default: none.
    """
    size = os.fstat(file.fileno()).st_size
    while len(header := file.read(_HEADER.size)) == _HEADER.size:
        length = _HEADER.unpack(header)[0]
        if not 0 < length <= min(size - file.tell() - _CHECKSUM, _LIMIT):
            return  # a file that ends in zeros, as after a power failure, has empty records there
        if largest is not None and length > largest:
            file.seek(length + _CHECKSUM, 1)
            continue
        data = file.read(length)
        file.seek(_CHECKSUM, 1)
        yield data
