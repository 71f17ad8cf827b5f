"""The memory of Keras callbacks, for a checkpoint."""

from __future__ import annotations

import copy
import dataclasses
import datetime
import enum
import functools
import inspect
import io
import itertools
import logging
import pathlib
import re
from collections import Counter, OrderedDict, defaultdict, deque
from collections.abc import Iterator, Mapping, Set
from types import BuiltinFunctionType, FunctionType, MethodType, ModuleType
from typing import Any, Self

import keras
import numpy as np
import tensorflow as tf

from trainerd.checkpoints.contents.kept import is_kept_object
from trainerd.checkpoints.contents.object_graph import own_objects
from trainerd.checkpoints.contents.object_state import access
from trainerd.checkpoints.contents.python_state import is_plain
from trainerd.job.outside_state import AT_EACH_START, attributes_set, function_in, functions_of, kept_outside
from trainerd.sessions.input.pipeline import is_reshuffled, stages

log = logging.getLogger(__name__)

KERAS_OWN = {each for each in vars(keras.callbacks).values() if isinstance(each, type)} - {keras.callbacks.Callback}


_CHANGED = "_trainerd_changed"  # the attribute for the names of those that trainings have changed
_NOT_THEIRS = {"params", "validation_data", "_model", _CHANGED}
_STATE = "__state__"  # marks the state of an object among plain values
# What has nothing to remember, or stays as it was made.
_STAYS = (
    *(type, FunctionType, BuiltinFunctionType, ModuleType, np.ufunc, np.dtype, tf.DType, range, slice, enum.Enum),
    *(pathlib.PurePath, re.Pattern, logging.Logger, logging.LoggerAdapter, io.IOBase, tf.summary.SummaryWriter),
    *(datetime.date, datetime.time, datetime.timedelta, datetime.tzinfo),
)


def plain(callback: Any) -> dict[str, Any]:
    """Return the attributes of a callback that can be saved: numbers, strings and arrays."""
    return {name: value for name, value in _own(callback).items() if is_plain(value)}


def _own(callback: Any) -> dict[str, Any]:
    """Return the attributes of a callback. An object of `trainerd.keep` is not its own: it is saved and stays."""
    attributes = vars(callback).items()
    return {name: value for name, value in attributes if name not in _NOT_THEIRS and not is_kept_object(value)}


def memory_of(callback: Any) -> dict[str, Any]:
    """Return the attributes of a callback to save, without the arguments of Keras's own callbacks.

    Arguments are settings, which a person may change between two starts; and Keras derives some attributes from them at
    the first epoch, such as the sign of min_delta.
    """
    settings = {
        name
        for kind in type(callback).__mro__
        if kind.__module__.startswith("keras.")
        for name in inspect.signature(kind).parameters
    }
    return {name: value for name, value in (plain(callback) | _states(callback)).items() if name not in settings}


def _states(callback: Any) -> dict[str, Any]:
    """Return the states of attributes that are not plain values.

    They are generators of random numbers, variables, and objects that give their state.
    """
    found = {name: _state_of(value) for name, value in _own(callback).items()}
    return {name: {_STATE: state} for name, state in found.items() if state is not None}


def _state_of(value: Any) -> Any:
    """Return the state of an object; None if it has none that can be saved."""
    if is_plain(value) or (found := access(value)) is None:
        return None
    try:
        state = found[0]()
    except Exception:  # it is the user's method: it may want arguments
        return None
    return state if is_plain(state) else None


def give_back(callback: Any, values: Mapping[str, Any]) -> None:
    """Give a callback these attributes. An object whose state it is stays the same one."""
    for name, value in values.items():
        present = vars(callback).get(name)
        if not _is_state(value):
            vars(callback)[name] = as_it_is(present, value)
        elif why := _not_set(present, value[_STATE]):
            log.warning(
                "the callback %s: the saved state of %s cannot be restored, so it restarts: %s",
                type(callback).__name__,
                name,
                why,
                extra={"event": "callbacks"},
            )


def of_present(callback: Any, values: Mapping[str, Any]) -> dict[str, Any]:
    """Return these values without the states of objects that a callback does not have."""
    return {name: value for name, value in values.items() if name in vars(callback) or not _is_state(value)}


def _not_set(present: Any, state: Any) -> str:
    """Set the state of an object. Returns why it cannot be; empty if it was."""
    if is_plain(present) or (found := access(present)) is None:
        return f"it is of the type {type(present).__name__} now"
    try:
        found[1](state)
    except Exception as error:  # it is the user's method, or the object is of another kind now
        return f"{type(error).__name__}: {error}"
    return ""


# ---------------------------------------------------------------------- what no checkpoint holds


