"""The import of TensorFlow: its C++ messages go to the log, and garbage collection is off meanwhile."""

from __future__ import annotations

import contextlib
import gc
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import TextIO

from trainerd.job.keras_backend import require_tensorflow
from trainerd.system.regular_files import open_to_append


def prepare(*, is_program: bool = False) -> None:
    """Limit TensorFlow's C++ messages to errors, unless the user has chosen a level; refuse another backend of Keras.

    Args:
      is_program: whether a program comes next: it may set the backend itself, or use no Keras. Its `fit` refuses it.

    Raises:
      BackendError: Keras runs on another backend than TensorFlow.
    """
    if not is_program:
        require_tensorflow()
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


def beside_redirection(stream: TextIO) -> TextIO:
    """Return a stream to where this one writes now, which `stderr_to` does not redirect; the same one if it is not
    a file."""
    try:
        return os.fdopen(os.dup(stream.fileno()), "w", encoding=stream.encoding, errors="backslashreplace")
    except (AttributeError, OSError, ValueError):  # what replaces standard error may have no descriptor
        return stream


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """Import TensorFlow in the block, for a command: its comments on the machine are not shown.

    Raises:
      BackendError: Keras runs on another backend than TensorFlow.
    """
    prepare()
    with tempfile.TemporaryDirectory(prefix="trainerd-") as scratch, stderr_to(Path(scratch, "stderr")), uncollected():
        yield


@contextlib.contextmanager
def uncollected() -> Iterator[None]:
    """Turn garbage collection off while the block runs, and exempt the block's objects from it permanently.

    Importing TensorFlow and building a model makes more than half a million objects, none of them garbage, and the
      collector visits all of them repeatedly: that takes a tenth of a start, and a quarter of a second at each full
      collection after it.
    """
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        gc.enable()
