"""A Keras model's callbacks: when they are called, and what they remember over a pause."""

from __future__ import annotations

import copy
import csv
import inspect
import io
import itertools
import logging
from collections import Counter, OrderedDict, defaultdict, deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from trainerd.checkpoints.contents.python_state import is_plain
from trainerd.errors import EntryError, JobError
from trainerd.job.user_code import FAILURES, job_traceback
from trainerd.system import durable_files
from trainerd.system.fork import ended_in_children

log = logging.getLogger(__name__)

_OF_BATCHES = ("on_train_batch_begin", "on_train_batch_end", "on_batch_begin", "on_batch_end")
_KERAS_OWN = {each for each in vars(keras.callbacks).values() if isinstance(each, type)} - {keras.callbacks.Callback}
_NOT_THEIRS = {"params", "validation_data"}


@dataclass(frozen=True)
class Moment:
    """What callbacks are at a moment.

    Attributes:
      memory: what they remember.
      states: of each, all of it that can be saved, and the names of all that it has.
    """

    memory: list[Any]
    states: list[tuple[dict[str, Any], set[str]]]


class Callbacks:
    """Calls a model's callbacks as `fit` does.

    Args:
      callbacks: `keras.callbacks.Callback`s, as they were made.
      model: the model.
      epochs, steps: what they are told of the training; None where it is not known.
      calls: whether they are called from here; False where only their memory is looked after.

    Attributes:
      wants_batches: whether one of them must be called around every batch.
      settings: what they were made with.

    Raises:
      EntryError: one of them cannot be used.
    """

    def __init__(
        self, callbacks: Sequence[Any], model: Any, *, epochs: int | None, steps: int | None, calls: bool = True
    ) -> None:
        own = [each for each in callbacks if type(each) is not keras.callbacks.ProgbarLogger]  # trainerd shows progress
        for each in own:
            _require_useful(each)
        self._own = own
        if calls:
            self._list = keras.callbacks.CallbackList(
                own, add_history=True, model=model, verbose=0, epochs=epochs, steps=steps
            )
            self._own = list(self._list.callbacks)
        self._told: set[tuple[int, str]] = set()
        self._known = [set[str]() for _ in self._own]  # names of what was put back
        self._look()
        self.settings = [[type(each).__name__, copy.deepcopy(_plain(each))] for each in self._own]
        self._model = model
        self.wants_batches = any(map(_wants_batches, self._own))

    @property
    def for_evaluate(self) -> Any:
        """What `model.evaluate` takes."""
        return self._list

    def call(self, name: str, *arguments: Any, step: int, **options: Any) -> None:
        """Call a method of each of them, in their order.

        Args:
          name: of the method.
          step: the global step, for the message.

        Raises:
          JobError: one raised an error.
        """
        try:
            with ended_in_children():
                getattr(self._list, name)(*arguments, **options)
        except FAILURES as error:
            message = f"a callback's {name} failed after step {step}"
            raise JobError(message, step=step, sound=True, details=job_traceback(error)) from error

    def rows(self) -> dict[str, int]:
        """How many rows there are in the files of those that append to them: of an earlier training."""
        loggers = [each for each in self._own if isinstance(each, keras.callbacks.CSVLogger) and each.append]
        return {each.filename: max(0, len(_rows(each)) - 1) for each in loggers}

    def begin(self) -> None:
        """Training begins."""
        self._model.stop_training = False
        self.call("on_train_begin", step=0)
        self._look()

    def go_on(self, epoch: int, rows: Mapping[str, int]) -> None:
        """Training goes on.

        Args:
          epoch: in this one, counted from 0.
          rows: what `rows` told before training began.
        """
        for each in self._own:
            if isinstance(each, keras.callbacks.CSVLogger):
                _keep_rows_before(epoch, each, rows.get(each.filename))
        self.begin()

    def _look(self) -> None:
        """Take what they are now for what they are at every start, after on_train_begin: what changes is remembered."""
        self._begun = [copy.deepcopy(_memory(each)) for each in self._own]

    def pause(self) -> None:
        """The process ends, and training does not: those that only close their files at its end do that."""
        for each in self._own:
            for kind in (keras.callbacks.CSVLogger, keras.callbacks.TensorBoard):
                if isinstance(each, kind):  # and not what a program's own does at the end
                    kind.on_train_end(each)

    # ------------------------------------------------------------------ what they remember

    def memory(self) -> list[Any]:
        """What has changed in each since training began, and what was put back then."""
        for each, begun in zip(self._own, self._begun, strict=True):
            self._warn_of_unplain(each, begun)
        return [
            [type(each).__name__, _taken(each, _changed(begun, _memory(each), known))]
            for each, begun, known in zip(self._own, self._begun, self._known, strict=True)
        ]

    def remember(self, memory: Sequence[Any]) -> None:
        """Give each what the one of its kind remembered, in their order. Say which have come and gone."""
        added, gone = self.put_back(memory)
        for name in added:
            log.info("the callback %s is new", name, extra={"event": "changed"})
        for name in gone:
            log.info("the callback %s is no longer there", name, extra={"event": "changed"})

    def put_back(self, memory: Sequence[Any]) -> tuple[list[str], list[str]]:
        """Give each what the one of its kind remembered. Returns the names of those that have come, and gone."""
        left, added = list(memory), []
        for each, known in zip(self._own, self._known, strict=True):
            name = type(each).__name__
            found = next((entry for entry in left if entry[0] == name), None)
            if found is None:
                added.append(name)
                continue
            left.remove(found)
            known.update(found[1])
            remembered = copy.deepcopy(found[1])  # the callback changes it, and it may be asked for once more
            vars(each).update({key: _as_it_is(vars(each).get(key), value) for key, value in remembered.items()})
        return added, [name for name, _ in left]

    def moment(self) -> Moment:
        """What they are now."""
        return Moment(self.memory(), [(_taken(each, _memory(each)), {*vars(each)}) for each in self._own])

    def go_back(self, moment: Moment) -> None:
        """Have each as it was at a moment; what cannot be saved stays as it has become."""
        for each, (values, names) in zip(self._own, moment.states, strict=True):
            for name in _memory(each).keys() - names:
                delattr(each, name)
            vars(each).update(values)

    def _warn_of_unplain(self, callback: Any, begun: Mapping[str, Any]) -> None:
        """What could be saved when training began, and cannot be now, is told of once; Keras's see to themselves."""
        if any(kind in _KERAS_OWN for kind in type(callback).__mro__):
            return
        for name in begun.keys() - _plain(callback).keys() & vars(callback).keys():
            told = (id(callback), name)
            if told not in self._told:
                self._told.add(told)
                log.warning(
                    "the callback %s has something in %s that cannot be saved, a %s: it begins anew after a pause. "
                    "Numbers, texts, arrays, and lists, dicts and sets of them can be.",
                    type(callback).__name__,
                    name,
                    type(vars(callback)[name]).__name__,
                    extra={"event": "callbacks"},
                )


