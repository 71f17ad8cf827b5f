"""How pip is configured on this machine, for a pip that runs in another root."""

from __future__ import annotations

import ast
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import unquote, urlsplit

_ENVIRONMENT = ":env:."  # how `pip config list` begins the name of what a variable sets


@dataclass(frozen=True)
class PipSettings:
    """What such a pip needs.

    Args:
      environment: its variables.
      places: the files and folders of this machine that they name.
    """

    environment: dict[str, str]
    places: list[Path]


def pip_settings() -> PipSettings:
    """Ask the pip of this environment."""
    listed = subprocess.run([sys.executable, "-m", "pip", "config", "list"], capture_output=True, text=True, check=True)
    environment: dict[str, str] = {}
    for line in sorted(listed.stdout.splitlines(), key=lambda line: line.startswith(_ENVIRONMENT)):
        name, _, value = line.partition("=")
        variable = name.rpartition(".")[2].upper().replace("-", "_")
        environment[f"PIP_{variable}"] = ast.literal_eval(value)
    words = [word for value in environment.values() for word in value.split()]
    places = {place for word in words if (place := _place(word)) is not None}
    return PipSettings(environment, sorted(places))


def _place(word: str) -> Path | None:
    """The file or folder that a word of a setting names, if it does."""
    url = urlsplit(word)
    if url.scheme == "file":
        # A page of an index names files that lie beside the index.
        return Path(unquote(url.path)).parent
    path = Path(word)
    return path if path.is_absolute() and path.exists() else None
