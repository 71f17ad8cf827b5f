"""From a signal to the boundary it asked for: signal."""

from __future__ import annotations

import random
import signal
import time

from benchmarks.figures import AT_MOST, Bar, Figure, alone, percentile
from benchmarks.plan import Plan
from benchmarks.processes import Process

# Signals come at random moments of the loop, and far enough apart that each finds it running.
_BETWEEN_SECS = (0.005, 0.05)


def signal_to_boundary(plan: Plan) -> list[Figure]:
    """From `os.kill` here to the boundary there."""
    moments = random.Random(1)
    samples = []
    with Process(["-m", "benchmarks.peers.boundary"]) as process:
        process.answer()
        for _ in range(plan.signals):
            time.sleep(moments.uniform(*_BETWEEN_SECS))
            sent = time.monotonic_ns()
            process.send(signal.SIGUSR1)
            samples.append((process.answer()["at"] - sent) / 1e6)
        process.pause()
    p50, p99 = percentile(samples, 50), percentile(samples, 99)
    note = f"{plan.signals} signals"
    return [
        alone("signal", "signal to boundary, p50", "ms", p50, samples, None, note=note),
        alone("signal", "signal to boundary, p99", "ms", p99, samples, Bar(AT_MOST, 20), note=note),
    ]
