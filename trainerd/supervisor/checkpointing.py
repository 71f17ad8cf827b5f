"""The checkpoint service: saves at a boundary, announces what is durable, and tries again where it failed."""

from __future__ import annotations

import logging

from trainerd.checkpoints import catalogue
from trainerd.checkpoints.manifest import Manifest
from trainerd.checkpoints.snapshot import UnsoundError
from trainerd.checkpoints.store import CheckpointStore
from trainerd.errors import JobError, StorageError
from trainerd.rundir import RunDirectory
from trainerd.sessions.contract import Session
from trainerd.state import LastCheckpoint, Phase
from trainerd.supervisor.reporter import Reporter

log = logging.getLogger(__name__)

RETRY_SECS = 15.0
MAX_RETRY_SECS = 600.0
_FAILED = "the last save failed"


class Checkpointing:
    """Saves one session's state through the store.

    Args:
      rundir: where.
      store: what makes a snapshot durable.
      reporter: told of each checkpoint and each failure.
    """

    def __init__(self, rundir: RunDirectory, store: CheckpointStore, reporter: Reporter) -> None:
        self.store = store
        self._rundir = rundir
        self._reporter = reporter
        self._last: LastCheckpoint | None = None
        self._failures = 0

    @property
    def saved_step(self) -> int:
        """The step of the newest checkpoint of this line of training; 0, where every run begins, before it."""
        return self._last.step if self._last else 0

    @property
    def resume_point(self) -> str:
        """Where the next start would resume, for a message."""
        return f"step {self._last.step}" if self._last else "the beginning: there is no checkpoint yet"

    def resumed(self, found: Manifest) -> None:
        """The run goes on from this checkpoint."""
        self._last = catalogue.as_last(self._rundir, found)
        self._reporter.update(step=found.step, metrics=dict(found.metrics), last_checkpoint=self._last)

    def save(self, session: Session, reason: str) -> None:
        """Make a checkpoint of this boundary and announce it; none where this step has one already.

        Raises:
          StorageError: it could not be written.
          JobError: the state holds a NaN.
        """
        step = session.step
        if self._last is not None and self._last.step == step:
            log.info("step %d is saved already", step, extra={"event": "checkpoint", "step": step})
            return
        try:
            with self._reporter.phase(Phase.SAVING):
                metrics = self._reporter.state.metrics
                self._last = self.store.publish(session.snapshot(), reason=reason, metrics=metrics)
        except UnsoundError as error:
            raise JobError(
                f"{error} after step {step}, so that step was not saved. The next start resumes from "
                f"{self.resume_point}. Where that is meant to be, set `stop_on_nan = false`.",
                step=step,
                sound=False,
            ) from None
        except StorageError as error:
            self._failures += 1
            self._reporter.unwarn(_FAILED)  # of an earlier step
            self._reporter.warn(f"{_FAILED}: {error}")
            log.error("%s: %s", _FAILED, error, extra={"event": "save-failed", "step": step})
            raise
        self._announce(self._last)

    def try_to_save(self, session: Session, reason: str) -> StorageError | None:
        """Save, and go on where that fails: a full disk must not end the training.

        Returns:
          Why it failed, or None.
        """
        try:
            self.save(session, reason)
        except StorageError as error:
            return error
        return None

    def retry_secs(self) -> float:
        """After how many seconds a save that failed is to be tried again: a pause that doubles."""
        return float(min(MAX_RETRY_SECS, RETRY_SECS * 2 ** min(self._failures - 1, 10)))

    def _announce(self, saved: LastCheckpoint) -> None:
        self._failures = 0
        self._reporter.unwarn(_FAILED)
        self._reporter.update(last_checkpoint=saved)
        log.info(
            "saved step %d (%s) in %.2f s: %s",
            saved.step,
            saved.reason,
            saved.seconds,
            saved.path,
            extra={"event": "checkpoint", "step": saved.step, "reason": saved.reason},
        )
