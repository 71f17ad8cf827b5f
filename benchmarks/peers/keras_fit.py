"""Keras: `compile` and `fit` of a model of jobs.py. `keras_fit MODEL STEPS_PER_EXECUTION`."""

from __future__ import annotations

import sys
import time

import keras

from benchmarks.jobs import compiled
from benchmarks.peers.contract import serve

FIRST_GUESS = 200


class _Stopwatch(keras.callbacks.Callback):  # type: ignore[misc]
    """Times the epoch alone: what `fit` does once, before and after, is not the step's."""

    def on_epoch_begin(self, epoch: int, logs: object = None) -> None:
        self.begun = time.perf_counter()

    def on_epoch_end(self, epoch: int, logs: object = None) -> None:
        self.seconds = time.perf_counter() - self.begun


def main(name: str, steps_per_execution: int) -> None:
    """Serve `fit`. It has to be told its steps beforehand, so the last rate says how many fill the time."""
    model, dataset = compiled(name, steps_per_execution=steps_per_execution)
    watch = _Stopwatch()

    def fit(steps: int) -> float:
        model.fit(dataset, epochs=1, steps_per_epoch=steps, verbose=0, callbacks=[watch])
        return steps / watch.seconds

    fit(FIRST_GUESS)
    rate = fit(FIRST_GUESS)

    def measure(seconds: float) -> tuple[int, float]:
        nonlocal rate
        executions = max(1, round(seconds * rate / steps_per_execution))
        rate = fit(executions * steps_per_execution)
        return executions * steps_per_execution, watch.seconds

    serve(measure)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
