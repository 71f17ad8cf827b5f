"""The stages of a dataset that come to the end of what is below them before they have given all.

A `shuffle` below such a stage has lost its count of epochs by then, if a stage has released its iterator: see
`shuffle_order`. The tables were found by trying, and tests/tensorflow/test_shuffles.py tries them.
"""

from __future__ import annotations

from collections.abc import Iterable

# What runs ahead of what it gives: these, and `map`, which TensorFlow parallelizes by itself.
_RUN_AHEAD = {"Prefetch", "ParallelMap", "MapAndBatch", "ParallelBatch", "ParallelInterleave"}
# What comes to the end of what is below it before its own.
_ENDS_EARLY = _RUN_AHEAD | {"Shuffle", "Concatenate", "Interleave", "DirectedInterleave"}
# What keeps the iterator below it at its end. Every other stage lets go of it.
_HOLD_ON = _RUN_AHEAD | {
    "Map",
    "Interleave",
    "Cache",
    "Scan",
    "Unique",
    "GroupByWindow",
    "AssertCardinality",
    "Options",
}
_BATCHES = {"Batch", "PaddedBatch", "Window", "Rebatch"}


def ends_early(stages: Iterable[tuple[str, bool]], maps_run_ahead: bool = True) -> bool:
    """Return whether one of the stages ends early, and it or one below it has released what is below.

    Args:
      stages: from a shuffle upwards, each with whether its last batch may be smaller, if it is one that batches.
      maps_run_ahead: whether TensorFlow parallelizes `map`.
    """
    is_let_go = False
    for name, may_end_smaller in stages:
        is_let_go = is_let_go or name not in _HOLD_ON
        runs_ahead = name in _ENDS_EARLY or (name == "Map" and maps_run_ahead)
        if is_let_go and (runs_ahead or (name in _BATCHES and may_end_smaller)):
            return True
    return False
