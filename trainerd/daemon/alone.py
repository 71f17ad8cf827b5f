"""A kind of process that runs once for each user."""

from __future__ import annotations

import contextlib
import fcntl
from collections.abc import Iterator
from pathlib import Path

from trainerd.errors import InUseError
from trainerd.system.durable_files import storage


@contextlib.contextmanager
def alone(folder: Path, what: str) -> Iterator[None]:
    """Be the only one of its kind of this user while the block runs.

    Args:
      folder: the folder of its lock. It is made if it is missing.
      what: the kind, for a message.

    Raises:
      InUseError: another one runs.
      StorageError: the lock cannot be made.
    """
    path = folder / "lock"
    with contextlib.ExitStack() as stack:
        with storage(f"write {path}"):
            folder.mkdir(parents=True, exist_ok=True)
            file = stack.enter_context(path.open("w"))
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise InUseError(f"another {what} of yours runs already: it holds {path}.") from None
        yield
