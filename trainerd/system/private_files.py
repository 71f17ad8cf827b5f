"""Files with secrets, which only their owner may read."""

from __future__ import annotations

import os
import stat
from pathlib import Path

from trainerd.errors import ConfigError
from trainerd.system.durable_files import storage


def require_private(path: Path, what: str = "secrets") -> None:
    """Require that only the owner may read a file with secrets.

    systemd's credentials are private, and their modes do not show it.

    Args:
      path: the file.
      what: what it holds, for the message.

    Raises:
      ConfigError: others may read it.
      StorageError: it cannot be read.
    """
    credentials = os.environ.get("CREDENTIALS_DIRECTORY")
    if credentials and path.is_relative_to(credentials):
        return
    with storage(f"read {path}"):
        found = path.stat()
    if stat.S_IMODE(found.st_mode) & 0o077:
        raise ConfigError(f"{path} holds {what}, and others may read it. Type `chmod 600 {path}`.")
