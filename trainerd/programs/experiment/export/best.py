"""The best metrics so far, on disk beside the folder of the exports: they outlive restarts, and the checkpoint itself.

They are not among the exports: programs take the last name in that folder for the newest export.

It is not among the exports: programs take the last name in that folder for the newest export.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from trainerd.system.durable_files import storage, write_atomic
from trainerd.system.regular_files import read_regular

_NAME_BEFORE = "best.json"  # in the folder itself, in 0.2 and before


def best_in(folder: Path) -> dict[str, Any] | None:
    """Return the metrics of the best so far.

    Args:
      folder: the folder of the exports.

    Returns:
      The metrics; None if there is none, or the file is damaged.
    """
    for path in (_path_for(folder), folder / _NAME_BEFORE):
        try:
            with storage(f"read {path}", missing_ok=True):
                found: dict[str, Any] = json.loads(read_regular(path))
                return {name: math.nan if value is None else value for name, value in found.items()}
        except (ValueError, AttributeError):
            return None
    return None


def keep_best(folder: Path, metrics: Mapping[str, Any]) -> None:
    """Keep these metrics as the best from now on.

    Args:
      folder: the folder of the exports.
      metrics: the metrics.

    Raises:
      StorageError: it cannot be written.
    """
    plain = {
        name: (value.item() if isinstance(value, np.generic) else value)
        for name, value in metrics.items()
        if isinstance(value, int | float | np.number)
    }
    finite = {name: value if math.isfinite(value) else None for name, value in plain.items()}
    path = _path_for(folder)
    with storage(f"write {path}"):
        path.parent.mkdir(parents=True, exist_ok=True)
        write_atomic(path, json.dumps(finite, indent=1, allow_nan=False).encode() + b"\n", for_all=True)
        (folder / _NAME_BEFORE).unlink(missing_ok=True)


def _path_for(folder: Path) -> Path:
    return folder.with_name(f"{folder.name}.json")


def loss_is_smaller(best: Mapping[str, Any], current: Mapping[str, Any], names: tuple[str, str]) -> bool:
    """Return whether the loss of the second is smaller.

    Args:
      best, current: the metrics.
      names: of the two, for the message.

    Raises:
      ValueError: one has no loss.
    """
    for name, metrics in zip(names, (best, current), strict=True):
        if not metrics or "loss" not in metrics:
            raise ValueError(f"{name} cannot be empty or no loss is found in it.")
    return bool(best["loss"] > current["loss"] or math.isnan(best["loss"]))
