"""Readers of the runs for the watcher: each file is read again only when it has changed."""

from __future__ import annotations

import math
import os
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from trainerd.copies.status import CopyStatus, read_copy_status, snapshot_at
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
MOST_CURVES = 24  # of one run that are read for the page at once, beside its main one
_MOST = 300  # checkpoints of a run that are kept in memory, and of what happened to it


@dataclass(frozen=True, kw_only=True)
class RunView(ListedRun):
    """One run at one moment, and what has happened to it.

    Attributes:
      events: what happened to it, oldest first.
      event_counts: how many of each kind happened since the watcher knows of it, those that were there included. It
        never falls, although the oldest events are dropped from the file.
      copy: the state of its copy elsewhere; None if it is not copied.
      saved_at: when the snapshot of its newest checkpoint was taken; None if it is not copied, or that is unknown.
    """

    events: Sequence[Event] = ()
    event_counts: Mapping[str, int] = field(default_factory=dict)
    copy: CopyStatus | None = None
    saved_at: float | None = None


@dataclass(frozen=True)
class RunDetail:
    """The curves of a run, and what is marked on them.

    Attributes:
      tag: its main metric, which is the loss, or else the first that there is.
      curves: the curve of this metric, and of those that were asked for.
      is_complete: whether all that was written of them has been read. If not, the next read continues.
      checkpoints: its newest checkpoints, by step.
      checkpoint_count: how many there are in all.
      moments: what happened, by step.
    """

    tag: str
    curves: Mapping[str, Curve]
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
        self._copy: Cached[CopyStatus | None] = Cached()
        self._saved_at: Cached[float | None] = Cached()
        self._metrics: Mapping[str, float] = {}  # at the last read
        self._followers: list[CurveFollower] = []
        self.known = RunDetail(_LOSS, {_LOSS: Curve()}, False, (), 0, ())

    def read(self) -> RunView:
        """Read the present state of the run."""
        run, copy = super().read(), None
        unread = run.unread
        try:
            self._events.read()
            copy = self._copy.get(stamp_of(self.rundir.copy), lambda: read_copy_status(self.rundir))
        except TrainerdError as error:
            unread = unread or str(error)
        self._metrics = run.state.metrics if run.state is not None else {}
        events, counts = self._events.events, dict(self._events.counts)
        saved = run.state.last_checkpoint if run.state is not None else None
        saved_at = None
        if copy is not None and saved is not None:
            stamp = stamp_of(self.rundir.manifest(saved.step))
            saved_at = self._saved_at.get(stamp, lambda: snapshot_at(self.rundir, saved))
        more = {"events": events, "event_counts": counts, "copy": copy, "saved_at": saved_at}
        return RunView(**vars(run) | {"unread": unread} | more)

    def detail(self, metrics: Sequence[str] = ()) -> RunDetail:
        """Read the new points of its curves, and its checkpoints; after a read. One thread at a time.

        Args:
          metrics: those whose curves are read beside that of the main one.

        Raises:
          DataError: a manifest is of another version of trainerd.
          StorageError: they cannot be read.
        """
        tag = _LOSS if _LOSS in self._metrics else next(iter(self._metrics), _LOSS)
        curves, is_complete = self._read_curves(list(dict.fromkeys([tag, *metrics[:MOST_CURVES]])))
        curve = curves[tag]
        stamps = _stamps_of_checkpoints(self.rundir)
        count, entries = self._entries.get(stamps, lambda: _newest(present_line(self.rundir)))
        marks = (stamps, stamp_of(self.rundir.events), list(curve.begins), len(curve.evaluated))
        moments = self._moments.get(marks, lambda: moments_of(self.rundir, entries, curve)[-_MOST:])
        self.known = RunDetail(tag, curves, is_complete, entries, count, moments)
        return self.known

    def _read_curves(self, tags: list[str]) -> tuple[dict[str, Curve], bool]:
        """Return the curves of these metrics so far, and whether they are complete.

        Each metric that is new is followed from its first point on, beside those that are followed already.
        """
        known = {tag for follower in self._followers for tag in follower.tags}
        if new := [tag for tag in tags if tag not in known]:
            self._followers.append(CurveFollower(self.rundir, new))
        asked = [follower for follower in self._followers if not set(tags).isdisjoint(follower.tags)]
        self._followers = [follower for follower in self._followers if follower in asked or len(known) <= MOST_CURVES]
        found: dict[str, Curve] = {}
        for follower in asked:
            found |= follower.read()
        copies = {tag: _copy(found[tag]) for tag in tags}  # the next read changes them
        return copies, all(follower.is_complete for follower in asked)


def _copy(curve: Curve) -> Curve:
    steps, values, times, means = list(curve.steps), list(curve.values), list(curve.times), list(curve.means)
    return replace(curve, steps=steps, values=values, times=times, means=means)


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

    def detail(self, path: Path, metrics: Sequence[str] = ()) -> RunDetail | None:
        """Return curves and the checkpoints of one run of the last read; None if there is none in this folder.

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
            return reader.detail(metrics)
        finally:
            self._reads.release()

    def _list(self) -> None:
        self._readers = {path: self._readers.get(path) or WatchedRun(path) for path in self._paths()}
        self._listed_at = self._timer()
