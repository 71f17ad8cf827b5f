"""Runs that a person started and whose config has `[when]`: the agent takes them into the queue."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Collection
from pathlib import Path

from trainerd.agent.entry import QueueEntry
from trainerd.agent.queue_folder import QueueFolder, free_name
from trainerd.agent.when.configs import WhenConfigs
from trainerd.config.schema import WhenConfig
from trainerd.errors import TrainerdError, UsageError
from trainerd.rundir import registry
from trainerd.rundir.registry import RegisteredRun
from trainerd.rundir.runs import RunReader

log = logging.getLogger(__name__)


class RunsByHand:
    """Finds runs that train, have a `[when]`, and are not in the queue.

    Args:
      queue: the queue.
      whens: reads the configs.
      known: returns the runs of this user.
    """

    def __init__(
        self, queue: QueueFolder, whens: WhenConfigs, known: Callable[[], Collection[RegisteredRun]] = registry.known
    ) -> None:
        self._queue, self._whens, self._known = queue, whens, known
        self._readers: dict[Path, RunReader] = {}
        self._real: dict[str | Path, str] = {}  # what a path leads to
        self._queued: set[str] = set()
        self._removed: set[str] = set()  # from the queue, by a person, while they train

    def add(self, queued: Collection[str]) -> None:
        """Add those that are not in the queue; `queued` are the run directories of the entries.

        Raises:
          StorageError: the runs or the queue cannot be read or written.
        """
        known = self._known()
        paths: list[str | Path] = [*queued, *(run.path for run in known)]
        self._real = {path: self._real.get(path) or os.path.realpath(path) for path in paths}
        there = {self._real[each] for each in queued}
        self._removed = (self._removed | self._queued) - there
        self._queued = there
        found = [run for run in known if self._real[run.path] not in there]
        self._readers = {run.path: self._readers.get(run.path) or RunReader(run.path) for run in found}
        for run in found:
            entry, path = QueueEntry.of_start(run), self._real[run.path]
            if entry is None or not self._has_when(entry):
                continue
            if not self._trains(run.path):
                self._removed.discard(path)
            elif path not in self._removed:
                self._add(run.path, entry)

    def _has_when(self, entry: QueueEntry) -> bool:
        try:
            return self._whens.read(Path(entry.config), entry.set) != WhenConfig()
        except TrainerdError:  # its config has a mistake, or was removed
            return False

    def _trains(self, path: Path) -> bool:
        try:
            return self._readers[path].is_here()
        except TrainerdError:  # another user's
            return False

    def _add(self, path: Path, entry: QueueEntry) -> None:
        state = self._readers[path].read().state
        name = free_name(self._queue.read(), path, state.name if state is not None else "")
        try:
            self._queue.add(name, entry)
        except UsageError:  # somebody else has added it meanwhile
            return
        log.info("%s was started by hand and has a [when]: added to the queue", name, extra={"event": "agent-adopt"})
