"""The calls of `fit` that a program makes in one run. A new start of the program passes over those that are done."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import keras

from trainerd.checkpoints.contents.kept import restore_kept
from trainerd.checkpoints.manifest import sound
from trainerd.errors import DataError, EntryError
from trainerd.rundir import request_files
from trainerd.rundir.paths import RunDirectory
from trainerd.sessions.keras.call_data import CallData
from trainerd.sessions.keras.job_session import read_callbacks, read_optimizer, read_weights
from trainerd.sessions.keras.progress import CallHistory, names_in, number_of
from trainerd.system.process_wide import process_wide


@dataclass(frozen=True)
class Call:
    """A call of `fit`.

    Attributes:
      model: the model.
      callbacks: its callbacks, as they are given.
      name: the name of the call; None for none.
      params: the arguments of `fit` that a History has.
    """

    model: Any
    callbacks: Any
    name: str | None
    params: Mapping[str, Any]


@dataclass
class Calls:
    """The calls in one run directory by this process. They are known by their names, or by their order.

    Attributes:
      rundir: the run directory.
      count: the number of the next call, from 0.
      step: the step at which the last call has ended; None if none has.
      epochs: the number of epochs of the calls that have ended.
      histories: the results of all calls that the run has completed before its newest one.
      models: the models that have been trained, in the order of their first calls. A checkpoint has all of them.
      names: the names of the calls that have ended.
      accepts_changes: whether this start may pass over calls that have other data now.
    """

    rundir: RunDirectory
    count: int = 0
    step: int | None = None
    epochs: int = 0
    histories: list[CallHistory] = field(default_factory=list)
    models: list[Any] = field(default_factory=list)
    names: list[str] = field(default_factory=list)
    accepts_changes: bool = False
    _is_open: bool = False  # whether a call has begun and has not ended

    def begin(self, call: Call, data: CallData) -> keras.callbacks.History | None:
        """Begin a call. Returns its History if an earlier process has completed it, and the model has its weights.

        After a call that was interrupted, the same call is expected.

        Args:
          call: the call.
          data: its data.

        Raises:
          EntryError: an earlier call of this process has this name; or the call before, of another model, has not
            ended.
          DataError: an earlier process trained another model in this call, or with other data, or gave the call
            another name.
        """
        model, name = call.model, call.name
        is_new = not self._knows(model)
        if is_new and self._is_open:
            raise EntryError(
                f"fit: call {self.count + 1} of this script in {self.rundir.path} was interrupted or has failed, so no "
                "call of another model can follow it. Start the script again; or give each model a `logdir` of its own."
            )
        if name in self.names:
            raise EntryError(f"fit: an earlier call has name={name!r}. Give each call of a run a name of its own.")
        self._is_open = True
        if is_new:
            self.models.append(model)
        self.count = number_of(self.count, name, names_in(self.histories))
        if self.count >= len(self.histories):
            return None
        before = self.histories[self.count].get("model", 0)
        now = self._number_of(model)
        if before != now:
            raise DataError(
                f"call {self.count + 1} of fit in this run trained model {before + 1} of the script, and now it trains "
                f"model {now + 1}. Put the calls back into their order, or use another `logdir`."
            )
        if is_new:
            return None
        data.require_same(self.count, self.histories[self.count], model)
        return self.end(call, self.count, self.histories, self.step)

    def begins_again(self, model: Any) -> bool:
        """Return whether a call with this model is the first one again.

        It is at a prompt, if no call had this model: a cell of a notebook is run again.
        """
        return bool(self.models) and not self._knows(model) and hasattr(sys, "ps1")

    def _knows(self, model: Any) -> bool:
        return any(each is model for each in self.models)

    def end(self, call: Call, number: int, histories: list[CallHistory], step: int | None) -> keras.callbacks.History:
        """Record that a call has ended, with its number, and the results that are known now. Returns its History."""
        model = call.model
        self.count = number + 1
        self.names += [] if call.name is None else [call.name]
        self.step, self.histories, self._is_open = step, histories, False
        self.epochs = sum(len(each["epoch"]) for each in histories[: self.count])
        if len(histories) <= number:  # it has trained
            self.epochs += len(model.history.epoch)
            return model.history
        ended = histories[number]
        self._restore_end(call, number, ended.get("step"))
        made = keras.callbacks.History()
        made.set_model(model)
        made.set_params(call.params)
        made.on_train_begin()
        made.epoch.extend(ended["epoch"])
        made.history.update(ended["history"])
        model.history = made
        return made

    def _restore_end(self, call: Call, number: int, step: int | None) -> None:
        """Leave the model, the callbacks and the kept objects as a call has left them, if its checkpoint is there.

        Code between two calls then sees what it saw when it ran first, and a later call has the same callbacks. If not,
        they are as the newest checkpoint has them, or an earlier call.
        """
        if step is not None and sound(self.rundir.manifest(step)) is not None:
            prefix, model = self.rundir.prefix(step), call.model
            read_weights(prefix, model, self._number_of(model), number)
            read_optimizer(prefix, model, self._number_of(model))
            read_callbacks(prefix, model, call.callbacks)
            restore_kept(prefix)

    def _number_of(self, model: Any) -> int:
        return next(number for number, each in enumerate(self.models) if each is model)


CALLS = process_wide("calls of fit", dict[Path, Calls]())


def calls_in(rundir: Path, model: Any) -> Calls:
    """Return the calls of this process in a run directory, for a call with this model.

    They restart if it holds no checkpoint, or if the model begins them again.
    """
    place = RunDirectory(rundir)
    calls = CALLS.get(rundir)
    if calls is None or not place.steps() or calls.begins_again(model):
        calls = CALLS[rundir] = Calls(place)
    calls.accepts_changes = calls.accepts_changes or request_files.is_asked(place.accept_changes)
    return calls
