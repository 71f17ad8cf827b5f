"""A graph's own summaries, written with TensorFlow 1's FileWriter, which the program shares."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import tensorflow as tf

from trainerd.errors import StorageError
from trainerd.loop.contract import Events, Model
from trainerd.system.durable_files import fsync_file, storage

tf1 = tf.compat.v1
SessionLog = tf1.SessionLog

_RATE = "/sec"  # how the tag of the rate ends, after the name of the counter


class GraphEvents(Events):
    """Writes what `tf.compat.v1.train.Supervisor` writes.

    Args:
      writer: a `tf.compat.v1.summary.FileWriter`; None if nothing is to be written.
      summary_op: returns a serialized Summary, or several of them; None if there are none.
      rates_logged: how many times the rate of the steps is logged: ten by a Supervisor.
    """

    def __init__(self, writer: Any, summary_op: Any = None, *, rates_logged: float = 10) -> None:
        self._show: Callable[[dict[str, float]], None] = lambda scalars: None
        self._writer = writer
        self._summary_op = summary_op
        self._rates_left = rates_logged

    def show_with(self, show: Callable[[dict[str, float]], None]) -> None:
        """Call this with the scalars of each Summary from now on."""
        self._show = show

    def begin(self, step: int, model: Model) -> None:
        """Write that training resumes after this step: TensorBoard hides what earlier processes wrote of later ones."""
        self._add(lambda: self._writer.add_session_log(SessionLog(status=SessionLog.START), step + 1))

    def saved(self, path: str, step: int) -> None:
        """Write that a checkpoint is on disk. Called on the writer's thread."""
        log = SessionLog(status=SessionLog.CHECKPOINT, checkpoint_path=path)
        with contextlib.suppress(StorageError):  # the next summary will say so
            self._add(lambda: self._writer.add_session_log(log, step))

    def scalars(self, values: Mapping[str, float], step: int, at: float) -> None:
        """Write scalars of one step."""
        points = [tf1.Summary.Value(tag=tag, simple_value=value) for tag, value in values.items()]
        event = tf1.Event(wall_time=at, step=step, summary=tf1.Summary(value=points))
        self._add(lambda: self._writer.add_event(event))
        for tag, value in values.items():
            if tag.endswith(_RATE) and self._rates_left > 0:
                self._rates_left -= 1
                tf1.logging.info("%s: %g", tag, value)

    def summaries(self, model: Any) -> None:
        """Run the summary op of a `GraphModel` and write what it gives."""
        if self._summary_op is None:
            return
        try:
            found, step = model.run(self._summary_op), model.step
        except tf.errors.OutOfRangeError:  # it needs a batch, and there is none any more: the loop will say so
            return
        tf1.logging.info("Recording summary at step %s.", step)
        for content in found if isinstance(found, list) else [found]:
            self.computed(content, step)

    def computed(self, summary: Any, step: int | None) -> None:
        """Write a Summary, or a serialized one."""
        self._add(lambda: self._writer.add_summary(summary, step))
        parsed = tf1.Summary.FromString(summary) if isinstance(summary, bytes) else summary
        self._show({v.tag: v.simple_value for v in parsed.value if v.HasField("simple_value")})

    def flush(self) -> None:
        """Show what was written so far to readers."""
        self._add(lambda: self._writer.flush())

    def sync(self) -> None:
        """Put what was written so far on disk. The writer does not name its file, so all in the folder are synced."""
        self.flush()
        if self._writer is None:
            return
        logdir = Path(self._writer.get_logdir())
        with storage(f"sync the event files in {logdir}"):
            for path in logdir.glob("events.out.tfevents.*"):
                fsync_file(path)

    def close(self) -> None:
        """Show the rest. Whoever made the writer closes it."""
        self.flush()

    def _add(self, write: Callable[[], None]) -> None:
        if self._writer is None:
            return
        try:
            write()
        except (OSError, tf.errors.OpError) as error:
            raise StorageError(f"cannot write for TensorBoard in {self._writer.get_logdir()}: {error}") from error
