"""From a signal to the boundary it asked for: signal."""

from __future__ import annotations

import random
import signal
import time

from benchmarks.figures import AT_MOST, Bar, Figure, alone, median, percentile
from benchmarks.plan import Plan
from benchmarks.processes import Process

# Signals come at random moments of the loop, and far enough apart that each finds it running.
_BETWEEN_SECS = (0.005, 0.05)


def signal_to_boundary(plan: Plan) -> list[Figure]:
    """From `os.kill` here to the boundary there: percentiles of each round of signals, and the median of the rounds."""
    moments = random.Random(1)
    with Process(["-m", "benchmarks.peers.boundary"]) as process:
        process.answer()
        rounds = [_round(process, plan.signals, moments) for _ in range(plan.signal_rounds)]
        process.pause()
    note = f"{plan.signal_rounds} x {plan.signals} signals"
    return [
        _figure("p50", [percentile(samples, 50) for samples in rounds], None, note),
        _figure("p99", [percentile(samples, 99) for samples in rounds], Bar(AT_MOST, 20), note),
    ]


def _round(process: Process, signals: int, moments: random.Random) -> list[float]:
    """The milliseconds from each signal to its boundary."""
    samples = []
    for _ in range(signals):
        time.sleep(moments.uniform(*_BETWEEN_SECS))
        sent = time.monotonic_ns()
        process.send(signal.SIGUSR1)
        samples.append((process.answer()["at"] - sent) / 1e6)
    return samples


def _figure(which: str, values: list[float], bar: Bar | None, note: str) -> Figure:
    return alone("signal", f"signal to boundary, {which}", "ms", median(values), values, bar, note=note)