def without_files(callbacks: Sequence[Any]) -> list[Any]:
    """These callbacks, but for Keras's that write files."""
    kinds = (keras.callbacks.CSVLogger, keras.callbacks.TensorBoard, keras.callbacks.ModelCheckpoint)
    return [each for each in callbacks if not isinstance(each, kinds)]


def _require_useful(callback: Any) -> None:
    if not isinstance(callback, keras.callbacks.Callback):
        raise EntryError(f"callbacks: {callback!r} is no keras.callbacks.Callback.")
    if isinstance(callback, keras.callbacks.BackupAndRestore):
        raise EntryError(
            "callbacks: leave BackupAndRestore out. trainerd saves and restores the training, in mid-epoch too, and "
            "BackupAndRestore would put back the state of an epoch's beginning after it."
        )


def _wants_batches(callback: Any) -> bool:
    """Whether a callback must be called around every batch. Some of Keras's are, and do nothing then."""
    kind = type(callback)
    if kind is keras.callbacks.TensorBoard:
        profiles = vars(callback).get("_should_trace", True)  # not public; where it is gone it is asked at each batch
        return bool(callback.update_freq != "epoch" or callback.write_steps_per_second or profiles)
    if kind is keras.callbacks.ModelCheckpoint:
        return bool(callback.save_freq != "epoch")
    base = keras.callbacks.Callback
    return any(name in vars(callback) or getattr(kind, name) is not getattr(base, name) for name in _OF_BATCHES)


def _plain(callback: Any) -> dict[str, Any]:
    """What of a callback can be saved: numbers, texts and arrays."""
    return {name: value for name, value in vars(callback).items() if name not in _NOT_THEIRS and is_plain(value)}


