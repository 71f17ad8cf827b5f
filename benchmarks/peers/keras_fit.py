"""Keras: `compile` and `fit` of a model of jobs.py. `keras_fit MODEL SETTING ...`, all in one process.

A setting is `steps_per_execution`, and options after commas: `trainerd` for `trainerd.keras.fit`, `bar` for Keras's
bar, `batches` for a callback of each batch, `backup` for BackupAndRestore as it is by default: it saves at each epoch's
end.
"""

from __future__ import annotations

import contextlib
import os
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import keras

import trainerd
from benchmarks.jobs import compiled
from benchmarks.peers.contract import Measure, guessing, serve

FIRST_GUESS = 200


class Stopwatch(keras.callbacks.Callback):  # type: ignore[misc]
    """Times the epoch alone: what `fit` does once, before and after, is not the step's."""

    def on_epoch_begin(self, epoch: int, logs: object = None) -> None:
        self.begun = time.perf_counter()

    def on_epoch_end(self, epoch: int, logs: object = None) -> None:
        self.seconds = time.perf_counter() - self.begun


class _Counts(keras.callbacks.Callback):  # type: ignore[misc]
    """Counts batches."""

    count = 0

    def on_train_batch_end(self, batch: int, logs: object = None) -> None:
        self.count += 1


def measure_of(name: str, setting: str) -> Measure:
    """Return what measures `fit` in a setting, with a model of its own."""
    steps_per_execution, *options = setting.split(",")
    multiple = int(steps_per_execution)
    model, dataset = compiled(name, steps_per_execution=multiple)
    watch, logdir = Stopwatch(), tempfile.mkdtemp()
    backup = [keras.callbacks.BackupAndRestore(tempfile.mkdtemp())] if "backup" in options else []
    callbacks = [*backup, watch, *([_Counts()] if "batches" in options else [])]  # what saves is timed

    def fit(steps: int) -> float:
        # A call builds its step, and a machine may slow down after a rest: the second epoch is timed.
        given: dict[str, Any] = {"steps_per_epoch": steps, "callbacks": callbacks, "verbose": int("bar" in options)}
        with Path(os.devnull).open("w", encoding="utf-8") as nowhere, contextlib.redirect_stdout(nowhere):  # the bar
            if "trainerd" in options:
                trainerd.keras.fit(model, dataset, epochs=2, logdir=logdir, **given)
            else:
                model.fit(dataset, epochs=2, **given)
        return watch.seconds

    return guessing(fit, FIRST_GUESS, multiple)


if __name__ == "__main__":
    serve(*(measure_of(sys.argv[1], setting) for setting in sys.argv[2:]))
