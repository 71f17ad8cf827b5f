"""TensorFlow's errors of writing, as the system's own."""

from __future__ import annotations

import errno
from collections.abc import Iterator
from contextlib import contextmanager

import tensorflow as tf

FULL = (errno.ENOSPC, errno.EDQUOT)


def is_disk_full(error: BaseException) -> bool:
    """Return whether something could not be written for want of space, whichever library has tried."""
    if isinstance(error, tf.errors.ResourceExhaustedError):
        return True
    return isinstance(error, OSError) and (error.errno in FULL or "No space left on device" in str(error))  # h5py's


@contextmanager
def as_os_errors() -> Iterator[None]:
    """Raise what an op that writes raises as an OSError."""
    try:
        yield
    except tf.errors.ResourceExhaustedError as error:
        raise OSError(errno.ENOSPC, "No space left on device") from error
    except tf.errors.OpError as error:
        raise OSError(errno.EIO, error.message.splitlines()[-1]) from error
