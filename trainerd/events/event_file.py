"""One event file, written through TensorFlow's own writer.

TensorBoard wants one file at a time in a folder, so everything goes through one writer: metrics, histograms, the
job's own `tf.summary` calls. The public API writes no SessionLog, which TensorBoard's slow loader needs in order
to forget steps that were run again. So whole events are imported through the writer's resource. That attribute is
not public: tests/tensorflow/test_internals.py names the versions for which it holds.

A process that is killed has often written points that are later than its last checkpoint. The next one runs those
steps again, and voids the points. TensorBoard's slow loader forgets them where it finds a `SessionLog.START`. Its fast
loader, the default, does not know that event: it forgets a tag's later points only when one of the same tag comes with
an earlier step. So each such tag is given an event at the first void step, with a value of a kind that no dashboard
shows.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import tensorflow as tf
from tensorboard.compat.proto.event_pb2 import Event, SessionLog
from tensorboard.compat.proto.summary_pb2 import Summary, SummaryMetadata

from trainerd.errors import StorageError
from trainerd.history.curves import events
from trainerd.system.durable_files import fsync_file

FLUSH_SECS = 10.0
FLUSH_EVENTS = 1000

# The writer itself never writes to the disk unless asked to: a job's own summaries are made on the loop's thread,
# which must not wait for a disk, and an error there would be taken for the job's.
_NEVER_EVENTS = 2**31 - 1
_NEVER_MILLIS = 2_000_000  # TensorFlow multiplies it by 1000 in 32 bits

# Of TensorFlow 0.x. The slow loader skips it; the fast one counts it as a point that cannot be read, and hides it.
VOID = "obsolete_old_style_histogram"
_SCALAR = SummaryMetadata(plugin_data=SummaryMetadata.PluginData(plugin_name="scalars"), data_class=1)


class EventFile:
    """An event file in a run directory, made when it is opened. One thread at a time may use it.

    Args:
      logdir: the run directory.
      step: points of this step and later ones in other files here are void.
      graph: the graph of a step, or None.
      timer: seconds on a clock that is never set.

    Attributes:
      writer: TensorFlow's, for `tf.summary` calls.
      last_step: the last step with a point.
      flushed_step: the last step with a point that a reader can see.

    Raises:
      StorageError: it cannot be written; so do all methods.
    """

    def __init__(
        self, logdir: Path, step: int, graph: Any = None, *, timer: Callable[[], float] = time.monotonic
    ) -> None:
        self._logdir = logdir
        self._timer = timer
        self.last_step = self.flushed_step = step - 1
        with self._storage():
            void = _void_from(logdir, step)
            before = set(own_files(logdir))
            logdir.stat()  # TensorFlow would create the directory again if it was moved away
            self.writer = tf.summary.create_file_writer(
                str(logdir), max_queue=_NEVER_EVENTS, flush_millis=_NEVER_MILLIS
            )
            self._path = next(path for path in own_files(logdir) if path not in before)
        self._start(step, void)
        if graph is not None:
            with self.writer.as_default():
                tf.summary.graph(graph)
        self.flush()

    def _start(self, step: int, void: list[Summary.Value]) -> None:
        """Write `SessionLog.START`, as `tf.train.Supervisor` did. It comes last: if it is there, the rest is too."""
        now = time.time()
        if void:
            self._write(Event(step=step, wall_time=now, summary=Summary(value=void)))
        self._write(Event(step=step, wall_time=now, session_log=SessionLog(status=SessionLog.START)))

    def scalars(self, values: Mapping[str, float], step: int, at: float) -> None:
        """Write the metrics of one step, measured at `at`, in seconds since 1970 (UTC)."""
        summary = Summary(value=[Summary.Value(tag=tag, simple_value=v) for tag, v in values.items()])
        self._write(Event(step=step, wall_time=at, summary=summary))
        self.reached(step)
        self._waiting += 1
        if self._waiting >= FLUSH_EVENTS or self._timer() >= self._flushed_at + FLUSH_SECS:
            self.flush()

    def reached(self, step: int) -> None:
        """Record that there is a point of this step."""
        self.last_step = max(self.last_step, step)

    def flush(self) -> None:
        """Make what was written visible to readers.

        It checks that the file is still there: TensorFlow keeps writing to a removed file without an error.
        """
        with self._storage():
            self.writer.flush()
            if not self._path.exists():
                raise FileNotFoundError(f"{self._path.name} was removed")
        self._waiting, self._flushed_at, self.flushed_step = 0, self._timer(), self.last_step

    def sync(self) -> None:
        """Put what was written on disk. The file's entry in the run directory is synced with the next checkpoint."""
        self.flush()
        with self._storage():
            fsync_file(self._path)

    def close(self) -> None:
        """Write the rest."""
        with self._storage():
            self.writer.close()

    def _write(self, event: Event) -> None:
        with self._storage():
            tf.raw_ops.ImportEvent(writer=self.writer._resource, event=event.SerializeToString())

    @contextlib.contextmanager
    def _storage(self) -> Iterator[None]:
        try:
            yield
        except (tf.errors.OpError, OSError) as error:
            reason = str(error).splitlines()[0]
            raise StorageError(
                f"cannot write an event file in {self._logdir}: {reason}. The curves continue when it can be "
                "written again."
            ) from error


def own_files(logdir: Path) -> list[Path]:
    """Return this process's event files."""
    return sorted(logdir.glob(f"events.out.tfevents.*.{os.getpid()}.*"))


def remove_empty(logdir: Path) -> None:
    """Remove this process's event files that nothing was written to: a full disk leaves one at each try."""
    with contextlib.suppress(OSError):
        for path in own_files(logdir):
            if path.stat().st_size == 0:
                path.unlink()


def _void_from(logdir: Path, step: int) -> list[Summary.Value]:
    """Return a value for each tag with points of `step` or later. Written at `step`, it voids them.

    Reads the newest file, and older ones as far as needed: where a process has begun at this step or before, it has
    taken back what was later in the files before its own.

    Raises:
      OSError: a file cannot be read.
    """
    found: dict[str, Summary.Value] = {}
    for path in sorted(logdir.glob("events.out.tfevents.*"), reverse=True):
        begun = False
        with path.open("rb") as file:  # a link that the user made, to an archive, is followed
            for event in events(file):
                begun = begun or (event.session_log.status == SessionLog.START and event.step <= step)
                if event.step >= step:
                    for value in event.summary.value:
                        if value.WhichOneof("value") != VOID and value.tag not in found:
                            found[value.tag] = _void(value)
        if begun:
            break
    return list(found.values())


def _void(value: Summary.Value) -> Summary.Value:
    """Return a value that voids points. It has the kind of the curve, for when the real points are deleted."""
    metadata = value.metadata if value.HasField("metadata") else _SCALAR
    return Summary.Value(tag=value.tag, metadata=metadata, **{VOID: b""})
