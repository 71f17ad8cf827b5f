"""TensorFlow's errors of writing, as the system's own."""

from __future__ import annotations

import errno
from collections.abc import Iterator
from contextlib import contextmanager

import tensorflow as tf


@contextmanager
def as_os_errors() -> Iterator[None]:
    """Raise what an op that writes raises as an OSError."""
    try:
        yield
    except tf.errors.ResourceExhaustedError as error:
        raise OSError(errno.ENOSPC, "No space left on device") from error
    except tf.errors.OpError as error:
        raise OSError(errno.EIO, error.message.splitlines()[-1]) from error
