"""The points of sweeps in the queue: what is queued, and which of them train on to the next rung."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path

from trainerd.agent.entry import QueueEntry
from trainerd.agent.progress import Stage
from trainerd.agent.queue_folder import QueueFolder
from trainerd.config import parse as configs
from trainerd.errors import ConfigError
from trainerd.sweeps.sweep import Sweep

log = logging.getLogger(__name__)


def name_of(sweep: Sweep, point: str) -> str:
    """Return the name in the queue of a point of a sweep."""
    return f"{sweep.name}-{point}"


def entries_of(sweep: Sweep) -> dict[str, QueueEntry]:
    """Return the entries of a new sweep, by their names in the queue. They train to its first rung, if it has rungs.

    Raises:
      ConfigError: the config of a point is wrong.
    """
    points = {point.name: point for point in sweep.points()}
    targets = sweep.next({name: sweep.result(point) for name, point in points.items()})
    made = {name: QueueEntry.of(configs.load(point.config)) for name, point in points.items()}
    return {
        name_of(sweep, name): replace(entry, sweep=str(sweep.folder), max_steps=targets.get(name))
        for name, entry in made.items()
    }


class Promotions:
    """Lets the points of sweeps train on. All that it goes by is in the files of the runs.

    Args:
      queue: the queue.
      clock: seconds since 1970 (UTC).
    """

    def __init__(self, queue: QueueFolder, clock: Callable[[], float] = time.time) -> None:
        self._queue, self._clock = queue, clock
        self._stages: dict[str, dict[str, Stage]] = {}

    def promote(self, entries: Mapping[str, QueueEntry], stages: Mapping[str, Stage]) -> None:
        """Have the points that are to train on wait for their turn, up to their next rung.

        Args:
          entries: the queue.
          stages: the stage of each entry.

        Raises:
          StorageError: the files of a run or of the queue cannot be read or written.
        """
        found: dict[str, dict[str, Stage]] = {}
        for name, entry in entries.items():
            if entry.sweep:
                found.setdefault(entry.sweep, {})[name] = stages[name]
        for folder, now in found.items():
            if now != self._stages.get(folder):
                self._promote(Path(folder), entries, now)
        self._stages = found

    def _promote(self, folder: Path, entries: Mapping[str, QueueEntry], stages: Mapping[str, Stage]) -> None:
        try:
            sweep = Sweep.read(folder)
            results = {point.name: sweep.result(point) for point in sweep.points()}
        except ConfigError as error:
            log.error("the sweep %s cannot continue: %s", folder, error, extra={"event": "agent-failed"})
            return
        for point, target in sweep.next(results).items():
            name = name_of(sweep, point)
            if stages.get(name) is Stage.DONE and target is not None and target != entries[name].max_steps:
                log.info("%s trains on to step %d", name, target, extra={"event": "agent-promote"})
                self._queue.change(name, partial(replace, max_steps=target, since=self._clock()))
