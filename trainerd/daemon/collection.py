"""Python's garbage collector, kept away from what stays for the process's life."""

from __future__ import annotations

import contextlib
import gc
from collections.abc import Iterator


@contextlib.contextmanager
def uncollected() -> Iterator[None]:
    """Collect nothing while the block runs, and never look again at what it made.

    Importing TensorFlow and building a model makes more than half a million objects, none of them garbage, and the
    collector walks through all of them again and again: a tenth of a start, and a quarter of a second at each full
    collection after it.
    """
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        gc.enable()
