"""Calls a Keras model's callbacks, and keeps their memory over a pause."""

from __future__ import annotations

import copy
import inspect
import logging
import traceback
from collections.abc import Mapping, Sequence
from typing import Any

import keras
import numpy as np

from trainerd.checkpoints.contents.python_state import packed
from trainerd.errors import EntryError
from trainerd.job.user_code import called_at_boundary
from trainerd.sessions.keras.callback_memory import (
    Begun,
    Forgotten,
    changed_in,
    give_back,
    memory_of,
    names_changed,
    of_present,
    plain,
    taken,
)
from trainerd.sessions.keras.csv_rows import keep_rows_before, read_rows

log = logging.getLogger(__name__)

_OF_BATCHES = ("on_train_batch_begin", "on_train_batch_end", "on_batch_begin", "on_batch_end")


class Callbacks:
    """Calls a model's callbacks as `fit` does.

    Args:
      callbacks: `keras.callbacks.Callback`s, as they were made.
      model: the model.
      epochs, steps: the params that they get; None if unknown.
      calls: whether this object calls them. If not, only their memory is saved.
      elsewhere: callbacks that this process does not call, since they write files.

    Attributes:
      wants_batches: whether one of them must be called around every batch.
      settings: the arguments that they were made with.

    Raises:
      EntryError: one of them cannot be used.
    """

    def __init__(
        self,
        callbacks: Sequence[Any],
        model: Any,
        *,
        epochs: int | None,
        steps: int | None,
        calls: bool = True,
        elsewhere: Sequence[Any] = (),
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
        self._forgotten = Forgotten(model)
        self._begun = [Begun.of(each, memory_of(each)) for each in self._own]
        self.settings = [[type(each).__name__, copy.deepcopy(_arguments(each))] for each in without_files(self._own)]
        self._model = model
        self._as_made = [(taken(each, memory_of(each)), {*vars(each)}) for each in self._own]
        self.wants_batches = any(map(_wants_batches, [*self._own, *elsewhere]))

    def are_as(self, settings: Any) -> bool:
        """Return whether these callbacks were made with the same arguments as those with such `settings`."""
        mine = {name for name, _ in self.settings}
        theirs = [[name, values] for name, values in settings or () if name in mine]
        if len(theirs) != len(self.settings):
            return False
        found = [  # older checkpoints have all attributes
            [name, {each: values.get(each) for each in arguments}]
            for (name, values), (_, arguments) in zip(theirs, self.settings, strict=True)
        ]
        return packed(found) == packed(self.settings)

    @property
    def for_evaluate(self) -> Any:
        """The callbacks for `model.evaluate`."""
        return self._list

    def call(self, name: str, *arguments: Any, step: int, **options: Any) -> None:
        """Call a method of each of them, in their order.

        Args:
          name: of the method.
          step: the global step, for the message.

        Raises:
          JobError: one raised an error.
        """
        with called_at_boundary(f"a callback's {name}", step, raised_in):
            getattr(self._list, name)(*arguments, **options)

    def rows(self) -> dict[str, int]:
        """Return the number of rows in the files of callbacks that append: those of an earlier training."""
        loggers = [each for each in self._own if isinstance(each, keras.callbacks.CSVLogger) and each.append]
        return {each.filename: max(0, len(read_rows(each)) - 1) for each in loggers}

    def begin(self) -> None:
        """Begin the training: call `on_train_begin` of each."""
        self._model.stop_training = False
        made = [copy.deepcopy(memory_of(each)) for each in self._own]
        self.call("on_train_begin", step=0)
        # Attributes are so at every start. Later changes are remembered.
        self._begun = [Begun.of(each, memory) for each, memory in zip(self._own, made, strict=True)]
        self.warn_of_forgotten()

    def reset(self) -> None:
        """Put each back to how it was made, except what cannot be saved. Files are closed.

        The run goes back while it trains.
        """
        self.pause()
        for each, (values, names) in zip(self._own, self._as_made, strict=True):
            for name in memory_of(each).keys() - names:
                delattr(each, name)
            give_back(each, taken(each, values))  # a copy: the callback changes it, and may be put back once more

    def resume(self, epoch: int, rows: Mapping[str, int]) -> None:
        """Resume the training.

        Args:
          epoch: the epoch in which it resumes, counted from 0.
          rows: what `rows` returned before training began.
        """
        loggers = [each for each in self._own if isinstance(each, keras.callbacks.CSVLogger)]
        for each in loggers:
            keep_rows_before(epoch, each, rows.get(each.filename))
        begins_files = [each for each in loggers if not each.append]
        for each in begins_files:
            each.append = True  # as it begins
        self.begin()
        for each in begins_files:
            each.append = False  # in a later training

    def warn_of_forgotten(self) -> None:
        """Warn of what these callbacks keep and no checkpoint holds."""
        for each in self._own:
            self._forgotten.note_changes(each)

    def pause(self) -> None:
        """Close the files that callbacks close when training ends: the process ends, and the training does not."""
        for each in self._own:
            for kind in (keras.callbacks.CSVLogger, keras.callbacks.TensorBoard):
                if isinstance(each, kind):  # and not what a program's own does at the end
                    kind.on_train_end(each)

    def leave(self) -> None:
        """Leave the callbacks to a later training. Call it before the last save of this one.

        That save has what `on_train_begin` has changed: a start that passes over this training does not call it.
        """
        for each, begun in zip(self._own, self._begun, strict=True):
            names_changed(each).update(begun.at_begin)
            if isinstance(each, keras.callbacks.CSVLogger) and not each.append:
                each.append_header = True  # of the next file

    # ------------------------------------------------------------------ what they remember

    def memory(self) -> list[Any]:
        """Return the attributes of each that this training has changed, or an earlier training with the callback."""
        for each, begun in zip(self._own, self._begun, strict=True):
            self._forgotten.look_again(each, begun.memory)
        return [
            [type(each).__name__, taken(each, changed_in(begun, each))]
            for each, begun in zip(self._own, self._begun, strict=True)
        ]

    def remember(self, memory: Sequence[Any]) -> None:
        """Give each the memory of the one of its class, in their order. Log which are new, and which are gone."""
        added, gone = self.put_back(memory)
        for name in added:
            log.info("the callback %s is new", name, extra={"event": "changed"})
        for name in gone:
            log.info("the callback %s is no longer there", name, extra={"event": "changed"})

    def put_back(self, memory: Sequence[Any], *, has_begun: bool = True) -> tuple[list[str], list[str]]:
        """Give each the memory of the one of its class. Returns the names of the new ones and of the missing ones.

        Args:
          memory: what `memory` returned.
          has_begun: whether `on_train_begin` was called. If not, the state of an object that it makes is left out.
        """
        left, added = list(memory), []
        for each, begun in zip(self._own, self._begun, strict=True):
            name = type(each).__name__
            found = next((entry for entry in left if entry[0] == name), None)
            if found is None:
                added.append(name)
                continue
            left.remove(found)
            names_changed(each).update(found[1])
            remembered = {name: value for name, value in found[1].items() if name not in begun.unsaved}
            remembered = copy.deepcopy(remembered)  # the callback changes it, and it may be asked for once more
            give_back(each, remembered if has_begun else of_present(each, remembered))
        return added, [name for name, _ in left]


def _arguments(callback: Any) -> dict[str, Any]:
    """Return the attributes of a callback that are arguments of its class. Keras changes the sign of `min_delta`."""
    names = {name for kind in type(callback).__mro__[:-1] for name in inspect.signature(kind).parameters}
    found = {name: value for name, value in plain(callback).items() if name in names}
    return found | {name: abs(value) for name, value in found.items() if name == "min_delta"}


def without_files(callbacks: Sequence[Any]) -> list[Any]:
    """Return these callbacks, without those of Keras's that write files."""
    kinds = (keras.callbacks.CSVLogger, keras.callbacks.TensorBoard, keras.callbacks.ModelCheckpoint)
    return [each for each in callbacks if not isinstance(each, kinds)]


def _require_useful(callback: Any) -> None:
    if not isinstance(callback, keras.callbacks.Callback):
        raise EntryError(f"callbacks: {callback!r} is not a keras.callbacks.Callback.")
    if isinstance(callback, keras.callbacks.BackupAndRestore):
        raise EntryError(
            "callbacks: leave BackupAndRestore out. trainerd restores the training, in mid-epoch too, and "
            "BackupAndRestore would then go back to the start of the epoch."
        )


def _wants_batches(callback: Any) -> bool:
    """Return whether a callback must be called around every batch. Some of Keras's do nothing there."""
    kind = type(callback)
    if kind is keras.callbacks.TensorBoard:
        profiles = vars(callback).get("_should_trace", True)  # not public; where it is gone it is asked at each batch
        return bool(callback.update_freq != "epoch" or callback.write_steps_per_second or profiles)
    if kind is keras.callbacks.ModelCheckpoint:
        return bool(callback.save_freq != "epoch")
    base = keras.callbacks.Callback
    return any(name in vars(callback) or getattr(kind, name) is not getattr(base, name) for name in _OF_BATCHES)


def raised_in(error: BaseException) -> str:
    """Return the method and the callback that raised an error, such as "on_epoch_end of the callback Uploads".

    It is "" if none did. Keras calls all callbacks in a loop, and the error does not name the one. An error of
    `evaluate` lacks the frame of that loop.
    """
    for frame, _ in traceback.walk_tb(error.__traceback__):
        callback = frame.f_locals.get("self")
        if isinstance(callback, keras.callbacks.CallbackList):
            callback = frame.f_locals.get("callback")
        if isinstance(callback, keras.callbacks.Callback):
            return f"{frame.f_code.co_name.lstrip('_')} of the callback {type(callback).__name__}"
    return ""


def as_numbers(logs: Mapping[str, Any]) -> dict[str, Any]:
    """Return metrics as `fit` gives them to callbacks: numbers, and arrays for a metric with several."""
    found: dict[str, Any] = {}
    for name, value in logs.items():
        array = np.asarray(value)
        found[name] = array.item() if array.ndim == 0 else array
    return found
