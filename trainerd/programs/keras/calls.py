"""The calls of `fit` that a program makes in one run. A new start of the program passes over those that are done."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import keras

from trainerd.errors import DataError
from trainerd.rundir.paths import RunDirectory
from trainerd.sessions.keras.progress import CallHistory
from trainerd.system.process_wide import process_wide


@dataclass
class Calls:
    """The calls in one run directory by this process. They are known by their order.

    Attributes:
      count: how many have ended.
      step: the step at which the last of them has ended; None if none has.
      histories: the results of all calls that the run has completed before its newest one.
      models: the models that have been trained, in the order of their first calls. A checkpoint has all of them.
    """

    count: int = 0
    step: int | None = None
    histories: list[CallHistory] = field(default_factory=list)
    models: list[Any] = field(default_factory=list)
    _is_open: bool = False  # whether a call has begun and has not ended

    def begin(self, model: Any, params: Mapping[str, Any]) -> keras.callbacks.History | None:
        """Begin a call. Returns its History if an earlier process has completed it, and the model has its weights.

        After a call that was interrupted, the same call is expected. At a prompt, or after an interruption, another
        model is the first one again: a cell of a notebook is run again.

        Args:
          model: the model.
          params: the arguments of `fit` that a History has.

        Raises:
          DataError: an earlier process trained another model in this call.
        """
        is_new = not any(each is model for each in self.models)
        if is_new and self.models and (self._is_open or hasattr(sys, "ps1")):
            self.count, self.step, self.histories, self.models = 0, None, [], []
        self._is_open = True
        if is_new:
            self.models.append(model)
        if self.count >= len(self.histories):
            return None
        before = self.histories[self.count].get("model", 0)
        now = next(number for number, each in enumerate(self.models) if each is model)
        if before != now:
            raise DataError(
                f"call {self.count + 1} of fit in this run trained model {before + 1} of the script, and now it trains "
                f"model {now + 1}. Put the calls back into their order, or use another `logdir`."
            )
        return None if is_new else self.end(model, params, self.histories, self.step)

    def end(
        self, model: Any, params: Mapping[str, Any], histories: list[CallHistory], step: int | None
    ) -> keras.callbacks.History:
        """Record that a call has ended, and the results that are known now. Returns its History."""
        self.count += 1
        self.step, self.histories, self._is_open = step, histories, False
        if len(histories) < self.count:  # it has trained
            return model.history
        made = keras.callbacks.History()
        made.set_model(model)
        made.set_params(params)
        made.on_train_begin()
        made.epoch.extend(histories[self.count - 1]["epoch"])
        made.history.update(histories[self.count - 1]["history"])
        model.history = made
        return made


CALLS = process_wide("calls of fit", dict[Path, Calls]())


def calls_in(rundir: Path) -> Calls:
    """Return the calls of this process in a run directory. They restart if it holds no checkpoint."""
    if not RunDirectory(rundir).steps():
        CALLS.pop(rundir, None)
    return CALLS.setdefault(rundir, Calls())
