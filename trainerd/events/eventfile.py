"""One event file, written through TensorFlow's own writer.

TensorBoard wants one file at a time in a folder, so everything goes through one writer: figures, histograms, the
job's own `tf.summary` calls. The public API writes no SessionLog, which TensorBoard's slow loader needs in order
to forget steps that were run again; so whole events are imported through the writer's resource. That attribute is
not public: tests/tensorflow/test_internals.py names the versions for which it holds.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import tensorflow as tf
from tensorflow.compat.v1 import Event, SessionLog, Summary

from trainerd.errors import StorageError

_QUEUE = 1000


class EventFile:
    """An event file in a run directory, made when it is opened.

    Args:
      logdir: the run directory.

    Raises:
      StorageError: it cannot be written; so do all methods.
    """

    def __init__(self, logdir: Path) -> None:
        self._logdir = logdir
        try:
            self.writer = tf.summary.create_file_writer(str(logdir), max_queue=_QUEUE, flush_millis=10_000)
        except tf.errors.OpError as error:
            raise self._failure(error) from error

    def start(self, step: int, at: float) -> None:
        """Void what any event file here has of this step and later ones.

        Both of TensorBoard's loaders follow it: `SessionLog.START` is what `tf.train.Supervisor` wrote.
        """
        log = SessionLog(status=SessionLog.START)
        self._write(Event(step=step, wall_time=at, session_log=log))

    def scalars(self, values: Mapping[str, float], step: int, at: float) -> None:
        """Write figures of one step, measured at `at`, in seconds since 1970 (UTC)."""
        summary = Summary(value=[Summary.Value(tag=tag, simple_value=v) for tag, v in values.items()])
        self._write(Event(step=step, wall_time=at, summary=summary))

    def flush(self) -> None:
        """Show what was written to readers."""
        try:
            self.writer.flush()
        except tf.errors.OpError as error:
            raise self._failure(error) from error

    def close(self) -> None:
        """Write the rest."""
        try:
            self.writer.close()
        except tf.errors.OpError as error:
            raise self._failure(error) from error

    def _write(self, event: Event) -> None:
        try:
            tf.raw_ops.ImportEvent(writer=self.writer._resource, event=event.SerializeToString())
        except tf.errors.OpError as error:
            raise self._failure(error) from error

    def _failure(self, error: tf.errors.OpError) -> StorageError:
        reason = str(error).splitlines()[0]
        return StorageError(f"cannot write an event file in {self._logdir}: {reason}. Is the disk full?")
