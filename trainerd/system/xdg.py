"""A user's own folders, as the XDG Base Directory Specification has them. It requires that a relative one is ignored.

https://specifications.freedesktop.org/basedir-spec/latest/
"""

from __future__ import annotations

import os
from pathlib import Path


def config_home() -> Path:
    """Return the folder of a user's configs.

    Raises:
      RuntimeError: there is no home.
    """
    return _folder("XDG_CONFIG_HOME", ".config")


def state_home() -> Path:
    """Return the folder in which programs keep their notes for a user; see `config_home`."""
    return _folder("XDG_STATE_HOME", ".local/state")


def _folder(variable: str, below_home: str) -> Path:
    chosen = Path(os.environ.get(variable, ""))
    return chosen if chosen.is_absolute() else Path.home() / below_home
