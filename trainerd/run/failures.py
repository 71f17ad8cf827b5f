"""Tells failures from other errors that end a loop: the end of the input, an exit, a cancelled step."""

from __future__ import annotations

import tensorflow as tf

from trainerd.loop.outcome import Outcome


def is_clean(error: BaseException | None) -> bool:
    """Return whether an error says that the input has ended, and no more."""
    return isinstance(error, tf.errors.OutOfRangeError | StopIteration)


def is_failure(error: BaseException | None) -> bool:
    """Return whether an error, or an exit, says that something went wrong."""
    if isinstance(error, SystemExit):
        return bool(error.code)
    return error is not None and not is_clean(error) and not isinstance(error, GeneratorExit)


def has_failed(error: BaseException | None, outcome: Outcome | None) -> bool:
    """Return whether an error is a failure of the program.

    After the program was asked to end, no exit is one, nor a run that was cut off for that.

    Args:
      error: what has ended the loop.
      outcome: why it was asked to end; None if it was not.
    """
    if outcome is not None and (not isinstance(error, Exception) or isinstance(error, tf.errors.CancelledError)):
        return False
    return is_failure(error)
