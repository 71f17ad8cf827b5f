"""What was found out about fetches, so that it need not be found out at every step."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Generic, TypeVar

import tensorflow as tf

Found = TypeVar("Found")

LIMIT = 1000  # kinds of fetches that are kept: who makes new ones all the time gains nothing
_LEAVES: set[type] = set()  # the types of tensors, operations and variables that were seen


class Remembered(Generic[Found]):
    """Keeps what was found out about fetches, by their structure and by which objects are in it."""

    def __init__(self) -> None:
        self._kept: dict[Any, tuple[Found, Any]] = {}

    def get(self, fetches: Any, find: Callable[[Any], Found]) -> Found:
        """What `find` said of these fetches; it is asked once, where it can be told what is in them."""
        try:
            key = _key(fetches)
        except _UnknownError:
            return find(fetches)
        kept = self._kept.get(key)
        if kept is None:
            if len(self._kept) >= LIMIT:
                self._kept.clear()
            # The fetches are kept too, so that no other object gets the identity of a part of them.
            self._kept[key] = kept = (find(fetches), _copied(fetches))
        return kept[0]


class _UnknownError(Exception):
    """Fetches hold something of which it is not known what is in it."""


def _key(fetches: Any) -> Any:
    """What tells fetches apart."""
    kind = type(fetches)
    if kind in _LEAVES:
        return id(fetches)
    if isinstance(fetches, list | tuple):
        return (kind, *map(_key, fetches))
    if isinstance(fetches, dict):
        return (kind, *((name, _key(value)) for name, value in fetches.items()))
    if isinstance(fetches, str):
        return fetches
    if isinstance(fetches, tf.Tensor | tf.Operation | tf.Variable | tf.compat.v1.Variable):
        _LEAVES.add(kind)
        return id(fetches)
    raise _UnknownError


def _copied(fetches: Any) -> Any:
    """The same objects, in lists that nobody else changes."""
    if isinstance(fetches, list | tuple):
        return [_copied(part) for part in fetches]
    if isinstance(fetches, dict):
        return [_copied(part) for part in fetches.values()]
    return fetches
