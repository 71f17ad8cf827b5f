"""Values of Python code as one tensor of a checkpoint: numbers, strings, bytes, arrays, and collections of them."""

from __future__ import annotations

import functools
import io
import json
from collections import Counter, OrderedDict, defaultdict, deque
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf
from numpy.typing import NDArray

# What JSON does not know, under these names.
_ARRAY, _TUPLE, _PAIRS, _BYTES, _DEQUE = "__array__", "__tuple__", "__pairs__", "__bytes__", "__deque__"
_TENSOR = "__tensor__"
_SETS = {"__set__": set, "__frozenset__": frozenset}
_DICTS = {"__counter__": Counter, "__ordered__": OrderedDict}
_DEFAULT = "__default__"
_FACTORIES = {kind.__name__: kind for kind in (bool, int, float, str, list, tuple, dict, set)}
# What makes them of what is under their name; an array is made of the file.
_MAKERS: dict[str, Callable[[Any], Any]] = {
    _TUPLE: tuple,
    _PAIRS: dict,
    _TENSOR: tf.constant,
    _BYTES: bytes.fromhex,
    _DEQUE: lambda found: deque(found[1], maxlen=found[0]),
    _DEFAULT: lambda found: defaultdict(_FACTORIES[found[0]], found[1]),
    **_SETS,
    "__counter__": lambda pairs: Counter(dict(pairs)),
    "__ordered__": OrderedDict,
}
_NAMES = {_ARRAY, *_MAKERS}
_AS_THEY_ARE = (bool, int, float, str, type(None))


class PythonValues(tf.train.experimental.PythonState):  # type: ignore[misc]
    """Saves and restores values that other code owns.

    Args:
      read: returns the values when a checkpoint is made.
      write: called with the values of a checkpoint that is restored.
    """

    def __init__(self, read: Callable[[], Any], write: Callable[[Any], None]) -> None:
        super().__init__()
        self._of_somebody = (read, write)  # in a tuple: what is an attribute by itself would be tracked

    def serialize(self) -> bytes:
        """Return the values as bytes."""
        return packed(self._of_somebody[0]())

    def deserialize(self, string_value: bytes) -> None:
        """Pass the values on."""
        self._of_somebody[1](unpacked(string_value))


def stored(prefix: Path, name: str) -> Any:
    """Return the values in a checkpoint of the PythonValues that it tracks by this name.

    Raises:
      KeyError: it holds none, or cannot be read.
    """
    try:
        content = tf.train.load_checkpoint(str(prefix)).get_tensor(f"{name}/.ATTRIBUTES/py_state")
    except (tf.errors.OpError, ValueError) as error:
        raise KeyError(name) from error
    return unpacked(content)


def is_plain(value: Any) -> bool:
    """Return whether a value can be saved."""
    if value is None or isinstance(value, bool | int | float | str | bytes | np.ndarray | np.number | np.bool_):
        return not (isinstance(value, np.ndarray) and (value.dtype.hasobject or value.dtype.fields))
    if isinstance(value, tf.Tensor):
        is_numbers = value.dtype.is_numpy_compatible and value.dtype != tf.string and not value.dtype.is_quantized
        return hasattr(value, "numpy") and is_numbers
    if isinstance(value, list | tuple | deque | set | frozenset):
        return all(map(is_plain, value))
    return isinstance(value, dict) and all(_is_key(key) and is_plain(part) for key, part in value.items())


def _is_key(key: Any) -> bool:
    return key is None or isinstance(key, bool | int | float | str)


def packed(values: Any, beside: Callable[[NDArray[Any]], Any] = lambda array: None) -> bytes:
    """Return plain values as bytes: NumPy's npz, with one entry of JSON beside the arrays.

    The format of npz is at https://numpy.org/doc/stable/reference/generated/numpy.lib.format.html.

    Args:
      values: the values.
      beside: takes an array that is saved elsewhere. It returns plain values that find it again; None if it does not
        take the array.
    """
    arrays: dict[str, Any] = {}

    def replaced(value: Any) -> Any:
        if type(value) in _AS_THEY_ARE:  # most are, in a long list
            return value
        if isinstance(value, np.ndarray | np.generic):
            plain = np.asarray(value)
            if plain.dtype.isbuiltin == 2:  # bfloat16 and the like, which NumPy's format does not know
                plain = plain.view(f"u{plain.dtype.itemsize}")
            place = beside(plain)
            if place is None:
                place = len(arrays)
                arrays[str(place)] = plain
            return {_ARRAY: place, "dtype": _name_of(value.dtype)}
        if isinstance(value, tf.Tensor):
            return {_TENSOR: replaced(np.asarray(value.numpy()))}
        if isinstance(value, dict):
            pairs = [[key, replaced(part)] for key, part in value.items()]
            for name, kind in _DICTS.items():
                if type(value) is kind:
                    return {name: pairs}
            for name, factory in _FACTORIES.items():
                if type(value) is defaultdict and value.default_factory is factory:
                    return {_DEFAULT: [name, pairs]}
            if all(isinstance(key, str) and key not in _NAMES for key in value):
                return dict(pairs)
            return {_PAIRS: pairs}
        if isinstance(value, tuple):
            return {_TUPLE: [replaced(part) for part in value]}
        if isinstance(value, bytes):
            return {_BYTES: value.hex()}
        if isinstance(value, deque):
            return {_DEQUE: [value.maxlen, [replaced(part) for part in value]]}
        for name, kind in _SETS.items():
            if isinstance(value, kind):  # in an order that is the same in every process
                return {name: [replaced(part) for part in sorted(value, key=repr)]}
        return [replaced(part) for part in value] if isinstance(value, list) else value

    text = json.dumps(replaced(values))
    file = io.BytesIO()
    np.savez(file, json=np.frombuffer(text.encode(), np.uint8), **arrays)
    return file.getvalue()


@functools.lru_cache
def _name_of(dtype: np.dtype[Any]) -> str:
    """Return the name, which NumPy makes again each time."""
    return dtype.name


def unpacked(content: bytes, beside: Callable[[Any], NDArray[Any]] | None = None) -> Any:
    """Return the values that `packed` packed.

    Args:
      content: the bytes.
      beside: returns an array that was saved elsewhere.
    """
    with np.load(io.BytesIO(content), allow_pickle=False) as file:

        def put_back(value: dict[str, Any]) -> Any:
            if len(value) == 1 and (name := next(iter(value))) in _MAKERS:
                return _MAKERS[name](value[name])
            if set(value) != {_ARRAY, "dtype"}:
                return value
            place = value[_ARRAY]
            array = file[str(place)] if beside is None or isinstance(place, int) else beside(place)
            if array.dtype.name != value["dtype"]:
                array = array.view(tf.as_dtype(value["dtype"]).as_numpy_dtype)
            return array if array.ndim else array[()]

        return json.loads(file["json"].tobytes(), object_hook=put_back)
