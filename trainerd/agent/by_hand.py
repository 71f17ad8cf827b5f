"""Runs that a person started and whose config has `[when]`: the agent takes them into the queue."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Collection, Iterator
from pathlib import Path

from trainerd.agent.entry import QueueEntry
from trainerd.agent.queue_folder import QueueFolder
from trainerd.agent.when.configs import WhenConfigs
from trainerd.config.schema import WhenConfig
from trainerd.errors import TrainerdError
from trainerd.rundir import registry
from trainerd.rundir.names import RunIdentity
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

    def add(self, queued: Collection[str]) -> None:
        """Add those that are not in the queue; `queued` are the run directories of the entries.

        Raises:
          StorageError: the runs or the queue cannot be read or written.
        """
        found = [run for run in self._known() if str(run.path) not in queued]
        self._readers = {run.path: self._readers.get(run.path) or RunReader(run.path) for run in found}
        for run in found:
            if run.config is not None and self._whens.read(run.config) != WhenConfig() and self._trains(run.path):
                self._add(run, run.config)

    def _trains(self, path: Path) -> bool:
        try:
            return self._readers[path].is_here()
        except TrainerdError:  # another user's
            return False

    def _add(self, run: RegisteredRun, config: Path) -> None:
        script = run.script
        entry = QueueEntry(
            config=str(config),
            logdir=str(run.path),
            folder=str(script.folder if script is not None else config.parent),
            adopt=script.adopt if script is not None else False,
            arguments=script.arguments if script is not None else (),
        )
        state = self._readers[run.path].read().state
        taken = self._queue.read()
        name = next(each for each in _names(run.path, state.name if state is not None else "") if each not in taken)
        self._queue.add(name, entry)
        log.info("%s was started by hand and has a [when]: added to the queue", name, extra={"event": "agent-adopt"})


def _names(path: Path, name: str) -> Iterator[str]:
    """Yield names for a run, the plainest first."""
    own = RunIdentity(path, name).own_name
    yield own
    yield f"{own}@{path.parent.name or os.sep}"
    number = 2
    while True:
        yield f"{own}-{number}"
        number += 1
