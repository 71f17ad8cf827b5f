"""What a save adds to a loop that has one core to itself, while the writer has another one.

`python -m benchmarks.peers.pinned MEBIBYTES ROUNDS FOLDER` prints a line of JSON for each round: seconds by name.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import tensorflow as tf

from benchmarks.peers.checkpoints import Measured


def copied(state: Measured) -> float:
    """Seconds that the first step after a snapshot takes longer: it copies what it writes to. Nothing is written."""
    before = state.run(1)
    snapshot = state.session.snapshot()
    took = state.run(1)
    del snapshot
    return took - (before + state.run(1)) / 2


def main(mebibytes: int, rounds: int, folder: Path) -> None:
    """Measure and print."""
    loops, *others = sorted(os.sched_getaffinity(0))
    os.sched_setaffinity(0, {loops})  # TensorFlow's threads are made later, and inherit it
    tf.config.threading.set_intra_op_parallelism_threads(1)
    tf.config.threading.set_inter_op_parallelism_threads(1)
    state = Measured(mebibytes, folder)
    state.writer.submit(lambda: os.sched_setaffinity(0, set(others[:1]) or {loops}))
    for _ in range(rounds):
        os.sync()  # what an earlier save left to be written is not to be paid by this one
        step = state.run(10) / 10
        print(json.dumps({"step": step, "copied": copied(state), **state.ours(), **state.to_memory()}), flush=True)
    state.store.memory.clear()


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]), Path(sys.argv[3]))
