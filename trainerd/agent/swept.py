"""The points of sweeps in the queue: what is queued, and which of them train on to the next rung."""

from __future__ import annotations

import contextlib
import logging
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path

from trainerd.agent import notes
from trainerd.agent.entry import QueueEntry
from trainerd.agent.progress import Stage, StartResult, headline, wait_after
from trainerd.agent.queue_folder import QueueFolder
from trainerd.agent.shown import shown
from trainerd.agent.starter import AgentCommand
from trainerd.config import parse as configs
from trainerd.errors import ConfigError, UsageError
from trainerd.rundir.runs import stamp_of
from trainerd.sweeps import rungs, spec
from trainerd.sweeps.halving import PointResult
from trainerd.sweeps.sweep import Sweep
from trainerd.system.durable_files import storage
from trainerd.system.machine import NAME

log = logging.getLogger(__name__)

_OVER = frozenset([Stage.DONE, Stage.FAILED])


def name_of(sweep: Sweep, point: str) -> str:
    """Return the name in the queue of a point of a sweep."""
    return f"{sweep.name}-{point}"


def queue_next(queue: QueueFolder, sweep: Sweep, like: QueueEntry, at_a_time: int) -> list[str]:
    """Add the points of a sweep that train now and are not in the queue. They train to the present rung, if there is
    one.

    Args:
      queue: the queue.
      sweep: the sweep.
      like: an entry with their priority, GPUs and retries.
      at_a_time: how many points may train at a time, where each is chosen by what those before have reached.

    Returns:
      The names of the new entries.

    Raises:
      ConfigError: the config of a point is wrong.
      UsageError: another run has one of the names.
      StorageError: the files of the sweep or of the queue cannot be read or written.
    """
    entries = shown(queue.read(), notes.read())
    stages = {each.name: each.stage for each in entries if each.entry.sweep == str(sweep.folder)}
    sweep.grow(results_of(sweep, {**_waiting(sweep), **stages}), at_a_time)
    points = {point.name: point for point in sweep.points()}
    targets = sweep.next(results_of(sweep, {**_waiting(sweep), **stages}))
    common = {"priority": like.priority, "gpus": like.gpus, "retries": like.retries, "sweep": str(sweep.folder)}
    queued = queue.read()
    new = {
        name_of(sweep, point): replace(QueueEntry.of(configs.load(points[point].config)), **common, max_steps=target)  # type: ignore[arg-type]
        for point, target in targets.items()
        if name_of(sweep, point) not in queued
    }
    queue.add_all(new)
    return list(new)


def _waiting(sweep: Sweep) -> dict[str, Stage]:
    """Return the stage of points that have no entry yet."""
    return {name_of(sweep, point.name): Stage.WAITING for point in sweep.points()}


def results_of(sweep: Sweep, stages: Mapping[str, Stage]) -> dict[str, PointResult]:
    """Return what each point has reached. Whether it has failed, the queue says: one that waits is tried again.

    Args:
      sweep: the sweep.
      stages: the stage of each of its entries in the queue. A point that has none is not waited for.

    Raises:
      ConfigError: the config of a point is wrong.
      StorageError: the files of a run cannot be read.
    """
    found = {point.name: sweep.result(point) for point in sweep.points()}
    failed = (None, Stage.FAILED)
    return {
        name: replace(result, is_failed=stages.get(name_of(sweep, name)) in failed) for name, result in found.items()
    }