def _memory(callback: Any) -> dict[str, Any]:
    """What of a callback is to be saved: not what Keras's own take as arguments.

    Those are settings, which a person may change between two starts; and some of Keras's derive others from them at
    the first epoch, min_delta's sign for one.
    """
    settings = {
        name
        for kind in type(callback).__mro__
        if kind.__module__.startswith("keras.")
        for name in inspect.signature(kind).parameters
    }
    return {name: value for name, value in _plain(callback).items() if name not in settings}


def _changed(begun: Mapping[str, Any], now: Mapping[str, Any], known: set[str]) -> dict[str, Any]:
    """What is not as it was, and what is `known` to have changed before."""
    changed = (name for name, value in now.items() if name not in begun or not _equal(begun[name], value))
    return {name: now[name] for name in sorted({*changed, *known & now.keys()})}


def _taken(callback: Any, values: dict[str, Any]) -> dict[str, Any]:
    """These values, as they are now: one that is somebody's own may change arrays where they are."""
    copied: dict[str, Any] = _copied(values) if type(callback) in _KERAS_OWN else copy.deepcopy(values)
    return copied


def _copied(value: Any) -> Any:
    """The same, in lists and dicts that a callback does not change; Keras's own replace arrays, which are large."""
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


def _as_it_is(present: Any, value: Any) -> Any:
    """What was remembered, as dicts and tuples of the same kinds as those that are there."""
    if isinstance(present, defaultdict) and isinstance(value, dict):
        parts = {key: _as_it_is(_default(present, key, part), part) for key, part in value.items()}
        return defaultdict(present.default_factory, parts)
    if isinstance(value, dict) and isinstance(present, dict):
        kind = type(present if type(present) in (OrderedDict, Counter) and type(value) is dict else value)
        parts = {key: _as_it_is(present.get(key), part) for key, part in value.items()}
        return kind(parts) if kind in (OrderedDict, Counter) else parts if kind is dict else value
    if isinstance(value, list) and isinstance(present, list):
        return [_as_it_is(old, part) for old, part in itertools.zip_longest(present, value)][: len(value)]
    fields = getattr(present, "_fields", None)
    if isinstance(value, tuple) and isinstance(fields, tuple) and len(value) == len(fields):  # a namedtuple
        return type(present)(*value)
    return value


def _default(present: Any, key: Any, value: Any) -> Any:
    """What a defaultdict has, or would make, in the place of a value that may be of a kind of its own."""
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


def _keep_rows_before(epoch: int, logger: Any, earlier: int | None) -> None:
    """Have a CSVLogger go on with its file: the rows of epochs that will be trained again are taken off its end.

    Args:
      epoch: the one that goes on.
      logger: whose.
      earlier: how many rows are those of an earlier training; None where that is not known.
    """
    appends, logger.append = logger.append, True
    path = Path(logger.filename)
    if not path.exists() or (appends and earlier is None and epoch == 0):
        return
    rows = _rows(logger)
    earlier = earlier if earlier is not None and len(rows) > earlier else 0  # it may have been emptied since
    if rows and rows[0][:1] != ["epoch"]:  # a program's own, of another form
        return
    while len(rows) > 1 + earlier and not _is_before(epoch, rows[-1]):
        rows.pop()
    kept = io.StringIO()
    csv.writer(kept, delimiter=logger.sep).writerows(rows)
    durable_files.write_atomic(path, kept.getvalue().encode())


def _rows(logger: Any) -> list[list[str]]:
    """What is in the file of a CSVLogger, its head first; nothing where there is none."""
    path = Path(logger.filename)
    if not path.exists():
        return []
    with path.open(newline="") as file:
        return list(csv.reader(file, delimiter=logger.sep))


def _is_before(epoch: int, row: Sequence[str]) -> bool:
    try:
        return int(row[0]) < epoch
    except (IndexError, ValueError):  # a row that was cut short
        return False


def as_numbers(logs: Mapping[str, Any]) -> dict[str, Any]:
    """What metrics gave, as `fit` hands it to callbacks: numbers, and arrays where a metric has several."""
    found: dict[str, Any] = {}
    for name, value in logs.items():
        array = np.asarray(value)
        found[name] = array.item() if array.ndim == 0 else array
    return found
