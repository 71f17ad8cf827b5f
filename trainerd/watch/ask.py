"""Requests of the watcher to a run: it writes the request files, as the commands do."""

from __future__ import annotations

import os
import uuid
from pathlib import Path
from typing import Literal

from trainerd.errors import NotRunningError
from trainerd.rundir.lock import read_holder
from trainerd.rundir.paths import RunDirectory
from trainerd.rundir.request_files import append


def ask(rundir: RunDirectory, what: Literal["save", "pause"]) -> tuple[int, str]:
    """Ask the process that trains a run for a checkpoint or a pause. It answers at its next step.

    Args:
      rundir: the run directory.
      what: what it is asked for.

    Returns:
      The pid of the process, which is a worker's if only workers that are not the chief are on this machine; and the id
      of the request, under which the run's state has the answer. A pause has none: its answer is its end.

    Raises:
      NotRunningError: nothing trains there.
      StorageError: the request cannot be written.
    """
    for place in (rundir, *rundir.workers()):
        if (holder := read_holder(place)) is not None:
            request = uuid.uuid4().hex if what == "save" else ""
            path = place.save if what == "save" else place.pause
            append(_folder(place) / path.name, f"{request}\n" if request else "")
            return holder.pid, request
    raise NotRunningError(f"nothing trains in {rundir.path}: there is nothing to {what}.")


def _folder(rundir: RunDirectory) -> Path:
    """Return the folder for a request: the run directory, or its folder for a group if only that can be written."""
    is_ours = os.access(rundir.path, os.W_OK, effective_ids=True)
    is_for_group = rundir.requests.is_dir() and not rundir.requests.is_symlink()  # a link may lead to another run
    return rundir.requests if is_for_group and not is_ours else rundir.path
