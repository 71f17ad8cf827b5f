"""Finds the checkpoint that a program's session is restored from: one of trainerd's, or one that the program saved."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import tensorflow as tf

from trainerd.checkpoints import saver_checkpoints
from trainerd.checkpoints.format.reader import read_whole
from trainerd.checkpoints.manifest import FINISH, DamagedError, Manifest
from trainerd.history import rollback
from trainerd.run.run import Run
from trainerd.rundir import request_files
from trainerd.rundir.paths import RunDirectory


@dataclass(frozen=True)
class Found:
    """A checkpoint to restore.

    Attributes:
      prefix: its prefix; None if there is none, and the run is new.
      manifest: its manifest; None if the program saved it itself.
    """

    prefix: Path | None = None
    manifest: Manifest | None = None

    @property
    def step(self) -> int:
        """Its step; 0 if that is not known."""
        return self.manifest.step if self.manifest is not None else 0

    @property
    def was_finished(self) -> bool:
        """True if the session that saved it had come to its own end."""
        return self.manifest is not None and self.manifest.reason == FINISH


def find_checkpoint(
    run: Run,
    *,
    wait_secs: float = 0,
    poll_secs: float = 30,
    waiting: Callable[[float], Any] = time.sleep,
) -> Found:
    """Find the newest checkpoint that verifies.

    Args:
      run: the run of the session.
      wait_secs: how long to wait for one.
      poll_secs: how often to look meanwhile.
      waiting: called to wait for so many seconds.

    Raises:
      DataError: there are checkpoints, and none verifies.
    """
    rundir, deadline = run.rundir, time.monotonic() + wait_secs
    accepts = request_files.consume(rundir.accept_changes) or run.config.accept_changes
    run.store.clean()  # what a killed deletion left is nobody's to adopt
    rollback.finish(rundir, run.store)  # nor what a killed rollback was moving
    while True:
        unreadable: dict[str, str] = {}
        own = _programs_own(rundir, unreadable)
        if own is not None:
            return Found(own)
        unreadable |= saver_checkpoints.adopt(rundir, run.store, read_whole)
        found = run.find(accept_changes=accepts, unmanaged=True)
        if found is not None:
            saver_checkpoints.warn_of_unreadable(rundir, unreadable)
            return Found(rundir.prefix(found.step), found)
        saver_checkpoints.refuse_to_start_over(rundir, unreadable)
        if time.monotonic() >= deadline:
            return Found()
        tf.compat.v1.logging.info("Waiting for checkpoint to be available.")
        waiting(poll_secs)


def _programs_own(rundir: RunDirectory, unreadable: dict[str, str]) -> Path | None:
    """Return the prefix that `checkpoint` names, if the program saved it last, under a name that is not ours."""
    named = saver_checkpoints.named(rundir)
    if named is None or saver_checkpoints.is_ours(rundir, named):
        return None
    try:
        read_whole(named)
    except DamagedError as error:
        unreadable[named.name] = str(error)
        return None
    return named
