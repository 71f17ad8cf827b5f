"""The watcher: looks at all runs twice a second, and puts into the queue what there is to tell."""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable, Sequence
from datetime import datetime
from pathlib import Path

import psutil

from trainerd.errors import StorageError
from trainerd.rundir import registry, run_events
from trainerd.rundir.all_runs import all_paths
from trainerd.rundir.paths import RunDirectory
from trainerd.system.durable_files import free_bytes
from trainerd.watch import rules
from trainerd.watch.followed import Followed
from trainerd.watch.notes import Notes
from trainerd.watch.notice import Notice
from trainerd.watch.resources import SAMPLE_SECS, Disks, Memory
from trainerd.watch.senders import Senders
from trainerd.watch.settings import WatchConfig
from trainerd.watch.summary import DAY, Day, due_since, summary

log = logging.getLogger(__name__)

LOOK_SECS = 0.5
RUNS_SECS = 2.0  # between two looks at which runs there are
_SEEN_FOR_LONG = ("killed", "no progress")  # at each look, until the run starts again or goes on


class Watcher:
    """Looks at all runs.

    Args:
      config: what is told.
      notes: what was told.
      senders: tell it.
      paths: the run directories of all runs.
      clock: seconds since 1970 (UTC).
      timer: seconds on a clock that is never set.
    """

    def __init__(
        self,
        config: WatchConfig,
        notes: Notes,
        senders: Senders,
        *,
        paths: Callable[[], list[Path]] = all_paths,
        clock: Callable[[], float] = time.time,
        timer: Callable[[], float] = time.monotonic,
    ) -> None:
        self._config, self._notes, self._senders = config, notes, senders
        self._paths, self._clock, self._timer = paths, clock, timer
        self._runs: dict[Path, Followed] = {}
        self._booted_at = psutil.boot_time()
        self._disks = Disks(config.disk_hours, free_bytes, lambda path: os.stat(path).st_dev)  # noqa: PTH116
        self._memory = Memory(config.memory_hours, lambda: psutil.virtual_memory().available)
        self._sampled_at, self._found_at = -SAMPLE_SECS, -RUNS_SECS
        self._summed_up: datetime | None = None
        self._trouble = ""

    def look(self) -> None:
        """Look once. What cannot be noted now, since the disk is full, is told later."""
        try:
            self._find_runs()
            for run in self._runs.values():
                self._look_at(run)
            self._sample()
            self._sum_up()
            self._senders.look()
        except StorageError as error:
            for run in self._runs.values():
                run.read_again()
            if str(error) != self._trouble:
                log.error("%s", error, extra={"event": "watch-failed"})
            self._trouble = str(error)
            return
        self._trouble = ""

    def _find_runs(self) -> None:
        if (now := self._timer()) - self._found_at < RUNS_SECS:
            return
        self._found_at, paths = now, self._paths()
        if set(paths) == set(self._runs):
            return
        names = registry.names(paths)
        runs = {path: self._runs.get(path) or Followed(path, self._notes.lines_read(str(path))) for path in paths}
        for path, run in runs.items():
            run.name = names[path]
        self._runs = runs

    def _look_at(self, run: Followed) -> None:
        events, lines = run.new_events(self._notes.begun_at)
        state = run.look()
        notices = [rules.of_event(run.name, event, state) for event in events]
        if run.is_left:
            assert state is not None
            notices.append(rules.of_kill(run.name, state, self._booted_at))
        stands_for = run.stands_for(self._timer())
        if state is not None and self._config.no_progress_mins and stands_for >= self._config.no_progress_mins * 60:
            notices.append(rules.of_no_progress(run.name, state, stands_for, self._clock()))
        notices = [notice for notice in notices if notice.key not in run.told]
        if lines or notices:
            self._tell(run.name, notices, run, lines)
            run.told |= {notice.key for notice in notices if notice.kind in _SEEN_FOR_LONG}

    def _tell(
        self, name: str, notices: Sequence[Notice], run: Followed | None = None, lines: Sequence[str] = ()
    ) -> None:
        config = self._config
        is_wanted = not config.runs or not name or name in config.runs
        wanted = [each for each in notices if each.kind == "summary" or (is_wanted and each.kind in config.events)]
        path = str(run.path) if run is not None else ""
        for notice in self._notes.take(path, lines, wanted, self._senders.names):
            log.info("%s", notice.title, extra={"event": "told"})
        if run is not None and lines:
            run.lines_read = list(lines)

    def _sample(self) -> None:
        """Look at disks and memory, now and then."""
        timer, now = self._timer(), self._clock()
        if timer - self._sampled_at < SAMPLE_SECS:
            return
        self._sampled_at = timer
        training = {run.name: run for run in self._runs.values() if run.is_running and run.state is not None}
        found: list[Notice] = []
        if self._config.disk_hours:
            found += self._disks.look({name: run.path for name, run in training.items()}, timer, now)
        if self._config.memory_hours:
            states = {name: run.state for name, run in training.items() if run.state is not None}
            found += self._memory.look(states, timer, now)
        for notice in found:
            self._tell(notice.run, [notice])

    def _sum_up(self) -> None:
        """Send the summary of the day, if it is due."""
        if self._config.summary_at is None:
            return
        now = self._clock()
        due = due_since(self._config.summary_at, datetime.fromtimestamp(now))
        if due == self._summed_up or due.timestamp() < self._notes.begun_at:
            return
        if not self._notes.was_told(f"summary {due:%Y-%m-%d}"):
            self._tell("", [summary(self._days(now), due, now)])
        self._summed_up = due

    def _days(self, now: float) -> list[Day]:
        found = []
        for run in sorted(self._runs.values(), key=lambda run: run.name):
            if run.state is not None and (run.is_running or now - run.state.at < DAY):
                events = [each for each in run_events.read(RunDirectory(run.path)) if now - each.at < DAY]
                found.append(Day(run.name, str(run.path), run.state, run.is_running, events))
        return found
