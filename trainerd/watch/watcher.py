"""The watcher: checks all runs once a second, and queues the notices that are due."""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable, Sequence
from datetime import datetime
from pathlib import Path

import psutil

from trainerd.errors import StorageError
from trainerd.rundir.names import is_called
from trainerd.system.durable_files import free_bytes
from trainerd.watch import rules
from trainerd.watch.delivery.notes import Notes
from trainerd.watch.delivery.notice import Notice
from trainerd.watch.delivery.senders import Senders
from trainerd.watch.followed import RunMemory
from trainerd.watch.resources import SAMPLE_SECS, Disks, Memory
from trainerd.watch.run_reader import Runs, RunView
from trainerd.watch.settings import WatchConfig
from trainerd.watch.summary import due_since, summary

log = logging.getLogger(__name__)

LOOK_SECS = 1.0
_SOON_SECS = 0.25  # where a process seems to have gone
_WELL_SECS = 60.0  # without a look that succeeds, after which the watcher is not well
_SEEN_FOR_LONG = ("killed", "no progress", "copy behind")  # at each look, until the run starts again or continues


class Watcher:
    """Checks all runs.

    Args:
      config: what to notify of.
      notes: what was read and sent before.
      senders: send the notices.
      runs: reads them.
      clock: seconds since 1970 (UTC).
      timer: seconds on a clock that is never set.
    """

    def __init__(
        self,
        config: WatchConfig,
        notes: Notes,
        senders: Senders,
        runs: Runs,
        *,
        clock: Callable[[], float] = time.time,
        timer: Callable[[], float] = time.monotonic,
    ) -> None:
        self._config, self._notes, self._senders, self._runs = config, notes, senders, runs
        self._clock, self._timer = clock, timer
        self._followed: dict[Path, RunMemory] = {}
        self._booted_at = psutil.boot_time()
        self._disks = Disks(config.disk_hours, free_bytes, lambda path: os.stat(path).st_dev)  # noqa: PTH116
        self._memory = Memory(config.memory_hours, lambda: psutil.virtual_memory().available)
        self._sampled_at = -SAMPLE_SECS
        self._summed_up: datetime | None = None
        self._trouble = ""
        self._well_at = timer()

    def is_well(self) -> bool:
        """Return whether it has looked and noted all lately. Any thread may ask."""
        return self._timer() - self._well_at < _WELL_SECS

    def check(self) -> float:
        """Look once. What cannot be noted now, since the disk is full, is sent later.

        Returns:
          The seconds until the next look.
        """
        try:
            runs = self._runs.read()
            self._followed = {seen.rundir.path: self._follow(seen.rundir.path) for seen in runs}
            for seen in runs:
                self._look_at(seen)
            self._sample(runs)
            self._sum_up(runs)
            self._senders.check()
        except StorageError as error:
            if str(error) != self._trouble:
                log.error("%s", error, extra={"event": "watch-failed"})
            self._trouble = str(error)
            return LOOK_SECS
        self._trouble, self._well_at = "", self._timer()
        return _SOON_SECS if any(run.is_doubtful for run in self._followed.values()) else LOOK_SECS

    def report(self, notice: Notice) -> None:
        """Queue a notice of another part of the watcher, if its kind is wanted. Any thread may call it.

        Raises:
          StorageError: it cannot be noted.
        """
        if wanted := self._wanted([notice]):
            self._announce(wanted)

    def _follow(self, path: Path) -> RunMemory:
        return self._followed.get(path) or RunMemory(self._notes.lines_read(str(path)))

    def _look_at(self, seen: RunView) -> None:
        run, state = self._followed[seen.rundir.path], seen.state
        events, lines = run.new_events(seen.events, self._notes.begun_at)
        notices = [rules.of_event(seen.name, event, state) for event in events]
        if run.is_left(seen, self._notes.begun_at) and state is not None:
            notices.append(rules.of_kill(seen.name, state, self._booted_at))
        secs = run.stands_for(seen, self._timer())
        if state is not None and self._config.no_progress_mins and secs >= self._config.no_progress_mins * 60:
            notices.append(rules.of_no_progress(seen.name, state, secs, self._clock()))
        behind, most = run.copy_stands_for(seen, self._timer()), self._config.copy_behind_mins * 60
        if seen.copy is not None and most and behind >= most:
            notices.append(rules.of_copy_behind(seen.name, seen.copy, behind, self._clock()))
        notices = [notice for notice in notices if notice.key not in run.announced]
        wanted = self._wanted(notices) if self._is_followed(seen) else []
        if wanted or run.is_note_due(lines, self._timer()):
            self._announce(wanted, str(seen.rundir.path), lines)
            run.noted(lines, self._timer())
        run.took(seen.events, lines)
        run.announced.update(notice.key for notice in notices if notice.kind in _SEEN_FOR_LONG)

    def _is_followed(self, seen: RunView) -> bool:
        wanted = self._config.runs
        return not wanted or any(name == seen.name or is_called(seen.identity, name) for name in wanted)

    def _wanted(self, notices: Sequence[Notice]) -> list[Notice]:
        return [notice for notice in notices if notice.kind in self._config.events]

    def _announce(self, notices: Sequence[Notice], path: str = "", lines: Sequence[str] = ()) -> None:
        for notice in self._notes.take(path, lines, notices, self._senders.names, self._clock()):
            log.info("%s", notice.title, extra={"event": "told"})

    def _sample(self, runs: Sequence[RunView]) -> None:
        """Check disks and memory, now and then."""
        timer, now = self._timer(), self._clock()
        if timer - self._sampled_at < SAMPLE_SECS:
            return
        self._sampled_at = timer
        running = [seen for seen in runs if seen.is_running and self._is_followed(seen)]
        states = {seen.name: seen.state for seen in running if seen.state is not None}
        found: list[Notice] = []
        if self._config.disk_hours:
            found += self._disks.check({seen.name: seen.rundir.path for seen in running}, timer, now)
        if self._config.memory_hours:
            found += self._memory.check(states, timer, now)
        for notice in self._wanted(found):
            self._announce([notice])

    def _sum_up(self, runs: Sequence[RunView]) -> None:
        """Send the summary of the day, if it is due."""
        if self._config.summary_at is None:
            return
        now = self._clock()
        due = due_since(self._config.summary_at, datetime.fromtimestamp(now))
        if due == self._summed_up or due.timestamp() < self._notes.begun_at:
            return
        if not self._notes.is_known(f"summary {due:%Y-%m-%d}"):
            self._announce([summary(runs, due, now)])
        self._summed_up = due
