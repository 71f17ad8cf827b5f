"""Keeps what TensorFlow's C++ part remarks while it is imported out of a person's way, and in the log."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path


def hush_tensorflow() -> None:
    """Have TensorFlow's C++ part say errors only, among the lines of a run, unless its user has chosen a level."""
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")


@contextlib.contextmanager
def stderr_to(path: Path) -> Iterator[None]:
    """Append what is written to standard error, from C++ too, to a file while the block runs."""
    kept = os.dup(2)
    target = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o644)
    os.dup2(target, 2)
    os.close(target)
    try:
        yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)
