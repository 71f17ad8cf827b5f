"""The stages of a dataset that come to the end of what is below them before they have given all.

A `shuffle` below such a stage has lost its count of epochs by then, if a stage has released its iterator: see
`shuffle_order`. The tables were found by trying. tests/tensorflow/test_shuffles.py and test_graph_inputs.py try most of
them.
"""

from __future__ import annotations

import enum

# What runs ahead of what it gives: these, and `map`, which TensorFlow parallelizes by itself.
_RUN_AHEAD = {"Prefetch", "ParallelMap", "MapAndBatch", "ParallelBatch", "ParallelInterleave"}
# What comes to the end of what is below it before its own.
_ENDS_EARLY = _RUN_AHEAD | {
    "LegacyParallelInterleave",
    "ParseExample",
    "Shuffle",
    "ShuffleAndRepeat",
    "Concatenate",
    "Interleave",
    "DirectedInterleave",
    "GroupByWindow",
}
# What keeps the iterator below it at its end. Every other stage releases it.
_HOLD_ON = _RUN_AHEAD | {
    "Map",
    "Interleave",
    "Scan",
    "Unique",
    "GroupByWindow",
    "AssertCardinality",
    "Options",
}
_BATCHES = {"Batch", "PaddedBatch", "Window", "Rebatch"}


class Count(enum.IntEnum):
    """The state of a shuffle's count of epochs while a stage above it still has elements to give."""

    HELD = 0
    RELEASED = 1  # it is lost if a later stage ends early
    LOST = 2


def above(below: Count, name: str, *, may_end_smaller: bool = True, maps_run_ahead: bool = True) -> Count:
    """Return the state of the count above one more stage.

    Args:
      below: its state below the stage.
      name: the kind of the stage: "Batch".
      may_end_smaller: whether the last batch of a stage that batches may be smaller.
      maps_run_ahead: whether TensorFlow parallelizes `map`.
    """
    if name == "Cache":  # it keeps the order of the first epoch, and begins no other
        return Count.HELD
    found = max(below, Count.HELD if name in _HOLD_ON else Count.RELEASED)
    ends_early = name in _ENDS_EARLY or (name == "Map" and maps_run_ahead) or (name in _BATCHES and may_end_smaller)
    return Count.LOST if found == Count.RELEASED and ends_early else found
