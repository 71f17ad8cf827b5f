"""The optional packages of trainerd: its extras `watch`, `copy`, `sweep` and `gpu`."""

from __future__ import annotations

import shlex
import sys
from importlib import metadata


def install_command(extra: str) -> str:
    """Return the command that installs what an extra needs into the Python that runs.

    Args:
      extra: the name of the extra in the package's metadata, such as "watch".
    """
    return shlex.join([sys.executable, "-m", "pip", "install", *(_requirements(extra) or [f".[{extra}]"])])


def _requirements(extra: str) -> list[str]:
    """Return the requirements of an extra. None are known if trainerd is not installed: it then runs in a checkout."""
    try:
        every = metadata.requires("trainerd") or []
    except metadata.PackageNotFoundError:
        return []
    marks = (f'extra == "{extra}"', f"extra == '{extra}'")
    return [each.partition(";")[0].strip() for each in every if each.endswith(marks)]
