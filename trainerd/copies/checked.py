"""Small contents at a destination, each of which is verified when it is written and when it is read."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
from collections.abc import Callable, Iterator, Mapping
from typing import Any, TypeVar

import msgspec

from trainerd import text
from trainerd.copies.store import CopyStore
from trainerd.errors import CopyError, DataError

FORMAT = 1  # of the layout
_LARGEST = 64 << 20  # bytes of what is read into memory: an index has a line for each mebibyte of event files
_Content = TypeVar("_Content")


def with_checksum(content: dict[str, Any]) -> bytes:
    """Return fields as JSON, with their checksum as the last one."""
    return json.dumps(content | {"checksum": checksum(content)}).encode()


def checksum(content: Mapping[str, Any]) -> str:
    """Return the checksum of fields."""
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


class CheckedStore:
    """A destination whose small contents have checksums of their own.

    Args:
      store: the destination.
      url: its URL, for messages.
    """

    def __init__(self, store: CopyStore, url: str) -> None:
        self._store = store
        self.url = url

    def content(self, name: str) -> bytes:
        """Return a content.

        Raises:
          MissingError: there is none.
          CopyError: it cannot be read.
        """
        parts, size = [], 0
        for part in self._store.read(name):
            parts.append(part)
            size += len(part)
            if size > _LARGEST:
                raise CopyError(
                    f"{name} at {self.url} is larger than {text.size(_LARGEST)}, the most that trainerd reads."
                )
        return b"".join(parts)

    def sound(self, name: str, parse: Callable[[bytes], _Content | None]) -> _Content | None:
        """Return a content, parsed; None if it is damaged: two reads in a row give the same bytes.

        Raises:
          MissingError: there is none.
          CopyError: it cannot be read, or each read gives other bytes: an error on the way says nothing of the copy.
        """
        contents = []
        for _ in range(2):
            contents.append(self.content(name))
            if (found := parse(contents[-1])) is not None:
                return found
        if contents[0] != contents[1]:
            raise CopyError(f"{name} at {self.url} gave other bytes when it was read again.")
        return None

    def put_content(self, name: str, content: bytes) -> None:
        """Write a content, and read it back.

        Raises:
          CopyError: it could not be written.
        """
        with in_memory(content) as source:
            self._store.put(name, source, len(content), lambda sent: None)
        if self.content(name) != content:
            raise CopyError(f"{name} at {self.url} is not what was written: it was read back and compared.")

    def decoded(self, content: bytes, kind: type[_Content]) -> _Content | None:
        """Return a content as this type; None if it is damaged.

        Raises:
          DataError: it is of a newer format.
        """
        version = 0
        with contextlib.suppress(ValueError, RecursionError, TypeError, KeyError, AttributeError):
            stated = (fields := msgspec.json.decode(content)).pop("checksum")
            if checksum(fields) == stated and (version := fields["format"]) <= FORMAT:
                return msgspec.json.decode(content, type=kind)
        if version > FORMAT:
            raise DataError(
                f"the copy at {self.url} has format {version}, and this trainerd reads format {FORMAT}: a newer "
                "version wrote it. Install that one."
            )
        return None

    def close(self) -> None:
        """Free what the destination has opened."""
        self._store.close()


@contextlib.contextmanager
def in_memory(content: bytes) -> Iterator[int]:
    """Give a descriptor of a file in memory with this content while the block runs."""
    source = os.memfd_create("trainerd-copy")
    try:
        with open(source, "wb", closefd=False) as file:
            file.write(content)
        yield source
    finally:
        os.close(source)
