"""What is common to programs of a graph and of functions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

USE_DEFAULT = 0
NO_WRITER = "Writing a summary requires a summary writer."


def or_default(value: Any, make: Callable[[], Any]) -> Any:
    """Return a value, or what is made where it is USE_DEFAULT: 0, and no tensor that happens to equal it."""
    return make() if value is USE_DEFAULT else value
