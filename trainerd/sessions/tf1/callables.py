"""`Session.run` at the cost of a function call: repeated fetches are prepared once.

`Session.make_callable` is the public way, and takes what `Session.run` takes. The most frequent fetches, tensors and
operations in lists, tuples and dicts, use what TensorFlow itself builds such callables of: that is a third faster
again, since the session does not look up its executor by names at each call. tests/tensorflow/test_internals.py
names the versions that have it.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any, Generic, TypeVar

import numpy as np
import tensorflow as tf
from tensorflow.core.protobuf import config_pb2

tf1 = tf.compat.v1


class Callables:
    """The callables of one session, by what they fetch.

    Args:
      session: a `tf.compat.v1.Session`, whose graph does not change any more.
      seen: called once with each new kind of fetches and the callable for it; returns the callable to use.
    """

    def __init__(self, session: Any, seen: Callable[[Any, Callable[[], Any]], Callable[[], Any]]) -> None:
        self._session = session
        self._seen = seen
        self._made: Remembered[Callable[[], Any]] = Remembered()

    def run(self, fetches: Any) -> Any:
        """Run what `Session.run(fetches)` would run, and return what it would return.

        Raises:
          what `Session.run` raises.
        """
        call = self._made.get(fetches, self._make)
        try:
            return call()
        except tf.errors.OpError as error:
            if "Session has been closed" in error.message:
                raise RuntimeError("Attempted to use a closed Session.") from None
            return self._session._do_call(_raising(error))  # with the op, and where the program made it

    def _make(self, fetches: Any) -> Callable[[], Any]:
        return self._seen(fetches, prepared(self._session, fetches))


def prepared(session: Any, fetches: Any) -> Callable[[], Any]:
    """Return a callable that runs what `session.run(fetches)` would run, and returns what it would return.

    Args:
      session: a `tf.compat.v1.Session`, whose graph does not change any more.
      fetches: as for `Session.run`.

    Raises:
      what `Session.run` raises for wrong fetches.
    """
    public: Callable[[], Any] = tf1.Session.make_callable(session, fetches)  # it checks them, and says what is wrong
    tensors: dict[str, int] = {}
    operations: dict[str, None] = {}
    try:
        rebuild = _plan(session.graph, fetches, tensors, operations)
    except _OtherError:
        return public
    if not tensors and not operations:
        return lambda: rebuild([])
    options = config_pb2.CallableOptions(fetch=list(tensors), target=list(operations))
    try:
        run = session._make_callable_from_options(options)
    except tf.errors.UnimplementedError:  # a session of another kind, over the network
        return public
    return lambda: rebuild(run())


def op_of(session: Any, error: tf.errors.OpError) -> Any:
    """Return the operation that raised an error in a session; None if the error names none.

    TensorFlow's callables leave it out; its name is in the message, where `Session.run` finds it too.
    """
    if error.op is None:
        try:
            session._do_call(_raising(error))
        except tf.errors.OpError as named:
            return named.op
    return error.op


def _raising(error: Exception) -> Callable[[], Any]:
    def fail() -> Any:
        raise error

    return fail


class _OtherError(Exception):
    """Fetches that are left to TensorFlow."""


def _plan(graph: Any, fetches: Any, tensors: dict[str, int], operations: dict[str, None]) -> Callable[[Any], Any]:
    """Note the tensors and operations of a structure. Returns a function from the tensors' values to the structure."""
    kind = type(fetches)
    if kind is list or kind is tuple:
        parts = [_plan(graph, part, tensors, operations) for part in fetches]
        if kind is list:
            return lambda values: [part(values) for part in parts]
        return lambda values: tuple(part(values) for part in parts)
    if kind is dict:
        named = [(name, _plan(graph, part, tensors, operations)) for name, part in fetches.items()]
        return lambda values: {name: part(values) for name, part in named}
    if not isinstance(fetches, str | tf.Tensor | tf.Operation | tf.Variable):  # others may have values of their own
        raise _OtherError
    try:
        element = graph.as_graph_element(fetches)
    except (TypeError, ValueError, KeyError):
        raise _OtherError from None
    if isinstance(element, tf.Operation):
        operations[element.name] = None
        return lambda values: None
    if element.op.type.startswith("GetSessionHandle"):
        raise _OtherError
    return _taking(tensors.setdefault(element.name, len(tensors)), element)


def _taking(place: int, tensor: Any) -> Callable[[Any], Any]:
    """Return a function that takes a tensor's value from the list.

    An array is copied, as `Session.run` does: it shares the tensor's memory, which may be that of a variable, and would
    change with the next step.
    """
    if tensor.shape.rank == 0:
        return operator.itemgetter(place)

    def take(values: Any) -> Any:
        value = values[place]
        return value.copy() if type(value) is np.ndarray else value

    return take


Found = TypeVar("Found")


LIMIT = 1000  # kinds of fetches that are kept: who makes new ones all the time gains nothing


_LEAVES: set[type] = set()  # the types of tensors, operations and variables that were seen


class Remembered(Generic[Found]):
    """Remembers a result for fetches, by their structure and the identity of the objects in it."""

    def __init__(self) -> None:
        self._kept: dict[Any, tuple[Found, Any]] = {}

    def get(self, fetches: Any, find: Callable[[Any], Found]) -> Found:
        """Return the result of `find` for these fetches. It is called once, unless the content of the fetches is
        unknown."""
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
    """Fetches hold an object of unknown content."""


def _key(fetches: Any) -> Any:
    """Return a key that identifies fetches."""
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
    """Return a copy of the structure, with the same objects."""
    if isinstance(fetches, list | tuple):
        return [_copied(part) for part in fetches]
    if isinstance(fetches, dict):
        return [_copied(part) for part in fetches.values()]
    return fetches
