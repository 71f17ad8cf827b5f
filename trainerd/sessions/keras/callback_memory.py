"""The memory of Keras callbacks, for a checkpoint."""

from __future__ import annotations

import copy
import inspect
import itertools
from collections import Counter, OrderedDict, defaultdict, deque
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from trainerd.checkpoints.contents.python_state import is_plain

KERAS_OWN = {each for each in vars(keras.callbacks).values() if isinstance(each, type)} - {keras.callbacks.Callback}


_NOT_THEIRS = {"params", "validation_data"}


@dataclass(frozen=True)
class Moment:
    """The callbacks at one moment.

    Attributes:
      memory: what they remember.
      states: for each callback, the attributes that can be saved, and the names of all attributes.
    """

    memory: list[Any]
    states: list[tuple[dict[str, Any], set[str]]]


def plain(callback: Any) -> dict[str, Any]:
    """The attributes of a callback that can be saved: numbers, strings and arrays."""
    return {name: value for name, value in vars(callback).items() if name not in _NOT_THEIRS and is_plain(value)}


def memory_of(callback: Any) -> dict[str, Any]:
    """The attributes of a callback to save, without the arguments of Keras's own callbacks.

    Arguments are settings, which a person may change between two starts; and Keras derives some attributes from them at
    the first epoch, such as the sign of min_delta.
    """
    settings = {
        name
        for kind in type(callback).__mro__
        if kind.__module__.startswith("keras.")
        for name in inspect.signature(kind).parameters
    }
    return {name: value for name, value in plain(callback).items() if name not in settings}


def changed_in(begun: Mapping[str, Any], now: Mapping[str, Any], known: set[str]) -> dict[str, Any]:
    """The attributes that have changed, and those that are `known` to have changed before."""
    changed = (name for name, value in now.items() if name not in begun or not _equal(begun[name], value))
    return {name: now[name] for name in sorted({*changed, *known & now.keys()})}


def taken(callback: Any, values: dict[str, Any]) -> dict[str, Any]:
    """A copy of these values: a user's callback may change arrays in place."""
    copied: dict[str, Any] = _copied(values) if type(callback) in KERAS_OWN else copy.deepcopy(values)
    return copied


def _copied(value: Any) -> Any:
    """A copy of the lists and dicts. Arrays are not copied: they are large, and Keras's own callbacks replace them."""
    if isinstance(value, dict):
        copied = copy.copy(value)  # of the same kind
        for key, part in value.items():
            copied[key] = _copied(part)
        return copied
    if isinstance(value, deque):
        return deque(map(_copied, value), value.maxlen)
    if isinstance(value, set):
        return set(value)
    if isinstance(value, tuple):
        return tuple(map(_copied, value))
    return list(map(_copied, value)) if isinstance(value, list) else value


def as_it_is(present: Any, value: Any) -> Any:
    """The saved values, as dicts and tuples of the same classes as the present ones."""
    if isinstance(present, defaultdict) and isinstance(value, dict):
        parts = {key: as_it_is(_default(present, key, part), part) for key, part in value.items()}
        return defaultdict(present.default_factory, parts)
    if isinstance(value, dict) and isinstance(present, dict):
        kind = type(present if type(present) in (OrderedDict, Counter) and type(value) is dict else value)
        parts = {key: as_it_is(present.get(key), part) for key, part in value.items()}
        return kind(parts) if kind in (OrderedDict, Counter) else parts if kind is dict else value
    if isinstance(value, list) and isinstance(present, list):
        return [as_it_is(old, part) for old, part in itertools.zip_longest(present, value)][: len(value)]
    fields = getattr(present, "_fields", None)
    if isinstance(value, tuple) and isinstance(fields, tuple) and len(value) == len(fields):  # a namedtuple
        return type(present)(*value)
    return value


def _default(present: Any, key: Any, value: Any) -> Any:
    """The value that a defaultdict has, or would make, for a key: it tells the class."""
    if key in present or not isinstance(value, dict) or present.default_factory is None:
        return present.get(key)
    return present.default_factory()


def _equal(one: Any, other: Any) -> bool:
    if type(one) is not type(other):
        return False
    if isinstance(one, np.ndarray):
        return bool(np.array_equal(one, other))
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(_equal(value, other[key]) for key, value in one.items())
    if isinstance(one, tf.Tensor):
        return _equal(one.numpy(), other.numpy())
    if isinstance(one, list | tuple | deque):
        return len(one) == len(other) and all(map(_equal, one, other))
    return bool(one == other)
