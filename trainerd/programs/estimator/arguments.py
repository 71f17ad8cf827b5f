"""The names of the arguments of a user's function."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any

_NAMED = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)


def names_of_arguments(function: Callable[..., Any]) -> set[str]:
    """Return the arguments that a function can be given by name. Those that a `functools.partial` gives are not among
    them."""
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):  # it is not written in Python
        return set()
    given = set(function.keywords) if isinstance(function, functools.partial) else set()
    return {each.name for each in parameters if each.kind in _NAMED} - given


def taken_by(function: Callable[..., Any], **offered: Any) -> dict[str, Any]:
    """Return those of the offered arguments that a function can be given by name."""
    taken = names_of_arguments(function)
    return {name: value for name, value in offered.items() if name in taken}
