"""Keeps what TensorFlow's C++ part remarks while it is imported out of a person's way, and in the log."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

from trainerd.system.regular_files import open_to_append


def hush_tensorflow() -> None:
    """Have TensorFlow's C++ part say errors only, among the lines of a run, unless its user has chosen a level."""
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")


@contextlib.contextmanager
def stderr_to(path: Path) -> Iterator[None]:
    """Append what is written to standard error, from C++ too, to a file while the block runs."""
    kept = os.dup(2)
    target = open_to_append(path)
    os.dup2(target, 2)
    os.close(target)
    try:
        yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)
