"""What the Supervisor writes for TensorBoard, on a thread of its own: encoding must not hold up the loop."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import tensorflow as tf

from trainerd.errors import StorageError
from trainerd.events.eventfile import EventFile
from trainerd.events.pictures import write_weights
from trainerd.sessions.contract import Session


class EventWriter:
    """Writes one event file for one process's part of a run.

    The file is made when training has begun, so that a start that fails leaves none. An error of the background
    thread is raised by the next call.

    Args:
      logdir: the run directory.
    """

    def __init__(self, logdir: Path) -> None:
        self._logdir = logdir
        self._file: EventFile | None = None
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="trainerd-events")
        self._done: Future[None] | None = None

    def begin(self, step: int, session: Session) -> None:
        """Make the file; void the steps after `step` in those of earlier processes; write the graph of a step."""
        self._file = file = EventFile(self._logdir)
        file.start(step + 1, time.time())
        graph = session.graph()

        def write_graph() -> None:
            with file.writer.as_default():
                tf.summary.graph(graph)
            file.flush()

        self._in_background(write_graph)

    def scalars(self, values: Mapping[str, float], step: int, at: float) -> None:
        """Write figures of one step."""
        if (file := self._file) is not None:
            self._in_background(lambda: file.scalars(values, step, at))

    def summaries(self, session: Session) -> None:
        """Write histograms, kernels and the job's own summaries, of this boundary."""
        if (file := self._file) is None:
            return
        weights, step = session.weights(), session.step

        def write() -> None:
            with file.writer.as_default():
                write_weights(weights, step)
            file.flush()

        self._in_background(write)
        with file.writer.as_default(step=step):
            session.write_summaries()

    def flush(self) -> None:
        """Show what was written so far to readers."""
        if self._file is not None:
            self._in_background(self._file.flush)

    def close(self) -> None:
        """Wait until everything is written."""
        if self._file is not None:
            self._in_background(self._file.close)
        self._thread.shutdown(wait=True)
        self._raise_what_failed()

    def _in_background(self, write: Callable[[], None]) -> None:
        self._raise_what_failed()
        before = self._done

        def after_the_one_before() -> None:
            # Where that one failed, this one says so too, until a call of the loop has raised it.
            if before is not None and before.done() and (error := before.exception()) is not None:
                raise error
            write()

        self._done = self._thread.submit(after_the_one_before)

    def _raise_what_failed(self) -> None:
        done, error = self._done, None
        if done is not None and done.done():
            error, self._done = done.exception(), None
        if isinstance(error, tf.errors.OpError):
            raise StorageError(f"cannot write an event file in {self._logdir}: {str(error).splitlines()[0]}")
        if error is not None:
            raise error
