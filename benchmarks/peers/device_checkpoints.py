"""A snapshot and its checkpoint, of a model on two devices and of the same on one: in one process, in turns.

`python -m benchmarks.peers.device_checkpoints UNITS ROUNDS FOLDER` prints a line of JSON for each round.
"""

from __future__ import annotations

import contextlib
import json
import os
import sys
import time
from pathlib import Path

import keras
import tensorflow as tf

import trainerd
from benchmarks.two_devices import DEVICES
from trainerd.checkpoints.manifest import About
from trainerd.checkpoints.retention import Policy
from trainerd.checkpoints.store import CheckpointStore
from trainerd.loop.flag import Flag
from trainerd.rundir.paths import RunDirectory
from trainerd.sessions.keras.job_session import KerasJobSession


class Measured:
    """A model with Adam and the statistics of a BatchNormalization, as a KerasJob.

    Args:
      units: of its two large layers.
      folder: where its checkpoints are.
      strategy: of its devices; None for one.
    """

    def __init__(self, units: int, folder: Path, strategy: tf.distribute.Strategy | None) -> None:
        with contextlib.nullcontext() if strategy is None else strategy.scope():
            layers = [keras.layers.Dense(units), keras.layers.BatchNormalization(), keras.layers.Dense(units)]
            model = keras.Sequential([keras.Input((units,)), *layers])
            model.compile("adam", "mse")
        data = tf.data.Dataset.from_tensors((tf.ones([8, units]), tf.ones([8, units]))).repeat()
        self.session = KerasJobSession(trainerd.KerasJob(model, data, steps_per_epoch=10**6))
        self.session.bind(Flag())
        rundir = RunDirectory(folder)
        rundir.create()
        self.store = CheckpointStore(rundir, policy=Policy(1))

    def measure(self) -> float:
        """Return the seconds of a snapshot and its checkpoint, after a step that writes to all variables."""
        self.session.run_until(self.session.step + 1)
        os.sync()
        begun = time.perf_counter()
        self.store.publish(self.session.snapshot("auto"), About("bench"))
        return time.perf_counter() - begun


def main(units: int, rounds: int, folder: Path) -> None:
    """Measure and print."""
    one = Measured(units, folder / "one", None)
    two = Measured(units, folder / "two", tf.distribute.MirroredStrategy(DEVICES))
    for number in range(rounds):
        sides = [("one", one), ("two", two)]
        seen = {name: side.measure() for name, side in (sides if number % 2 else reversed(sides))}
        print(json.dumps(seen), flush=True)


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]), Path(sys.argv[3]))
