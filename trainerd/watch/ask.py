"""How the watcher asks a run for something: by the request files, as the commands do."""

from __future__ import annotations

import os
from pathlib import Path

from trainerd.errors import NotRunningError, UsageError
from trainerd.rundir.lock import read_holder
from trainerd.rundir.paths import RunDirectory
from trainerd.rundir.request_files import append

ASKED = ("save", "pause")


def ask(rundir: RunDirectory, what: str) -> int:
    """Ask the process that trains a run for a checkpoint or a pause. It answers at its next step.

    Args:
      rundir: the run directory.
      what: "save" or "pause".

    Returns:
      The pid of that process; that of a worker, where only workers of the run that are not the chief are here.

    Raises:
      UsageError: nobody can be asked for that.
      NotRunningError: nothing trains there.
      StorageError: the request cannot be written.
    """
    if what not in ASKED:
        raise UsageError(f"a run is asked for {' or '.join(ASKED)}, and not for {what!r}.")
    for place in (rundir, *rundir.workers()):
        if (holder := read_holder(place)) is not None:
            append(_folder(place) / (place.save if what == "save" else place.pause).name, "")
            return holder.pid
    raise NotRunningError(f"nothing trains in {rundir.path}: there is nothing to {what}.")


def _folder(rundir: RunDirectory) -> Path:
    """Where to ask: in the run directory, or in its folder for a group if this process may write into that alone."""
    is_ours = os.access(rundir.path, os.W_OK, effective_ids=True)
    is_for_group = rundir.requests.is_dir() and not rundir.requests.is_symlink()  # a link may lead to another run
    return rundir.requests if is_for_group and not is_ours else rundir.path
