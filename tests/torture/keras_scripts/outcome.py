"""Prints the result of a script on one line, so that two runs can be compared bit for bit."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable
from typing import Any

import numpy as np


def digest(values: Iterable[Any]) -> str:
    """Return a digest of the bytes of variables and arrays."""
    found = hashlib.sha256()
    for value in values:
        found.update(np.ascontiguousarray(value.numpy() if hasattr(value, "numpy") else value).tobytes())
    return found.hexdigest()[:32]


def report(variables: Iterable[Any], history: Any, **remembered: Any) -> None:
    """Print the line.

    Args:
      variables: the weights of the model, the state of its optimizers, and the seeds.
      history: what `fit` has recorded.
      remembered: what callbacks remember, by name.
    """
    result = {"variables": digest(variables), "history": history, "remembered": remembered}
    print("\nresult", json.dumps(result, default=float), flush=True)
