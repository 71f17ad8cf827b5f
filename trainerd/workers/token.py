"""The secret that the workers of a cluster share: a file that its owner alone may read."""

from __future__ import annotations

import os
import secrets
import stat
from pathlib import Path

from trainerd.errors import ConfigError
from trainerd.system.durable_files import storage

_BYTES, _LEAST = 32, 16
_MOST = 4096


def read(path: Path) -> bytes | None:
    """Read the token; None if there is no file.

    Raises:
      ConfigError: others may read it, or it is not a token.
      StorageError: it cannot be read.
    """
    with storage(f"read the cluster's token {path}", missing_ok=True):
        about = path.stat()
        if not stat.S_ISREG(about.st_mode):
            raise ConfigError(f"cluster.token: {path} is not a regular file.")
        if about.st_mode & 0o077:
            raise ConfigError(f"cluster.token: others may read {path}. Type: chmod 600 {path}")
        with path.open("rb") as file:
            found = file.read(_MOST).strip()
        if len(found) < _LEAST:
            raise ConfigError(
                f"cluster.token: {path} has fewer than {_LEAST} characters. Remove it, and a new one is made."
            )
        return found
    return None


def make(path: Path) -> bytes:
    """Make a token, or read the one that another process has made meanwhile.

    Raises:
      StorageError: it cannot be written.
    """
    if (found := read(path)) is not None:
        return found
    made = secrets.token_hex(_BYTES).encode()
    with storage(f"write the cluster's token {path}"):
        temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
        descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        with os.fdopen(descriptor, "wb") as file:
            file.write(made + b"\n")
        try:
            os.link(temporary, path)  # fails where another process was sooner
        except FileExistsError:
            return read(path) or made
        finally:
            temporary.unlink()
    return made
