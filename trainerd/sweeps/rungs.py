"""The file rungs.toml of a sweep: by which metrics each rung was decided. A rung is never decided differently later."""

from __future__ import annotations

from pathlib import Path

import msgspec
import tomlkit

from trainerd.config import tables
from trainerd.errors import ConfigError
from trainerd.sweeps.halving import Rungs
from trainerd.system.durable_files import storage, write_atomic

NAME = "rungs.toml"
_HEAD = "The metric of each point at each rung that is decided. Remove this file to have them decided again."


def read(folder: Path) -> Rungs:
    """Read the file of a sweep's folder; a sweep that has decided nothing has none.

    Raises:
      ConfigError: it cannot be read, or is not such a file.
    """
    path = folder / NAME
    if not path.exists():
        return {}
    try:
        return msgspec.convert(tables.read(path, ""), dict[int, dict[str, float]], strict=False)
    except msgspec.ValidationError as error:
        raise ConfigError(f"{path}: expected a table for each rung, with the metric of each point: {error}.") from None


def write(folder: Path, rungs: Rungs) -> None:
    """Write the file.

    Raises:
      StorageError: it cannot be written.
    """
    document = tomlkit.document()
    document.add(tomlkit.comment(_HEAD))
    for rung, metrics in rungs.items():
        document.add(str(rung), tomlkit.item(dict(metrics)))
    path = folder / NAME
    with storage(f"write {path}"):
        write_atomic(path, tomlkit.dumps(document).encode())
