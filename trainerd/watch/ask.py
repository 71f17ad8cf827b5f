"""Requests of the watcher to a run: it writes the request files, as the commands do."""

from __future__ import annotations

import os
import uuid
from functools import partial
from pathlib import Path
from typing import Literal

from trainerd.errors import NotRunningError
from trainerd.rundir.lock import read_holder
from trainerd.rundir.paths import RunDirectory
from trainerd.rundir.request_files import append
from trainerd.rundir.requests.pending_request import PendingRequest

Action = Literal["save", "pause"]


def ask(rundir: RunDirectory, what: Action, why: str = "") -> PendingRequest:
    """Ask the process that trains a run for a checkpoint or a pause. It answers at its next step.

    Args:
      rundir: the run directory.
      what: what it is asked for.
      why: who asks for a pause, and why, in one line, which the run repeats at its end; empty if a person asks.

    Returns:
      The request. Its process is a worker's if only workers that are not the chief are on this machine. The run's state
      has the answer to a save under the id of the request. A pause has no id: its answer is its end.

    Raises:
      NotRunningError: nothing trains there.
      StorageError: the request cannot be written.
    """
    for place in (rundir, *rundir.workers()):
        if (holder := read_holder(place)) is not None:
            request = uuid.uuid4().hex if what == "save" else ""
            path = _folder(place) / (place.save if what == "save" else place.pause).name
            said = request if what == "save" else why
            line = f"{said}\n" if said else ""
            answered_in = rundir if what == "save" else place
            pending = PendingRequest(answered_in, holder, request, partial(append, path, line), path, f"{what}d")
            pending.send()
            return pending
    raise NotRunningError(f"nothing trains in {rundir.path}: there is nothing to {what}.")


def _folder(rundir: RunDirectory) -> Path:
    """Return the folder for a request: the run directory, or its folder for a group if only that can be written."""
    is_ours = os.access(rundir.path, os.W_OK, effective_ids=True)
    is_for_group = rundir.requests.is_dir() and not rundir.requests.is_symlink()  # a link may lead to another run
    return rundir.requests if is_for_group and not is_ours else rundir.path
