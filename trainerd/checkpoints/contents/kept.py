"""Objects of a program's own in each checkpoint: `trainerd.keep`."""

from __future__ import annotations

import contextlib
import copy
import functools
import logging
from collections import deque
from dataclasses import dataclass, field
from itertools import zip_longest
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import tensorflow as tf
from numpy.typing import NDArray

from trainerd.checkpoints.contents.object_state import access
from trainerd.checkpoints.contents.python_state import is_plain, packed, unpacked
from trainerd.errors import DataError, EntryError, JobError
from trainerd.job.user_code import job_traceback, user_code
from trainerd.system.process_wide import process_wide

log = logging.getLogger(__name__)

_KEPT = "kept/"  # what the keys in a checkpoint begin with
_VALUES = "values"
_CONTAINERS = (dict, list, set, deque, np.ndarray)
_NUMBERS = {
    *("bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"),
    *("float16", "float32", "float64", "complex64", "complex128"),
}
T = TypeVar("T")


@dataclass
class KeptObjects:
    """The objects that a program keeps.

    Attributes:
      objects: them, by name.
      restored: the values of a checkpoint that was restored before the program gave their object, by name.
    """

    objects: dict[str, Any] = field(default_factory=dict)
    restored: dict[str, Any] = field(default_factory=dict)


KEPT = process_wide("kept objects", KeptObjects())


def keep(name: str, thing: T) -> T:
    """Save an object of Python or NumPy with each checkpoint, and restore it before the first step.

    A restore changes the object where it is. Call this before the training, once for each object.

    Args:
      name: its name in checkpoints, such as "replay".
      thing: a dict, list, set, deque or NumPy array of plain values (numbers, strings, arrays, and collections of
        these); a generator of random numbers; or an object with `state_dict` and `load_state_dict`, or `get_state` and
        `set_state`, whose state is plain. An array must have the same shape and dtype at each start.

    Returns:
      The same object.

    Raises:
      EntryError: it cannot be saved, or cannot be restored where it is.
      DataError: the checkpoint that was restored already has another kind of object under this name.
    """
    if not isinstance(name, str) or not name or "/" in name:
        raise EntryError(f"trainerd.keep: the name must be a string that is not empty, without a slash, not {name!r}.")
    if not isinstance(thing, _CONTAINERS) and access(thing) is None:
        raise EntryError(
            f"trainerd.keep: {name!r} is of type {type(thing).__name__}, which cannot be restored where it is. Give a "
            'dict, such as {"value": 0.5}; or an object with `state_dict` and `load_state_dict`.'
        )
    if not is_plain(state := _state_of(thing)):
        raise EntryError(f"trainerd.keep: {name!r} contains {_not_plain(state)}, which cannot be saved.")
    KEPT.objects[name] = thing
    if name in KEPT.restored:
        _restore(name, KEPT.restored.pop(name))
    return thing


def kept_state(step: int) -> dict[str, bytes | NDArray[Any]]:
    """Return a copy of the state of all kept objects, by the keys of a checkpoint.

    Args:
      step: the global step, for an error.

    Raises:
      JobError: the state of an object cannot be read.
    """
    found: dict[str, bytes | NDArray[Any]] = {}
    for name, thing in KEPT.objects.items():
        arrays = _Arrays()
        with _copied(name, step):
            found[f"{_KEPT}{name}/{_VALUES}"] = packed(_state_of(thing), arrays.put)
            found |= {f"{_KEPT}{name}/{form}": np.stack(alike) for form, alike in arrays.alike.items()}
    return found


def _copied(name: str, step: int) -> contextlib.AbstractContextManager[None]:
    """Report an object whose state cannot be copied in the block.

    Raises:
      JobError: it cannot.
    """

    def failed(error: BaseException) -> JobError:
        message = f"trainerd.keep: {name!r} could not be saved after step {step}"
        return JobError(message, step=step, sound=False, details=job_traceback(error))

    return user_code(failed)


class KeptValues:
    """A copy of the state of all kept objects, in memory.

    Args:
      step: the global step, for an error.

    Raises:
      JobError: the state of an object cannot be copied.
    """

    def __init__(self, step: int) -> None:
        self._values: dict[str, Any] = {}
        for name, thing in KEPT.objects.items():
            with _copied(name, step):
                self._values[name] = copy.deepcopy(_state_of(thing))

    def put_back(self) -> None:
        """Give the objects this state again, once."""
        for name, values in self._values.items():
            _restore(name, values)


def is_kept(key: str) -> bool:
    """Return whether a key of a checkpoint is that of a kept object."""
    return key.startswith(_KEPT)


def is_kept_object(value: Any) -> bool:
    """Return whether this very object is kept."""
    return any(value is each for each in KEPT.objects.values())


