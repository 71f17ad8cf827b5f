"""What a checkpoint costs: the loop, the disk, the next start: stalls."""

from __future__ import annotations

import tempfile
from pathlib import Path

from benchmarks.figures import AT_MOST, Bar, Figure, alone, compared, median
from benchmarks.plan import Plan
from benchmarks.processes import Process

SNAPSHOT_MIB = 512  # the size for which the snapshot itself has a bar
LOST = {64: 5.0, 512: 20.0}  # seconds that a SIGKILL may lose, by the mebibytes of the state
DEVICES_UNITS = 2048  # 96 MiB with the slots of Adam


def checkpoints(plan: Plan) -> list[Figure]:
    """Each size in a process of its own, which takes all sides in turns."""
    figures: list[Figure] = []
    for mebibytes in plan.state_mebibytes:
        plan.say(f"a state of {mebibytes} MiB")
        with tempfile.TemporaryDirectory(prefix="trainerd-bench-") as folder:
            figures += _of(mebibytes, plan.checkpoints, Path(folder))
    return [
        *figures,
        *_pinned(min(SNAPSHOT_MIB, plan.state_mebibytes[-1]), plan.checkpoints),
        *_frozen(plan.checkpoints),
    ]


def _pinned(mebibytes: int, rounds: int) -> list[Figure]:
    """Save a state while the loop has one core to itself, and the writer another."""
    with tempfile.TemporaryDirectory(prefix="trainerd-bench-") as folder:
        arguments = ["-m", "benchmarks.peers.pinned", str(mebibytes), str(rounds + 1), folder]
        with Process(arguments) as process:
            answers = [process.answer() for _ in range(rounds + 1)][1:]  # the first one warms up
    added, copied = ([float(answer[name]) for answer in answers] for name in ("ours", "copied"))
    name = f"{mebibytes} MiB, a core for the loop and one for the writer: "
    return [
        alone("checkpoints", f"{name}loop time added", "s", median(added), added, Bar(AT_MOST, 0.005)),
        alone("checkpoints", f"{name}the step after a snapshot takes longer by", "s", median(copied), copied, None),
    ]


def _frozen(rounds: int) -> list[Figure]:
    """Save a state of which eight ninths never change, beside the rest alone, and beside one that changes wholly."""
    with (
        tempfile.TemporaryDirectory(prefix="trainerd-bench-") as folder,
        Process(["-m", "benchmarks.peers.frozen", str(rounds), folder]) as process,
    ):
        answers = [process.answer() for _ in range(rounds)]
    frozen, trained, full = ([float(answer[name]) for answer in answers] for name in ("frozen", "trained", "full"))
    return [
        compared("checkpoints", "frozen backbone: save / of the rest alone", "s", frozen, trained, Bar(AT_MOST, 1.2)),
        compared("checkpoints", "frozen backbone: save / of all", "s", frozen, full),
    ]


def device_checkpoints(rounds: int) -> Figure:
    """Measure a snapshot and its checkpoint on two logical devices, beside one."""
    with tempfile.TemporaryDirectory(prefix="trainerd-bench-") as folder:
        arguments = ["-m", "benchmarks.peers.device_checkpoints", str(DEVICES_UNITS), str(rounds + 1), folder]
        with Process(arguments) as process:
            answers = [process.answer() for _ in range(rounds + 1)][1:]  # the first one warms up
    one, two = ([float(answer[name]) for answer in answers] for name in ("one", "two"))
    return compared("two_devices", "snapshot and checkpoint, two devices / one", "s", two, one, Bar(AT_MOST, 1.2))


def _in_memory(mebibytes: int, seen: dict[str, list[float]]) -> list[Figure]:
    """Return what a save to memory adds to the loop, and the most that a SIGKILL loses at a cost of 1 % of the time."""
    added = seen["to_memory"]
    lost = [max(1.0, cost / 0.01) + took for cost, took in zip(added, seen["in_memory"], strict=True)]
    limit = LOST.get(mebibytes)
    bar = None if limit is None else Bar(AT_MOST, limit)
    return [
        compared("checkpoints", f"{mebibytes} MiB: loop time added, to memory / to disk", "s", added, seen["ours"]),
        alone("checkpoints", f"{mebibytes} MiB: lost by a SIGKILL at most", "s", median(lost), lost, bar),
    ]


def _of(mebibytes: int, rounds: int, folder: Path) -> list[Figure]:
    arguments = ["-m", "benchmarks.peers.checkpoints", str(mebibytes), str(rounds + 1), str(folder)]
    with Process(arguments) as process:
        # The first round warms up: page cache, memory, TensorFlow's own first asynchronous save.
        answers = [process.answer() for _ in range(rounds + 1)][1:]
    seen = {name: [float(answer[name]) for answer in answers] for name in answers[0]}

    def ratio(what: str, ours: str, peer: str, limit: float | None) -> Figure:
        name, bar = f"{mebibytes} MiB: {what}", None if limit is None else Bar(AT_MOST, limit)
        return compared("checkpoints", name, "s", seen[ours], seen[peer], bar)

    snapshot = seen["snapshot"]
    has_bar = mebibytes == SNAPSHOT_MIB  # of a small state the memcpy takes as long as calling Python does
    return [
        ratio("loop time added / asynchronous Checkpoint.write", "ours", "async", 0.25),
        *_in_memory(mebibytes, seen),
        ratio("loop time added / Checkpoint.write", "ours", "plain", 1 / 7),
        alone(
            "checkpoints",
            f"{mebibytes} MiB: snapshot",
            "s",
            median(snapshot),
            snapshot,
            Bar(AT_MOST, 0.02) if has_bar else None,
        ),
        ratio("snapshot / memcpy", "snapshot", "memcpy", 0.2 if has_bar else None),
        ratio("request to durable / raw write and fsync", "publish", "raw", 1.5),
        ratio("verify and read / Checkpoint.read", "verified", "read", 1.3),
    ]
