"""The calls of `fit` that a program makes in one run. A new start of the program passes over those that are done."""

from __future__ import annotations

import weakref
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import keras

from trainerd.rundir.paths import RunDirectory
from trainerd.sessions.keras.progress import CallHistory
from trainerd.system.process_wide import process_wide


@dataclass
class Calls:
    """The calls in one run directory by this process.

    Attributes:
      count: how many have ended.
      histories: the results of all calls that the run has completed before its newest one.
    """

    count: int = 0
    histories: list[CallHistory] = field(default_factory=list)
    _model: weakref.ref[Any] | None = None

    def done_before(self, model: Any) -> keras.callbacks.History | None:
        """Return the History of the next call if an earlier process has completed it, and pass over it; else None.

        Args:
          model: the model of the call; None is returned if it is another one than that of the call before.
        """
        if self.count >= len(self.histories) or self._model is None or self._model() is not model:
            return None
        return self.end(model, self.histories)

    def end(self, model: Any, histories: list[CallHistory]) -> keras.callbacks.History:
        """Record that a call has ended, and the results that are known now. Returns its History."""
        self.count += 1
        self.histories, self._model = histories, weakref.ref(model)
        if len(histories) < self.count:  # it has trained
            return model.history
        return _history(model, histories[self.count - 1])


CALLS = process_wide("calls of fit", dict[Path, Calls]())


def calls_in(rundir: Path) -> Calls:
    """Return the calls of this process in a run directory. If that has no checkpoint, there are none."""
    if not RunDirectory(rundir).steps():
        CALLS.pop(rundir, None)
    return CALLS.setdefault(rundir, Calls())


def _history(model: Any, found: CallHistory) -> keras.callbacks.History:
    """Return these results as `fit` returns them, and give them to the model."""
    made = keras.callbacks.History()
    made.set_model(model)
    made.on_train_begin()
    made.epoch.extend(found["epoch"])
    made.history.update(found["history"])
    model.history = made
    return made
