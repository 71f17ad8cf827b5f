"""The lines of the log that show the loss of a training."""

from __future__ import annotations

import time

import tensorflow as tf

tf1 = tf.compat.v1


class LossLog:
    """Logs the loss every so many runs, as TensorFlow's LoggingTensorHook does.

    Args:
      every: runs from one line to the next; 0 or None for none.
    """

    def __init__(self, every: int | None) -> None:
        self._begun = 0  # the step from which runs are counted
        self._every = every or 0
        self._runs, self._at = 0, time.monotonic()

    def begin(self, step: int) -> None:
        """Count runs from this step on."""
        self._begun = step

    def ran(self, loss: float, count: int) -> None:
        """Log the loss of a run, if it is time; `count` is the number of the run."""
        if self._every and self._runs % self._every == 0:
            now = time.monotonic()
            since = f" ({now - self._at:.3f} sec)" if self._runs else ""
            tf1.logging.info("loss = %s, step = %s%s", loss, self._begun + count, since)
            self._at = now
        self._runs += 1
