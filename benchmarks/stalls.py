"""What a checkpoint costs: the loop, the disk, the next start: stalls."""

from __future__ import annotations

import tempfile
from pathlib import Path

from benchmarks.figures import AT_MOST, Bar, Figure, alone, compared, median
from benchmarks.plan import Plan
from benchmarks.processes import Process

SNAPSHOT_MIB = 512  # the size for which the snapshot itself has a bar


def checkpoints(plan: Plan) -> list[Figure]:
    """Each size in a process of its own, which takes all sides in turns."""
    figures: list[Figure] = []
    for mebibytes in plan.state_mebibytes:
        plan.say(f"a state of {mebibytes} MiB")
        with tempfile.TemporaryDirectory(prefix="trainerd-bench-") as folder:
            figures += _of(mebibytes, plan.checkpoints, Path(folder))
    return figures


def _of(mebibytes: int, rounds: int, folder: Path) -> list[Figure]:
    arguments = ["-m", "benchmarks.peers.checkpoints", str(mebibytes), str(rounds + 1), str(folder)]
    with Process(arguments) as process:
        # The first round warms up: page cache, memory, TensorFlow's own first asynchronous save.
        answers = [process.answer() for _ in range(rounds + 1)][1:]
    seen = {name: [float(answer[name]) for answer in answers] for name in answers[0]}

    def ratio(what: str, ours: str, peer: str, limit: float) -> Figure:
        name = f"{mebibytes} MiB: {what}"
        return compared("checkpoints", name, "s", seen[ours], seen[peer], Bar(AT_MOST, limit))

    snapshot = seen["snapshot"]
    bar = Bar(AT_MOST, 0.02) if mebibytes == SNAPSHOT_MIB else None
    return [
        ratio("loop time added / asynchronous Checkpoint.write", "ours", "async", 0.25),
        ratio("loop time added / Checkpoint.write", "ours", "plain", 1 / 7),
        alone("checkpoints", f"{mebibytes} MiB: snapshot", "s", median(snapshot), snapshot, bar),
        ratio("snapshot / memcpy", "snapshot", "memcpy", 0.2),
        ratio("request to durable / raw write and fsync", "publish", "raw", 1.5),
        ratio("verify and read / Checkpoint.read", "verified", "read", 1.3),
    ]
