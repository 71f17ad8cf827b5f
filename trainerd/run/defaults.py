"""Defaults that programs of a graph and of functions have in common."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

USE_DEFAULT = 0
NO_WRITER = "Writing a summary requires a summary writer."


def or_default(value: Any, make: Callable[[], Any]) -> Any:
    """Return a value, or what `make` makes if the value is USE_DEFAULT: the 0 itself, and no tensor that equals it."""
    return make() if value is USE_DEFAULT else value