class Forgotten:
    """Names what callbacks keep and no checkpoint holds, each thing once.

    Args:
      model: the model that they are called for.
    """

    def __init__(self, model: Any) -> None:
        self._model = model
        self._warned = set[tuple[int, str]]()

    def note_changes(self, callback: Any) -> None:
        """Warn of what a callback keeps, as far as that is known before the first step."""
        if not isinstance(callback, keras.callbacks.Callback):
            return
        self.warn(callback, [*self._attributes(callback), *self._outside(callback)])

    def look_again(self, callback: Any, begun: Mapping[str, Any]) -> None:
        """Warn of attributes that could be saved when training began, and cannot be now.

        It also warns of objects with a state that were not there then, since a resume has none to give it to.
        """
        now, there = memory_of(callback), vars(callback)
        lost = begun.keys() & there.keys() - now.keys()
        made = {name for name in _states(callback).keys() & now.keys() if not _is_state(begun.get(name))}
        if not any(kind in KERAS_OWN for kind in type(callback).__mro__):
            self.warn(callback, [f"{name} (of the type {type(there[name]).__name__})" for name in sorted(lost | made)])

    def warn(self, callback: Any, things: list[str]) -> None:
        """Warn of these things that a callback keeps."""
        new = [each for each in things if (id(callback), each) not in self._warned]
        self._warned |= {(id(callback), each) for each in new}
        if new:
            log.warning(
                "the callback %s changes state that no checkpoint holds: %s. It starts over after a resume. Make it an "
                "attribute of the callback, such as a number, a string, an array or a generator of random numbers.",
                type(callback).__name__,
                "; ".join(new),
                extra={"event": "callbacks"},
            )

    def _attributes(self, callback: Any) -> Iterator[str]:
        """Yield the attributes that are not saved and may change."""
        kinds = type(callback).__mro__
        of_keras = attributes_set(each for kind in kinds if _is_library(kind) for _, each in functions_of(kind))
        states = _states(callback)
        for name, value in vars(callback).items():
            if name not in _NOT_THEIRS | of_keras | states.keys() and not self._stays(value, callback):
                yield f"{name} (of the type {type(value).__name__})"
        for kind in (kind for kind in kinds if not _is_library(kind)):
            for name, value in vars(kind).items():
                hidden = name.startswith(("__", "_abc_")) or name in vars(callback) or hasattr(value, "__get__")
                if not hidden and not self._stays(value, callback):
                    yield f"{name} on the class {kind.__name__}"

    def _outside(self, callback: Any) -> list[str]:
        return kept_outside(_own_functions(callback), callback, lambda value: id(value) in self._saved, is_kept_object)

    @functools.cached_property
    def _saved(self) -> set[int]:
        """The objects of the model that a checkpoint holds."""
        return {id(each) for each in own_objects(tf.train.Checkpoint(model=self._model))}

    def _stays(self, value: Any, callback: Any) -> bool:
        """Return whether a value is saved with the model, is plain, or stays as it was made."""
        if is_plain(value) or isinstance(value, _STAYS) or id(value) in self._saved or is_kept_object(value):
            return True
        if isinstance(value, MethodType):
            return value.__self__ is callback or self._stays(value.__self__, callback)
        if isinstance(value, functools.partial):
            return all(self._stays(each, callback) for each in (value.func, *value.args, *value.keywords.values()))
        if isinstance(value, tf.data.Dataset):
            return not any(map(is_reshuffled, stages(value)))
        if isinstance(value, list | tuple | set | frozenset):
            return all(self._stays(each, callback) for each in value)
        if isinstance(value, dict):
            return all(self._stays(each, callback) for each in value.values())
        is_frozen = dataclasses.is_dataclass(value) and value.__dataclass_params__.frozen  # type: ignore[union-attr]
        return is_frozen and all(self._stays(each, callback) for each in vars(value).values())


def _is_library(kind: type) -> bool:
    return kind is object or kind.__module__.split(".")[0] in ("keras", "tensorflow")


def _own_functions(callback: Any) -> list[FunctionType]:
    """Return the functions of a program's own in a callback that run between steps."""
    of_classes = [each for kind in type(callback).__mro__ if not _is_library(kind) for each in functions_of(kind)]
    given = [(name, function_in(value)) for name, value in vars(callback).items() if callable(value)]
    own = [(name, found) for name, found in given if found is not None and not found.__module__.startswith("keras.")]
    return [function for name, function in [*of_classes, *own] if name not in AT_EACH_START]


def _is_state(value: Any) -> bool:
    return isinstance(value, dict) and value.keys() == {_STATE}


def names_changed(callback: Any) -> set[str]:
    """Return the names of the attributes of a callback that trainings have changed, for the caller to add to.

    The callback itself keeps them, since several trainings may share it.
    """
    found: set[str] = vars(callback).setdefault(_CHANGED, set())
    return found


@dataclasses.dataclass(frozen=True)
class Begun:
    """A callback as a training began, after its `on_train_begin`.

    Attributes:
      memory: a copy of its memory.
      at_begin: the names of the attributes that `on_train_begin` has changed.
      unsaved: the names of what cannot be saved, such as an open file. It stays as `on_train_begin` makes it, although
        the training may end with a value there, such as None.
    """

    memory: Mapping[str, Any]
    at_begin: Set[str]
    unsaved: Set[str]

    @classmethod
    def of(cls, callback: Any, made: Mapping[str, Any]) -> Self:
        """Return it, for a callback whose memory was `made` before its `on_train_begin`."""
        memory = copy.deepcopy(memory_of(callback))
        return cls(memory, _changes(made, memory), vars(callback).keys() - memory.keys())


def changed_in(begun: Begun, callback: Any) -> dict[str, Any]:
    """Return the attributes of a callback that have changed since a training began, or were changed by an earlier one.

    Args:
      begun: the callback as the training began.
      callback: the callback now.
    """
    now, names = memory_of(callback), names_changed(callback)
    names.update(_changes(begun.memory, now))
    return {name: now[name] for name in sorted(names & now.keys())}


def _changes(before: Mapping[str, Any], now: Mapping[str, Any]) -> set[str]:
    return {name for name, value in now.items() if name not in before or not _equal(before[name], value)}


def taken(callback: Any, values: dict[str, Any]) -> dict[str, Any]:
    """Return a copy of these values: a user's callback may change arrays in place."""
    copied: dict[str, Any] = _copied(values) if type(callback) in KERAS_OWN else copy.deepcopy(values)
    return copied


def _copied(value: Any) -> Any:
    """Return a copy of the lists and dicts. Arrays are not copied: they are large, and Keras's own callbacks replace
    them."""
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
    """Return the saved values, as dicts and tuples of the same classes as the present ones."""
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
    """Return the value that a defaultdict has, or would make, for a key: it shows the class."""
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
