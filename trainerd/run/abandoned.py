"""Ends a session that its program has not ended: the program has ended, or begins another one in the same place."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from trainerd.loop.signals import open_sessions
from trainerd.run.boundary import STUCK_SECS
from trainerd.run.failures import has_failed, is_clean
from trainerd.rundir import lock

if TYPE_CHECKING:
    from trainerd.run.attached import AttachedRun

log = logging.getLogger(__name__)

_ABANDONED = {"event": "abandoned"}
_MAKES_WAY = "an earlier session of this process %s and was not closed: it is ended, as another begins in %s"


class AbandonedRun:
    """Ends a run if its program does not; see `open_sessions.Opened`.

    Args:
      run: the run, which holds a run directory.
    """

    def __init__(self, run: AttachedRun) -> None:
        self._run = run

    def close_for_another(self) -> None:
        """End this session if an error or a pause has ended its loop: another session begins in its run directory.

        A notebook's cell is run once more after that, and with TensorFlow another session can begin. What is sound is
        saved. The run is not ended while a `with` statement will end it, while it is in a step or on another thread,
        or while it may train on. If its folder was removed there is nothing to train on.
        """
        run, session_link = self._run, self._run.session_link
        if run.is_within or session_link.is_within or not session_link.boundary.is_mine:
            return
        if run.rundir is not None and lock.was_removed(run.rundir) and not run.rundir.steps():
            self._drop()
            return
        is_torn = session_link.failed_at == run.changes
        if not is_torn and run.outcome is None:
            return
        if is_torn and is_clean(session_link.failure):  # an epoch's: its loop may begin another
            return
        log.warning(_MAKES_WAY, "has failed" if is_torn else "was asked to stop", run.place, extra=_ABANDONED)
        run.loop.stop(None)
        run.save_and_leave(session_link.failure or open_sessions.left_by_error() if is_torn else None)

    def _drop(self) -> None:
        """End the run without a save."""
        run = self._run
        why = "%s was removed under a session of this process that was not closed: nothing is saved of it any more"
        log.warning(why, run.place, extra=_ABANDONED)
        run.loop.stop(None)
        run.give_up()
        run.close()

    def end(self, error: BaseException | None) -> None:
        """Save what is sound of a session that its program has not ended, and leave: the program has ended.

        If another thread that lives is in a step, only the checkpoint under way is waited for.

        Args:
          error: what the program has ended with.

        Raises:
          StorageError: it could not be saved.
        """
        run, session_link = self._run, self._run.session_link
        if run.is_of_parent:
            return
        run.outlive()
        boundary = session_link.boundary
        boundary.inherit()
        if not boundary.is_mine or (run.rundir is not None and not lock.is_in_place(run.rundir)):
            run.wait()
            return
        log.info("the program has ended without ending its session in %s", run.place, extra=_ABANDONED)
        if not boundary.lock.acquire(timeout=STUCK_SECS):
            why = "%s: another thread is in the middle of a step, and nothing is saved of it"
            log.warning(why, run.place, extra=_ABANDONED)
            run.wait()
            return
        boundary.lock.release()
        run.loop.stop(None)
        if not has_failed(error, run.outcome):
            is_torn = session_link.failed_at == run.changes
            error = session_link.failure or open_sessions.left_by_error() if is_torn else run.requested_error()
        run.save_and_leave(error)
        run.flush()