class Promotions:
    """Lets the points of sweeps train on. All that it goes by is in the files of the runs.

    Args:
      queue: the queue.
      clock: seconds since 1970 (UTC).
      timer: seconds on a clock that is never set.

    Attributes:
      troubles: why sweeps do not continue, by their folders.
    """

    def __init__(
        self, queue: QueueFolder, clock: Callable[[], float] = time.time, timer: Callable[[], float] = time.monotonic
    ) -> None:
        self._queue, self._clock, self._timer = queue, clock, timer
        self._seen: dict[str, object] = {}  # of each sweep: what is over, its entries, and its own files
        self._choosing: dict[str, AgentCommand] = {}
        self._failures: dict[str, int] = {}  # of the last choices, in a row
        self._again_at: dict[str, float] = {}
        self.troubles: dict[str, str] = {}

    def promote(self, entries: Mapping[str, QueueEntry], stages: Mapping[str, Stage], at_a_time: int) -> None:
        """Have the points that are to train on wait for their turn, up to their next rung, and add those that follow.

        Args:
          entries: the queue.
          stages: the stage of each entry.
          at_a_time: how many runs train at a time.

        Raises:
          StorageError: the files of a run or of the queue cannot be read or written.
        """
        found = dict[str, dict[str, Stage]]()
        for name, entry in entries.items():
            if entry.sweep:
                found.setdefault(entry.sweep, {})[name] = stages[name]
        for folder in [folder for folder, command in self._choosing.items() if not command.is_running()]:
            self._end_choice(folder, self._choosing.pop(folder).result())
        for each in (self._seen, self._failures, self._again_at, self.troubles):
            for folder in each.keys() - found.keys():
                del each[folder]
        for folder, stages_now in found.items():
            over = {name: stage for name, stage in stages_now.items() if stage in _OVER}
            seen = over, stages_now.keys(), stamp_of(Path(folder, spec.NAME)), stamp_of(Path(folder, rungs.NAME))
            is_due = seen != self._seen.get(folder) and self._timer() >= self._again_at.get(folder, 0.0)
            if is_due and folder not in self._choosing and self._promote(folder, entries, stages_now, at_a_time):
                self._seen[folder] = seen

    def _end_choice(self, folder: str, result: StartResult) -> None:
        """Note how the choice of the next points has ended."""
        if result.code:
            self._fail(folder, f"the sweep {folder} gets no new points: {headline(result.text)}")
        else:
            self._succeed(folder)

    def _succeed(self, folder: str) -> None:
        for each in (self._failures, self._again_at, self.troubles):
            each.pop(folder, None)

    def _fail(self, folder: str, trouble: str) -> None:
        """Note why a sweep does not continue. It is tried again later and later, as a run is started."""
        failures = self._failures.get(folder, 0)
        self._failures[folder] = failures + 1
        self._again_at[folder] = self._timer() + wait_after(failures)
        self._seen.pop(folder, None)
        self._note(folder, trouble)

    def _note(self, folder: str, trouble: str) -> None:
        log.error("%s", trouble, extra={"event": "agent-failed"})
        self.troubles[folder] = trouble

    def _promote(
        self, folder: str, entries: Mapping[str, QueueEntry], stages: Mapping[str, Stage], at_a_time: int
    ) -> bool:
        """Have the points of one sweep train on. Returns False if a config is wrong."""
        try:
            sweep = Sweep.read(Path(folder))
            if sweep.is_adaptive:  # Optuna is large: it runs in a process of its own
                command = [sys.executable, "-m", NAME, "sweep", "next", folder, "--queue", "-n", str(at_a_time)]
                with storage(f"start a process that chooses the next points of {folder}"):
                    self._choosing[folder] = AgentCommand.start(command, folder)
                return True
            halved = sweep.decide(results_of(sweep, stages))
        except ConfigError as error:
            self._fail(folder, f"the sweep {folder} cannot continue: {error}")
            return False
        self._succeed(folder)
        if halved is None:
            return True
        for point, target in halved.targets.items():
            name = name_of(sweep, point)
            if stages.get(name) is Stage.DONE and target != entries[name].max_steps:
                log.info("%s trains on to step %d", name, target, extra={"event": "agent-promote"})
                with contextlib.suppress(ConfigError, UsageError):  # a person changes or removes it at this moment
                    self._queue.change(name, partial(replace, max_steps=target, since=self._clock()))
        if not halved.targets and halved.winner is None:
            self._note(folder, f"the sweep {folder} has no winner: `trainerd sweep show` shows its metrics.")
        return True
