"""The bare loop: the job's own step, as a `tf.function`, called from Python. `bare MODULE:ATTRIBUTE`."""

from __future__ import annotations

import os
import sys
from importlib import import_module
from typing import Any

import tensorflow as tf

from benchmarks import jobs
from benchmarks.peers.contract import serve, stepping


def main(entry: str) -> None:
    """Serve one job."""
    facts: dict[str, Any] = {}
    if entry == "benchmarks.jobs:fifty_ms":
        facts["inversions"] = jobs.calibrated()
        os.environ[jobs.INVERSIONS] = str(facts["inversions"])
    module, _, attribute = entry.partition(":")
    job = getattr(import_module(module), attribute)()
    step = tf.function(job.train_step)
    if job.dataset is None:
        serve(stepping(step), **facts)
    else:
        batches = iter(job.dataset)
        serve(stepping(lambda: step(next(batches))), **facts)


if __name__ == "__main__":
    main(sys.argv[1])
