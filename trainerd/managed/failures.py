"""What the error that has ended a loop says of it."""

from __future__ import annotations

import tensorflow as tf


def is_clean(error: BaseException | None) -> bool:
    """Whether an error says that the input has ended, and no more."""
    return isinstance(error, tf.errors.OutOfRangeError | StopIteration)


def is_failure(error: BaseException | None) -> bool:
    """Whether an error, or an exit, says that something went wrong."""
    if isinstance(error, SystemExit):
        return bool(error.code)
    return error is not None and not is_clean(error) and not isinstance(error, GeneratorExit)
