"""Requests of the watcher to a run: it writes the request files, as the commands do."""

from __future__ import annotations

import os
import uuid
from dataclasses import dataclass
from pathlib import Path

from trainerd.errors import NotRunningError, UsageError
from trainerd.rundir.lock import read_holder
from trainerd.rundir.paths import RunDirectory
from trainerd.rundir.request_files import append

ASKED = ("save", "pause")


@dataclass(frozen=True)
class Asked:
    """A request that was made to a process.

    Attributes:
      pid: the process; that of a worker, if only workers that are not the chief are on this machine.
      id: of the request, under which the run's state has the answer; empty for a pause, whose answer is its end.
    """

    pid: int
    id: str


def ask(rundir: RunDirectory, what: str) -> Asked:
    """Ask the process that trains a run for a checkpoint or a pause. It answers at its next step.

    Args:
      rundir: the run directory.
      what: "save" or "pause".

    Raises:
      UsageError: nobody can be asked for that.
      NotRunningError: nothing trains there.
      StorageError: the request cannot be written.
    """
    if what not in ASKED:
        raise UsageError(f"a run is asked for {' or '.join(ASKED)}, and not for {what!r}.")
    for place in (rundir, *rundir.workers()):
        if (holder := read_holder(place)) is not None:
            asked = Asked(holder.pid, uuid.uuid4().hex if what == "save" else "")
            path = place.save if what == "save" else place.pause
            append(_folder(place) / path.name, f"{asked.id}\n" if asked.id else "")
            return asked
    raise NotRunningError(f"nothing trains in {rundir.path}: there is nothing to {what}.")


def _folder(rundir: RunDirectory) -> Path:
    """Return the folder for a request: the run directory, or its folder for a group if only that can be written."""
    is_ours = os.access(rundir.path, os.W_OK, effective_ids=True)
    is_for_group = rundir.requests.is_dir() and not rundir.requests.is_symlink()  # a link may lead to another run
    return rundir.requests if is_for_group and not is_ours else rundir.path
