"""Chains: a run that begins at a checkpoint of the run before it."""

from __future__ import annotations

from pathlib import Path

from trainerd.agent.entry import QueueEntry
from trainerd.config import parse as configs
from trainerd.errors import NotRunningError
from trainerd.history.choice import choose
from trainerd.history.fork import fork
from trainerd.history.rollback import RollbackTarget
from trainerd.history.run_job import job_of
from trainerd.rundir.paths import RunDirectory


def begin(entry: QueueEntry, after: QueueEntry | None) -> None:
    """Fork the run of an entry from the run that it comes after, unless it has checkpoints already.

    Args:
      entry: an entry with `begin_at`.
      after: the entry that it comes after; None if that was removed from the queue.

    Raises:
      TrainerdError: the checkpoint or the entry does not exist, or the run directory is not empty.
    """
    rundir = RunDirectory(Path(entry.logdir))
    if rundir.steps():
        return
    if after is None:
        raise NotRunningError(
            f"the run begins at {entry.begin_at} of {entry.after}, which is not in the queue. Add {entry.after} again; "
            "or remove this run, and add it without --after and --from."
        )
    source = RunDirectory(Path(after.logdir))
    job = configs.load(Path(entry.config)).entry
    is_other = job != job_of(source)
    fork(
        source,
        RollbackTarget(choose(source, entry.begin_at), None),
        rundir.path,
        {"entry": f'"{job}"'} if is_other else {},
    )
