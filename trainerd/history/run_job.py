"""The job of a run: the entry of its config, or the program, that its newest checkpoint names."""

from __future__ import annotations

import os
import sys

from trainerd.checkpoints import catalogue
from trainerd.checkpoints.manifest import Manifest
from trainerd.errors import DataError
from trainerd.rundir.paths import RunDirectory
from trainerd.rundir.state import read_state

_ENTRY = "config.entry"  # in a fingerprint


def this_program() -> str:
    """Return the name of the file of the program that this process runs; "" at a prompt and in a notebook, which have
    none.

    Debuggers, profilers and launchers put the program's file into `sys.argv`, but stay the main module.
    """
    has_file = getattr(sys.modules.get("__main__"), "__file__", None) is not None
    return os.path.basename(sys.argv[0]) if has_file and sys.argv else ""  # noqa: PTH119  whatever it is


def is_program(job: str) -> bool:
    """Return whether a job is a program, such as train.py, and not the entry of a config."""
    return ":" not in job


def start_of(program: str) -> str:
    """Return what resumes the run of a program, as the subject of a sentence, without its article."""
    return f"command that started {program}"


def job_of(rundir: RunDirectory) -> str:
    """Return the job of a run, for a person: that of its newest checkpoint, or else of its state; "" if neither names
    one.

    Raises:
      StorageError: they cannot be read.
    """
    if job := _saved_job(catalogue.newest(rundir)):
        return job
    state = read_state(rundir.state)
    return state.job if state is not None else ""


def require_own_job(rundir: RunDirectory, newest: Manifest | None, job: str, *, is_accepted: bool) -> None:
    """Refuse a job in the run directory of another one. Checkpoints that do not name their job are anybody's.

    Args:
      rundir: the run directory.
      newest: its newest checkpoint; None if there is none.
      job: the entry or the program that starts; "" if it has no name.
      is_accepted: whether the person has said that this job may take the run over.

    Raises:
      DataError: the newest checkpoint is of another job.
    """
    own = "" if is_accepted or not job else _saved_job(newest)
    if own not in ("", job):
        resumes = f" The {start_of(own)} resumes it." if is_program(own) else ""
        touch = f"`touch {rundir.accept_job}` before the start"
        accept = f"run {touch}" if is_program(job) else f"start once with --accept-job (or {touch})"
        raise DataError(
            f"{rundir.path} holds the run of {_named(own)}, not of {_named(job)}.{resumes} Give {_named(job)} a "
            f"`logdir` of its own. If it was renamed, or is to take over this run, {accept}."
        )


def _saved_job(newest: Manifest | None) -> str:
    return newest.fingerprint.get(_ENTRY, "") if newest is not None else ""


def _named(job: str) -> str:
    return f"the program {job}" if is_program(job) else f"the job {job}"
