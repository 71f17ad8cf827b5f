"""Writes the Supervisor's data for TensorBoard, on a thread of its own: encoding must not hold up the loop."""

from __future__ import annotations

import contextlib
import logging
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from trainerd.errors import StorageError
from trainerd.events.event_file import EventFile, remove_empty
from trainerd.events.weight_images import write_weights
from trainerd.loop.contract import Events, Model
from trainerd.system.backoff import Backoff
from trainerd.system.threads import Background

log = logging.getLogger(__name__)

PATIENCE_SECS = 2.0
SYNC_SECS = 10.0
CLOSE_SECS = 30.0


class EventWriter(Events):
    """Writes the event file of one process's part of a run.

    The file is made when training has begun, so that a start that fails leaves none. An error of the background
    thread is raised by a later call, once. The file that failed is given up: what was half written to it would hide
    the rest. A new one is tried after a while, and continues the curves.

    No curve gets a second point for a step that it has. A schedule of less than the time that a summary takes comes
    to the same boundary twice.

    Args:
      logdir: the run directory.
      background: the thread that writes.
      timer: seconds on a clock that is never set.
    """

    def __init__(
        self, logdir: Path, *, background: Background | None = None, timer: Callable[[], float] = time.monotonic
    ) -> None:
        self._logdir = logdir
        self._background = background or Background("trainerd-events", patience=PATIENCE_SECS)
        self._timer = timer
        self._is_open = False
        self._last: dict[str, int] = {}  # the last step of each curve
        self._summary_step = 0
        # The background's own, from here on.
        self._file: EventFile | None = None
        self._graph: Any = None
        self._step = 0  # what is later than this in the files of before is void
        self._backoff = Backoff()
        self._undrawn = False
        self._retry_at = -float("inf")

    @property
    def is_well(self) -> bool:
        """True if writing works, or works again after a failure."""
        return self._file is not None and self._backoff.failures == 0 and not self._undrawn

    def begin(self, step: int, session: Model) -> None:
        """Make a file; void the steps after `step` in those of before; write the graph of a step."""
        self._graph, self._is_open = session.graph(), True
        self._last, self._summary_step = {}, step
        self._background.submit(lambda: self._begin_after(step))
        self.flush()

    def scalars(self, values: Mapping[str, float], step: int, at: float) -> None:
        """Write the metrics of one step."""
        new = {tag: value for tag, value in values.items() if step > self._last.get(tag, -1)}
        if new:
            self._last |= dict.fromkeys(new, step)
            self._in_background(lambda file: file.scalars(new, step, at))

    def summaries(self, session: Model) -> None:
        """Write histograms, kernels and the job's own summaries, of this boundary.

        Weights are large, so those of one boundary at most wait to be written.
        """
        self.flush()
        if not self._is_open or session.step == self._summary_step:
            return
        if not self._background.wait(PATIENCE_SECS):
            raise self._behind("a summary")
        self._background.raise_first_error()
        if (file := self._file) is None:
            return
        weights, step = session.weights(), session.step
        self._summary_step = step
        with file.writer.as_default(step=step):
            session.write_summaries()

        def write(file: EventFile) -> None:
            with file.writer.as_default():
                write_weights(weights, step)
            self._undrawn = False
            file.reached(step)
            file.flush()

        self._in_background(write)

    def flush(self) -> None:
        """Make what was written so far visible to readers."""
        self._in_background(EventFile.flush)

    def sync(self) -> None:
        """Put what was written so far on disk, and wait for that, but not forever if the disk hangs.

        Another thread than the loop's calls it.
        """
        if not self._is_open:
            return
        self._in_background(EventFile.sync)
        if not self._background.wait(SYNC_SECS):
            raise self._behind("the sync of the curves before a checkpoint")
        self._background.raise_first_error()

    def close(self) -> None:
        """Wait until everything is written, but not forever if the disk hangs."""
        if not self._is_open:
            return
        error: StorageError | None = None
        try:
            self._in_background(EventFile.close)
        except StorageError as early:
            error = early
        self._is_open = False
        if not self._background.close(CLOSE_SECS):
            raise self._behind("the end of the curves")
        if error is not None:
            raise error
        self._background.raise_first_error()

    # ------------------------------------------------------------------ in the background

    def _in_background(self, write: Callable[[EventFile], None]) -> None:
        """Write on the background thread, and raise an error since the last call."""
        if not self._is_open:
            return
        if not self._background.submit(lambda: self._write(write)):
            raise self._behind("a point")
        self._background.raise_first_error()

    def _write(self, write: Callable[[EventFile], None]) -> None:
        if self._file is None and self._timer() < self._retry_at:
            return
        try:
            if self._file is None:
                self._file = EventFile(self._logdir, self._step + 1, self._graph, timer=self._timer)
            write(self._file)
        except StorageError:
            self._give_up()
            raise
        except Exception as error:
            self._undrawn = True
            # A picture that cannot be drawn: neither the file's fault, nor a reason to end the training.
            log.exception("an error of trainerd's own, in what it writes for TensorBoard")
            raise StorageError(f"cannot write for TensorBoard: {type(error).__name__}: {error}") from error
        self._backoff.succeeded()

    def _begin_after(self, step: int) -> None:
        self._leave_file()
        self._step = step

    def _leave_file(self) -> None:
        if self._file is not None:
            self._step = self._file.flushed_step
            with contextlib.suppress(StorageError):  # TensorFlow looks for it where it was
                self._file.close()
        self._file = None

    def _give_up(self) -> None:
        """Give up the file, and try another after a wait that doubles."""
        self._leave_file()
        remove_empty(self._logdir)
        self._retry_at = self._timer() + self._backoff.failed()

    def _behind(self, what: str) -> StorageError:
        return StorageError(
            f"the event file in {self._logdir} takes too long to write, so {what} was left out. Does the disk hang?"
        )
