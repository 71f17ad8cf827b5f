"""Readers of the runs for the watcher: each file is read again only when it has changed."""

from __future__ import annotations

import math
import os
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from trainerd.errors import TrainerdError
from trainerd.history.curves import Curve, CurveFollower
from trainerd.history.story import StoryMoment, moments_of
from trainerd.history.timeline import TimelineEntry, present_line
from trainerd.rundir.paths import RunDirectory
from trainerd.rundir.run_events import Event
from trainerd.rundir.runs import Cached, ListedRun, RunReader, Stamp, named, readable_paths, stamp_of
from trainerd.system.durable_files import storage
from trainerd.watch.event_reader import EventReader

_LISTED_SECS = 5.0  # after which it is looked for new runs: each reads the file that remembers it
_FRESH_SECS = 2.0  # for which what was seen is good enough for the page
_PATIENCE_SECS = 0.1  # for which a request waits for another one's detail: it keeps a thread of the page
_LOSS = "loss"
_MOST = 300  # checkpoints of a run that are kept in memory, and of what happened to it


@dataclass(frozen=True, kw_only=True)
class RunView(ListedRun):
    """One run at one moment, and what has happened to it.

    Attributes:
      events: what happened to it, oldest first.
      event_counts: how many of each kind happened since the watcher knows of it, those that were there included. It
        never falls, although the oldest events are dropped from the file.
    """

    events: Sequence[Event] = ()
    event_counts: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class RunDetail:
    """The curve of a run, and what is marked on it.

    Attributes:
      tag: the metric, which is the loss, or else the first that there is.
      curve: its points.
      is_complete: whether all that was written of it has been read. If not, the next read continues.
      checkpoints: its newest checkpoints, by step.
      checkpoint_count: how many there are in all.
      moments: what happened, by step.
    """

    tag: str
    curve: Curve
    is_complete: bool
    checkpoints: Sequence[TimelineEntry]
    checkpoint_count: int
    moments: Sequence[StoryMoment]


class WatchedRun(RunReader):
    """Reads one run for the watcher and its page.

    Args:
      path: its run directory.

    Attributes:
      known: what `detail` has read last.
    """

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self._events = EventReader(self.rundir)
        self._entries: Cached[tuple[int, list[TimelineEntry]]] = Cached()
        self._moments: Cached[list[StoryMoment]] = Cached()
        self._metrics: Mapping[str, float] = {}  # at the last read
        self._follower: tuple[str, CurveFollower] | None = None
        self.known = RunDetail(_LOSS, Curve(), False, (), 0, ())

    def read(self) -> RunView:
        """Read the present state of the run."""
        run = super().read()
        unread = run.unread
        try:
            self._events.read()
        except TrainerdError as error:
            unread = unread or str(error)
        self._metrics = run.state.metrics if run.state is not None else {}
        events, counts = self._events.events, dict(self._events.counts)
        return RunView(**vars(run) | {"unread": unread}, events=events, event_counts=counts)

    def detail(self) -> RunDetail:
        """Read the new points of its curve, and its checkpoints; after a read. One thread at a time.

        Raises:
          DataError: a manifest is of another version of trainerd.
          StorageError: they cannot be read.
        """
        tag = _LOSS if _LOSS in self._metrics else next(iter(self._metrics), _LOSS)
        if self._follower is None or self._follower[0] != tag:
            self._follower = (tag, CurveFollower(self.rundir, tag))
        curve = self._follower[1].read()
        stamps = _stamps_of_checkpoints(self.rundir)
        count, entries = self._entries.get(stamps, lambda: _newest(present_line(self.rundir)))
        marks = (stamps, stamp_of(self.rundir.events), list(curve.begins), len(curve.evaluated))
        moments = self._moments.get(marks, lambda: moments_of(self.rundir, entries, curve)[-_MOST:])
        shown = replace(curve, steps=list(curve.steps), values=list(curve.values))  # the next read changes it
        self.known = RunDetail(tag, shown, self._follower[1].is_complete, entries, count, moments)
        return self.known


def _newest(entries: list[TimelineEntry]) -> tuple[int, list[TimelineEntry]]:
    """Return how many checkpoints there are, and the newest of them.

    Ten thousand that are pinned would fill the memory.
    """
    return len(entries), entries[-_MOST:]


def _stamps_of_checkpoints(rundir: RunDirectory) -> list[Stamp | None]:
    """Return the stamps of the checkpoints' files: manifests, evaluations, pins, the folder of the earlier lines."""
    with storage(f"read {rundir.path}", missing_ok=True):
        names = [name for name in os.listdir(rundir.path) if name.startswith(rundir.basename)]
        found = [rundir.path / name for name in names if name.endswith((".json", ".pin"))]
        return [stamp_of(path) for path in (*found, rundir.checkpoint_state, rundir.lines)]
    return []


class Runs:
    """All runs. Any thread may use it.

    Args:
      paths: gives their run directories.
      timer: seconds on a clock that is never set.
    """

    def __init__(
        self, paths: Callable[[], Sequence[Path]] = readable_paths, timer: Callable[[], float] = time.monotonic
    ) -> None:
        self._paths, self._timer = paths, timer
        self._readers: dict[Path, WatchedRun] = {}
        self._listed_at = self._looked_at = -math.inf
        self._seen: list[RunView] = []
        self._lock = threading.Lock()
        self._reads = threading.Lock()  # a detail; it may take long, and keeps no other read waiting

    def read(self) -> list[RunView]:
        """Read the present state of all runs, and return them by name.

        Raises:
          StorageError: what is known of them cannot be read.
        """
        with self._lock:
            if self._timer() >= self._listed_at + _LISTED_SECS:
                self._list()
            self._seen = named([reader.read() for reader in self._readers.values()])
            self._looked_at = self._timer()
            return self._seen

    def seen(self) -> list[RunView]:
        """Return the result of the last read if that was within two seconds; else read.

        Raises:
          StorageError: see `read`.
        """
        return self._seen if self._timer() - self._looked_at < _FRESH_SECS else self.read()

    def detail(self, path: Path) -> RunDetail | None:
        """Return the curve and the checkpoints of one run of the last read; None if there is none in this folder.

        While another thread reads a detail for long, it is what was read last, and is not complete.

        Raises:
          DataError, StorageError: see `WatchedRun.detail`.
        """
        with self._lock:
            reader = self._readers.get(path)
        if reader is None:
            return None
        if not self._reads.acquire(timeout=_PATIENCE_SECS):
            return replace(reader.known, is_complete=False)
        try:
            return reader.detail()
        finally:
            self._reads.release()

    def _list(self) -> None:
        self._readers = {path: self._readers.get(path) or WatchedRun(path) for path in self._paths()}
        self._listed_at = self._timer()
