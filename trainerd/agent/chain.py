"""Chains: a run that begins at a checkpoint of the run before it."""

from __future__ import annotations

from pathlib import Path

from trainerd.agent.entry import QueueEntry
from trainerd.config import parse as configs
from trainerd.history.choice import choose
from trainerd.history.fork import fork
from trainerd.history.rollback import RollbackTarget
from trainerd.history.run_job import job_of
from trainerd.rundir.paths import RunDirectory


def begin(entry: QueueEntry, after: QueueEntry) -> None:
    """Fork the run of an entry from the run that it comes after, unless it has checkpoints already.

    Args:
      entry: an entry with `begin_at`.
      after: the entry that it comes after.

    Raises:
      TrainerdError: the checkpoint does not exist, or the run directory is not empty.
    """
    source, rundir = RunDirectory(Path(after.logdir)), RunDirectory(Path(entry.logdir))
    if rundir.steps():
        return
    job = configs.load(Path(entry.config)).entry
    is_other = job != job_of(source)
    fork(
        source,
        RollbackTarget(choose(source, entry.begin_at), None),
        rundir.path,
        {"entry": f'"{job}"'} if is_other else {},
    )
