"""Adds to a finalized graph.

TensorFlow's Scaffold makes the Saver and finalizes the graph in one call, and its own MonitoredSession makes the graph
open again at its end, so that a notebook can continue. Neither has a public way; tests/tensorflow/test_internals.py
names the versions that have this one.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any


@contextlib.contextmanager
def unfinalized(graph: Any) -> Iterator[None]:
    """Let ops be added while the block runs; afterwards the graph is finalized, if it was before."""
    was_finalized = graph.finalized
    open_again(graph)
    try:
        yield
    finally:
        if was_finalized:
            graph.finalize()


def open_again(graph: Any) -> None:
    """Let ops be added from now on."""
    if graph.finalized:
        graph._unsafe_unfinalize()
