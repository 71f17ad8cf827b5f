"""The files of a run beside its checkpoints, each as a list of parts that are sent if they are new."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from trainerd.checkpoints.manifest import FileRecord
from trainerd.copies.contents import is_event_file
from trainerd.copies.store import PIECE
from trainerd.rundir.runs import Stamp, stamp_of
from trainerd.system import safe_paths
from trainerd.system.durable_files import storage_error
from trainerd.system.regular_files import open_to_read

log = logging.getLogger(__name__)


class FileParts:
    """Sends files in parts of one size: what is appended changes the last part alone.

    Args:
      send: sends a part if it is new, and returns its record.
    """

    def __init__(self, send: Callable[[bytes], FileRecord]) -> None:
        self._send = send
        self._known: dict[str, tuple[Stamp | None, list[FileRecord]]] = {}
        self._unread: dict[str, str] = {}  # the files that cannot be read, and why

    def forget(self) -> None:
        """Forget what was sent: another connection may not have it."""
        self._known = {}

    def of(self, name: str, path: Path, before: Sequence[FileRecord] | None) -> list[FileRecord] | None:
        """Return the parts of a file, all of which are sent.

        A file that cannot be read must not keep checkpoints from being copied. It stays as it was copied last.

        Args:
          name: the name that the copy has for it.
          path: the file.
          before: its parts as they were copied last; None if they are not there.

        Returns:
          The parts; None if the file was removed, or cannot be read and was never copied.

        Raises:
          CopyError: a part could not be sent.
        """
        stamp = stamp_of(path)
        known = self._known.get(name)
        if known is not None and known[0] == stamp:
            return known[1]
        parts = self._full_parts(name, stamp)
        try:
            parts += [self._send(part) for part in _parts_of(path, len(parts))]
        except safe_paths.MISSING:
            return None
        except OSError as error:
            self._report_unread(name, str(storage_error(error, f"read {path}")))
            return list(before) if before is not None else None
        self._unread.pop(name, None)
        self._known[name] = (stamp, parts)
        return parts

    def _full_parts(self, name: str, stamp: Stamp | None) -> list[FileRecord]:
        """Return the parts of a file that need no second read: the full ones of an event file that has grown.

        Whoever writes an event file appends to it, and changes nothing that is in it.
        """
        before, parts = self._known.get(name, (None, []))
        if stamp is None or before is None or not is_event_file(name):
            return []
        (_, inode, size, _), (_, inode_before, size_before, _) = stamp, before
        has_grown = inode == inode_before and size > size_before
        return [part for part in parts if part.bytes == PIECE] if has_grown else []

    def _report_unread(self, name: str, why: str) -> None:
        """Log once that a file is not copied."""
        if self._unread.get(name) != why:
            log.warning("%s is not copied: %s", name, why, extra={"event": "copy-unread"})
        self._unread[name] = why


def _parts_of(path: Path, first: int) -> Iterator[bytes]:
    """Yield the parts of a file, from this one on, up to the size that the file has now.

    Raises:
      OSError: it cannot be read.
    """
    with open_to_read(path) as file:
        left = os.fstat(file.fileno()).st_size - file.seek(first * PIECE)
        while left > 0 and (part := file.read(min(PIECE, left))):
            left -= len(part)
            yield part
