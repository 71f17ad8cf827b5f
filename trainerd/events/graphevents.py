"""A graph's own summaries, written with TensorFlow 1's FileWriter, which the program shares."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import tensorflow as tf

from trainerd.errors import StorageError
from trainerd.sessions.contract import Model

tf1 = tf.compat.v1
SessionLog = tf1.SessionLog
_RATES_LOGGED = 10


class GraphEvents:
    """Writes what `tf.compat.v1.train.Supervisor` writes.

    Args:
      writer: a `tf.compat.v1.summary.FileWriter`.
      summarize: runs the summary op; gives a serialized Summary, or None where there is none.
      told: given the scalars of each Summary.
    """

    is_well = True

    def __init__(
        self, writer: Any, summarize: Callable[[], bytes | None], told: Callable[[dict[str, float]], None]
    ) -> None:
        self._writer = writer
        self._summarize = summarize
        self._told = told
        self._logged = 0

    def begin(self, step: int, model: Model) -> None:
        """Training goes on after this step: TensorBoard hides what earlier processes wrote of later ones."""
        self._add(lambda: self._writer.add_session_log(SessionLog(status=SessionLog.START), step))

    def scalars(self, values: Mapping[str, float], step: int, at: float) -> None:
        """Write figures of one step."""
        points = [tf1.Summary.Value(tag=tag, simple_value=value) for tag, value in values.items()]
        event = tf1.Event(wall_time=at, step=step, summary=tf1.Summary(value=points))
        self._add(lambda: self._writer.add_event(event))
        for tag, value in values.items():
            if self._logged < _RATES_LOGGED:
                self._logged += 1
                tf1.logging.info("%s: %g", tag, value)

    def summaries(self, model: Model) -> None:
        """Run the summary op and write what it gives."""
        content = self._summarize()
        if content is not None:
            tf1.logging.info("Recording summary at step %s.", model.step)
            self.computed(content, model.step)

    def computed(self, summary: Any, step: int | None) -> None:
        """Write a Summary, or a serialized one."""
        self._add(lambda: self._writer.add_summary(summary, step))
        parsed = tf1.Summary.FromString(summary) if isinstance(summary, bytes) else summary
        self._told({v.tag: v.simple_value for v in parsed.value if v.HasField("simple_value")})

    def saved(self, path: str, step: int) -> None:
        """Write that a checkpoint was made."""
        log = SessionLog(status=SessionLog.CHECKPOINT, checkpoint_path=path)
        self._add(lambda: self._writer.add_session_log(log, step))

    def flush(self) -> None:
        """Show what was written so far to readers."""
        self._add(self._writer.flush)

    def close(self) -> None:
        """Show the rest; who made the writer closes it."""
        self.flush()

    def _add(self, write: Callable[[], None]) -> None:
        try:
            write()
        except (OSError, tf.errors.OpError) as error:
            raise StorageError(f"cannot write for TensorBoard in {self._writer.get_logdir()}: {error}") from error
