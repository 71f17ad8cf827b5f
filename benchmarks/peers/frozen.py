"""What a save costs if a large part of the state does not change, beside a save of the rest alone and of all.

`python -m benchmarks.peers.frozen ROUNDS FOLDER` prints a line of JSON for each round: seconds by name.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import tensorflow as tf

import trainerd
from trainerd.checkpoints.manifest import About
from trainerd.checkpoints.retention import Policy
from trainerd.checkpoints.store import CheckpointStore
from trainerd.loop.flag import Flag
from trainerd.rundir.paths import RunDirectory
from trainerd.sessions.tf2.job_session import FunctionSession

BACKBONE, HEAD = 16, 2  # variables of 16 MiB
WARM = 4  # saves until it is known what does not change, and two copies of it exist


class Side:
    """A state, of which a step changes some variables."""

    def __init__(self, folder: Path, frozen: int, trained: int) -> None:
        self.variables = [tf.Variable(tf.random.stateless_normal([4 << 20], [1, n])) for n in range(frozen + trained)]
        self._trained: Sequence[tf.Variable] = self.variables[frozen:]
        self._session = FunctionSession(trainerd.Job(self.step, state={"variables": self.variables}))
        self._session.bind(Flag())
        rundir = RunDirectory(folder)
        rundir.create()
        self._store = CheckpointStore(rundir, policy=Policy(2))

    def step(self) -> None:
        """Change what is trained."""
        for variable in self._trained:
            variable.assign_add(variable * 1e-3)

    def save(self) -> float:
        """Train a step and save. The seconds until the checkpoint is durable."""
        self._session.run_until(self._session.step + 1)
        os.sync()
        begun = time.perf_counter()
        over: list[float] = []
        self._store.publish(self._session.snapshot(), About("bench"), lambda saved: over.append(time.perf_counter()))
        return over[0] - begun


def main(rounds: int, folder: Path) -> None:
    """Measure and print."""
    sides = {
        "frozen": Side(folder / "frozen", BACKBONE, HEAD),
        "trained": Side(folder / "trained", 0, HEAD),
        "full": Side(folder / "full", 0, BACKBONE + HEAD),
    }
    for _ in range(WARM):
        for side in sides.values():
            side.save()
    for _ in range(rounds):
        print(json.dumps({name: side.save() for name, side in sides.items()}), flush=True)


if __name__ == "__main__":
    main(int(sys.argv[1]), Path(sys.argv[2]))
