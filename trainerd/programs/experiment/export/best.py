"""What is best so far, kept on disk beside the exports: it outlives restarts, and the checkpoint itself."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from trainerd.system.durable_files import storage, write_atomic
from trainerd.system.regular_files import read_regular

_NAME = "best.json"


def best_in(folder: Path) -> dict[str, Any] | None:
    """The metrics of the best so far; None if there is none, or the file is damaged."""
    path = folder / _NAME
    try:
        with storage(f"read {path}", missing_ok=True):
            found: dict[str, Any] = json.loads(read_regular(path))
            return {name: math.nan if value is None else value for name, value in found.items()}
    except (ValueError, AttributeError):
        return None
    return None


def keep_best(folder: Path, metrics: Mapping[str, Any]) -> None:
    """These metrics are the best from now on.

    Raises:
      StorageError: it cannot be written.
    """
    plain = {
        name: (value.item() if isinstance(value, np.generic) else value)
        for name, value in metrics.items()
        if isinstance(value, int | float | np.number)
    }
    finite = {name: value if math.isfinite(value) else None for name, value in plain.items()}
    path = folder / _NAME
    with storage(f"write {path}"):
        folder.mkdir(parents=True, exist_ok=True)
        write_atomic(path, json.dumps(finite, indent=1, allow_nan=False).encode() + b"\n", for_all=True)


def loss_is_smaller(best: Mapping[str, Any], current: Mapping[str, Any], names: tuple[str, str]) -> bool:
    """Whether the loss of the second is smaller.

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


Compare = Callable[..., bool]
