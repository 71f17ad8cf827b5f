"""Finds out that a run is over before its job is loaded, which takes seconds and a GPU."""

from __future__ import annotations

import logging

from trainerd.checkpoints import latest
from trainerd.checkpoints.catalogue import Catalogue
from trainerd.checkpoints.manifest import FINISH, Manifest
from trainerd.config import fingerprint
from trainerd.config.schema import Config
from trainerd.job.source import is_unchanged
from trainerd.loop.outcome import Outcome, reached
from trainerd.rundir.paths import RunDirectory
from trainerd.rundir.state import Phase, State

log = logging.getLogger(__name__)

_NOT_LOADED = (
    ". The config and the job's source have not changed since then, so the job was not loaded. If it depends on "
    "something else that has changed, start with --accept-changes"
)


def over_already(
    config: Config, rundir: RunDirectory, newest: Manifest | None, left: State | None, *, accepts_changes: bool
) -> Outcome | None:
    """Return the outcome of a run, if nothing is left to do and its newest checkpoint is whole; else None.

    Args:
      config: what is to be trained now.
      rundir: the run directory.
      newest: its newest checkpoint; None if there is none.
      left: the state that the process before has left; None if there is none.
      accepts_changes: whether the person says that something has changed.

    Raises:
      StorageError: a file cannot be read now.
    """
    if newest is None or newest.step == 0 or newest.unfinished:
        return None
    over = reached(config, newest.step, newest.metrics)
    if over is None and left is not None and not accepts_changes:
        over = _ended_by_its_epochs(config, newest, left)
    if over is None:
        return None
    found, damaged = latest.newest_sound(rundir, Catalogue.read(rundir))
    return over if found is not None and found.step == newest.step and not damaged else None


def log_end(left: State | None) -> None:
    """Log that a run which is loaded had finished: its job may want more steps now."""
    if left is not None and left.phase is Phase.FINISHED and left.ended:
        ended = left.ended.removesuffix(_NOT_LOADED)
        log.info("the run had finished: %s. It continues if there is more to train", ended)


def _ended_by_its_epochs(config: Config, newest: Manifest, left: State) -> Outcome | None:
    """Return the outcome of a job that has done its epochs, if neither the config nor the job's source has changed
    since.

    Other ends of a job are not known here: a dataset may have grown, and a program decides by itself.
    """
    saved = newest.fingerprint
    is_at_its_end = left.phase is Phase.FINISHED and newest.reason == FINISH and left.step == newest.step
    if not is_at_its_end or not left.ended or fingerprint.EPOCHS not in saved:
        return None
    of_config = {name: value for name, value in saved.items() if name.startswith("config.")}
    if of_config != fingerprint.of_config(config) or not is_unchanged(saved.get(fingerprint.SOURCE, ""), config.folder):
        return None
    return Outcome(Phase.FINISHED, left.ended.removesuffix(_NOT_LOADED) + _NOT_LOADED, by_job=True)
