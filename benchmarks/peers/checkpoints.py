"""What a checkpoint costs the loop, for trainerd and for TensorFlow's own: one process, the same variables, in turns.

`python -m benchmarks.peers.checkpoints MEBIBYTES ROUNDS FOLDER` prints a line of JSON for each round: seconds by name.
"""

from __future__ import annotations

import json
import os
import sys
import time
import uuid
from collections.abc import Callable
from pathlib import Path

import numpy as np
import tensorflow as tf

import trainerd
from trainerd.checkpoints import manifest
from trainerd.checkpoints.manifest import About
from trainerd.checkpoints.retention import Policy
from trainerd.checkpoints.store import CheckpointStore
from trainerd.loop.flag import Flag
from trainerd.rundir.paths import RunDirectory
from trainerd.rundir.state import State
from trainerd.sessions.tf2.job_session import FunctionSession
from trainerd.system.threads import Background

PARTS = 8
SECS_PER_MIB = 0.0025  # of training around each save: enough for it to be over


class Measured:
    """A state of so many MiB: weights, and Adam's two slots of each, all of which every step changes."""

    def __init__(self, mebibytes: int, folder: Path) -> None:
        each = mebibytes * 2**20 // 4 // 3 // PARTS
        self.weights = [tf.Variable(tf.random.stateless_normal([each], [1, n]), name=f"w{n}") for n in range(PARTS)]
        # TensorFlow's asynchronous checkpoint does not take Keras's variables, so the slots are TensorFlow's too.
        self.slots = [(tf.Variable(tf.zeros([each])), tf.Variable(tf.zeros([each]))) for _ in range(PARTS)]
        state = {"w": self.weights, "slots": self.slots}
        self.session = FunctionSession(trainerd.Job(self.step, state=state))
        self.session.bind(Flag())
        self.rundir = RunDirectory(folder / "run")
        self.rundir.create()
        State(run_id=uuid.uuid4().hex).write(self.rundir.state)
        self.store = CheckpointStore(self.rundir, policy=Policy(1))
        self.writer = Background("writer")
        self.folder = folder
        self.checkpoint = tf.train.Checkpoint(**state)
        self.run(1)
        per_step = self.run(10) / 10
        self.steps = max(1, round((0.2 + mebibytes * SECS_PER_MIB) / per_step))

    def step(self) -> None:
        """One step of Adam; the gradient costs nothing to find."""
        for weight, (m, v) in zip(self.weights, self.slots, strict=True):
            tf.raw_ops.ResourceApplyAdam(
                var=weight.handle,
                m=m.handle,
                v=v.handle,
                beta1_power=0.5,
                beta2_power=0.5,
                lr=1e-3,
                beta1=0.9,
                beta2=0.999,
                epsilon=1e-7,
                grad=weight.read_value(),
            )

    def run(self, steps: int) -> float:
        """Seconds of so many steps, in the graph."""
        begun = time.perf_counter()
        self.session.run_until(self.session.step + steps)
        return time.perf_counter() - begun

    def added(self, save: Callable[[], None], is_over: Callable[[], bool]) -> float:
        """Seconds that a save adds to the loop: the call, and what the steps take longer until it is over.

        The same steps are run before and after it.
        """
        before = self.run(self.steps)
        begun, runs = time.perf_counter(), 0
        save()
        while runs == 0 or not is_over():
            self.run(self.steps)
            runs += 1
        took = time.perf_counter() - begun
        return took - runs * (before + self.run(self.steps)) / 2

    # ------------------------------------------------------------------ the sides

    def ours(self) -> dict[str, float]:
        """A snapshot, written and made durable in the background, and the one before deleted."""
        seen: dict[str, float] = {}

        def save() -> None:
            begun = time.perf_counter()
            snapshot = self.session.snapshot()
            seen["snapshot"] = time.perf_counter() - begun

            def write() -> None:
                self.store.publish(snapshot, About("bench"))
                seen["over"] = time.perf_counter() - begun

            self.writer.submit(write)

        added = self.added(save, lambda: "over" in seen)
        self.writer.raise_first_error()
        return {"ours": added, **seen}

    def to_memory(self) -> dict[str, float]:
        """A snapshot, written to memory in the background."""
        over: list[float] = []

        def save() -> None:
            begun = time.perf_counter()
            snapshot = self.session.snapshot()

            def write() -> None:
                self.store.write_to_memory(snapshot, About("bench"), lambda size: None)
                over.append(time.perf_counter() - begun)

            self.writer.submit(write)

        added = self.added(save, lambda: bool(over))
        self.writer.raise_first_error()
        return {"to_memory": added, "in_memory": over[0]}

    def asynchronous(self) -> dict[str, float]:
        """TensorFlow's asynchronous checkpoint. It says when it is written, and is not durable then."""
        over: list[bool] = []
        options = tf.train.CheckpointOptions(
            experimental_enable_async_checkpoint=True,
            experimental_write_callbacks=[lambda path: over.append(True)],
        )
        prefix = str(self.folder / "async")
        return {"async": self.added(lambda: self.checkpoint.write(prefix, options), lambda: bool(over))}

    def plain(self) -> dict[str, float]:
        """TensorFlow's `Checkpoint.write`."""
        prefix = str(self.folder / "plain")
        return {"plain": self.added(lambda: self.checkpoint.write(prefix) and None, lambda: True)}

    def quiet(self) -> dict[str, float]:
        """Nothing trains: a publish beside a raw write of as many bytes, a memcpy, and reading with and without us."""
        seen: list[float] = []
        begun = time.perf_counter()
        self.store.publish(
            self.session.snapshot(), About("bench"), lambda saved: seen.append(time.perf_counter() - begun)
        )
        size = sum(path.stat().st_size for path in self.rundir.path.glob("*.data-*"))
        content = np.random.default_rng(1).integers(0, 255, size, np.uint8)
        begun = time.perf_counter()
        with (self.folder / "raw").open("wb", buffering=0) as file:
            view = memoryview(content.data)
            while view:
                view = view[file.write(view) :]
            os.fsync(file.fileno())
        raw = time.perf_counter() - begun
        (self.folder / "raw").unlink()
        target = np.empty_like(content)
        target[:] = 0
        begun = time.perf_counter()
        np.copyto(target, content)
        memcpy = time.perf_counter() - begun
        del content, target
        [step] = self.rundir.steps()
        prefix = self.rundir.prefix(step)
        begun = time.perf_counter()
        self.checkpoint.read(str(prefix)).expect_partial()
        read = time.perf_counter() - begun
        begun = time.perf_counter()
        manifest.verify(manifest.read(self.rundir.manifest(step)), self.rundir.path)
        self.session.restore(prefix)
        verified = time.perf_counter() - begun
        return {"publish": seen[0], "raw": raw, "memcpy": memcpy, "read": read, "verified": verified}


def main(mebibytes: int, rounds: int, folder: Path) -> None:
    """Measure and print."""
    state = Measured(mebibytes, folder)
    for _ in range(rounds):
        seen: dict[str, float] = {}
        for side in (state.plain, state.ours, state.to_memory, state.asynchronous, state.quiet):
            os.sync()  # what the side before left to be written is not to be paid by this one
            seen |= side()
        print(json.dumps(seen), flush=True)
    state.store.memory.clear()


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]), Path(sys.argv[3]))