def restore_kept(prefix: Path) -> None:
    """Restore the kept objects from a checkpoint. Values of one that the program has not given yet wait for it.

    Raises:
      DataError: the checkpoint has another kind of object under a name.
    """
    reader = tf.train.load_checkpoint(str(prefix))
    suffix = f"/{_VALUES}"
    keys = [key for key in reader.get_variable_to_shape_map() if is_kept(key) and key.endswith(suffix)]
    stored = {key.removeprefix(_KEPT).removesuffix(suffix): key for key in keys}
    for name, key in stored.items():
        arrays: dict[str, NDArray[Any]] = {}

        def beside(place: Any, name: str = name, arrays: dict[str, NDArray[Any]] = arrays) -> NDArray[Any]:
            form, number = place
            if form not in arrays:
                arrays[form] = reader.get_tensor(f"{_KEPT}{name}/{form}")
            found: NDArray[Any] = arrays[form][number].copy()
            return found

        values = unpacked(reader.get_tensor(key), beside)
        if name in KEPT.objects:
            _restore(name, values)
        else:
            KEPT.restored[name] = values
    if missing := sorted(KEPT.objects.keys() - stored.keys()):
        log.warning(
            "the checkpoint has no state of these objects of trainerd.keep, which stay as the program made them: %s",
            ", ".join(missing),
            extra={"event": "kept"},
        )


class _Arrays:
    """Arrays of numbers, those of one dtype and shape together, so that a list of many needs few keys."""

    def __init__(self) -> None:
        self.alike: dict[str, list[NDArray[Any]]] = {}

    def put(self, array: NDArray[Any]) -> list[Any] | None:
        """Add an array. Returns its place; None for an array that is not a tensor of numbers."""
        form = _form_of(array.dtype, array.shape)
        if form is None:
            return None
        alike = self.alike.setdefault(form, [])
        alike.append(array)
        return [form, len(alike) - 1]


@functools.lru_cache
def _form_of(dtype: np.dtype[Any], shape: tuple[int, ...]) -> str | None:
    return f"{dtype.name}-{'x'.join(map(str, shape))}" if dtype.isnative and dtype.name in _NUMBERS else None


def _state_of(thing: Any) -> Any:
    """Return the state of a kept object: itself if it is a container."""
    found = None if isinstance(thing, _CONTAINERS) else access(thing)
    return thing if found is None else found[0]()


def _not_plain(value: Any) -> str:
    """Return the type of the first value in a collection that cannot be saved, in words."""
    if isinstance(value, dict):
        value = [each for pair in value.items() for each in pair]
    inside = value if isinstance(value, list | tuple | set | frozenset | deque) else ()
    found = next((each for each in inside if not is_plain(each)), None)
    return f"an object of type {type(value).__name__}" if found is None else _not_plain(found)


def _restore(name: str, values: Any) -> None:
    """Restore an object where it is.

    Raises:
      DataError: the values are not those of such an object.
    """
    thing = KEPT.objects[name]
    if not isinstance(thing, _CONTAINERS):
        found = access(thing)
        assert found is not None  # `keep` refuses it
        try:
            found[1](values)
        except Exception as error:  # it is the user's method, or the object is of another kind now
            raise DataError(
                f"trainerd.keep: {name!r} cannot be restored: {type(error).__name__}: {error}. Put the object back as "
                "it was, or use another name."
            ) from error
    elif _put_into(thing, values) is not thing:
        raise DataError(
            f"trainerd.keep: {name!r} is {_described(thing)}, and the checkpoint has {_described(values)}. Put the "
            "object back as it was, or use another name."
        )


def _put_into(present: Any, saved: Any) -> Any:
    """Return what a container holds from now on: the present object with the saved values, or the saved one."""
    if isinstance(present, np.ndarray):
        if not isinstance(saved, np.ndarray) or (present.dtype, present.shape) != (saved.dtype, saved.shape):
            return saved
        present[...] = saved
    elif type(present) is not type(saved) or not isinstance(present, _CONTAINERS):
        return saved
    elif isinstance(present, dict):
        parts = {key: _put_into(present.get(key), part) for key, part in saved.items()}
        present.clear()
        present.update(parts)
    elif isinstance(present, list):
        present[:] = [_put_into(old, part) for old, part in zip_longest(present, saved)][: len(saved)]
    elif isinstance(present, deque):
        present.clear()
        present.extend(saved)
    elif isinstance(present, set):
        present.clear()
        present.update(saved)
    return present


def _described(thing: Any) -> str:
    if isinstance(thing, np.ndarray):
        return f"an array of shape {list(thing.shape)} and dtype {thing.dtype}"
    return f"of type {type(thing).__name__}"
