"""The config of a script that has none: its name and its run directory."""

from __future__ import annotations

import ast
from pathlib import Path
from typing import Any

from trainerd.errors import ConfigError
from trainerd.system.regular_files import read_regular


def is_script(path: Path) -> bool:
    """Return whether a path that stands for a config is a script."""
    return path.suffix == ".py"


def keys_of(script: Path) -> dict[str, Any]:
    """Return the keys of the config of a script. Its `logdir` is the one that the script writes out, or `runs/NAME`.

    Args:
      script: the script.

    Raises:
      ConfigError: it does not exist, or cannot be read.
    """
    try:
        source = read_regular(script.resolve())
    except OSError as error:
        raise ConfigError(f"cannot read the script {script}: {error.strerror}.") from None
    return {"entry": script.name, "logdir": _written_logdir(source) or f"runs/{script.stem}"}


def _written_logdir(source: bytes) -> str | None:
    """Return the first `logdir="..."` among the arguments of calls. None: no call has one, or it does not parse."""
    try:
        tree = ast.parse(source)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None  # the start of the script says it
    for node in ast.walk(tree):
        if isinstance(node, ast.keyword) and node.arg == "logdir" and isinstance(node.value, ast.Constant):
            return node.value.value if isinstance(node.value.value, str) and node.value.value else None
    return None
