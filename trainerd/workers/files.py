"""A checkpoint's files, for workers that do not share the chief's folder."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path

from trainerd.system.durable_files import storage
from trainerd.workers.peer import Message, Peer

_PIECE = 1 << 22


def send(peer: Peer, paths: Sequence[Path]) -> None:
    """Send files, a piece at a time, so that the other side hears of this one meanwhile.

    Raises:
      PeerLostError: it is gone.
      StorageError: they cannot be read.
    """
    for number, path in enumerate(paths):
        with storage(f"read {path}"), path.open("rb") as file:
            begins = True
            while (piece := file.read(_PIECE)) or begins:
                peer.send("file", name=path.name, data=piece, is_first=number == 0 and begins, begins=begins)
                begins = False


def take(folder: Path, message: Message) -> None:
    """Write a piece that the chief has sent into this folder.

    Raises:
      StorageError: it cannot be written.
    """
    with storage(f"write into {folder}"):
        if message["is_first"]:
            shutil.rmtree(folder, ignore_errors=True)
            folder.mkdir()
        path = folder / Path(message["name"]).name
        with path.open("wb" if message["begins"] else "ab") as file:
            file.write(message["data"])
