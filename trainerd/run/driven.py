"""A run whose loop is trainerd's: steps at graph speed, and at each boundary what is due."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from typing import NoReturn

from trainerd.config.schema import Config
from trainerd.errors import JobError
from trainerd.loop.contract import Session, Steps
from trainerd.loop.flag import Flag, Request
from trainerd.loop.guard.guard import LoopGuard
from trainerd.loop.outcome import PAUSED_EARLY, Outcome
from trainerd.loop.services import Services
from trainerd.rundir import request_files
from trainerd.rundir.paths import RunDirectory
from trainerd.rundir.reporter import Reporter
from trainerd.rundir.state import Phase
from trainerd.system.exit import end_now

log = logging.getLogger(__name__)

LAST_CURVES_SECS = 2.0  # for which an abandoned process waits until its curves are written


class DrivenRun:
    """Resumes a session and trains it, in the run directory that this process holds.

    Args:
      config: what to train, and how.
      session: the model, as it is built.
      rundir: the run directory, whose lock this process holds.
      flag: raised by signals.
      reporter: holds the state of the run.
      reload: reads the config again; returns None for no change.
      ending: called with the outcome before the process is ended for a pause that the loop's thread cannot come to.
      fail: ends the process if a step never ends and the pause could not be saved.

    Attributes:
      services: what is done at its boundaries.
    """

    def __init__(
        self,
        config: Config,
        session: Session,
        rundir: RunDirectory,
        *,
        flag: Flag,
        reporter: Reporter,
        reload: Callable[[], Config | None],
        ending: Callable[[Outcome], None],
        fail: Callable[[BaseException], NoReturn],
    ) -> None:
        events = session.events(rundir.path)
        self.services = Services(
            config, session, rundir, flag=flag, reporter=reporter, events=events, reload=reload, steered=session
        )
        self._rundir = rundir
        self._flag = flag
        self._reporter = reporter
        self._guard = LoopGuard(flag, self.services, lambda outcome: abandon(self.services, outcome, ending), fail)
        self._loop = Loop(self.services, session, flag=flag, reporter=reporter)

    def train(self, *, accept_changes: bool = False) -> Outcome:
        """Restore the newest checkpoint that verifies, and train until the run is paused or finished.

        A pause may end the process instead, if the loop's thread is in something that takes long.

        Args:
          accept_changes: see `Services.restore`.

        Raises:
          DataError: checkpoints exist and none can be used.
          JobError: a step failed. The state of the last boundary was saved where it is sound.
          StorageError: the save at the end could not be written.
        """
        with self._reporter.phase(Phase.RESTORING):
            self.services.restore(accept_changes=accept_changes)
        if self._flag.wants(Request.PAUSE):
            request_files.consume_pause(self._rundir)
            return PAUSED_EARLY
        with self._guard:
            self.services.guarded_by(self._guard)
            return self._loop.train()


def abandon(services: Services, outcome: Outcome, ending: Callable[[Outcome], None]) -> NoReturn:
    """End the process after a pause, from another thread than the loop's, which is stuck.

    Args:
      services: those of the run.
      outcome: the pause.
      ending: called with it first.
    """
    try:
        ending(outcome)
    finally:
        _flush(services)
        end_now(0)


def _flush(services: Services) -> None:
    """Write the last points of the curves, unless that takes long."""
    flushing = threading.Thread(target=services.recorder.close, name="trainerd-last-curves", daemon=True)
    flushing.start()
    flushing.join(LAST_CURVES_SECS)


class Loop:
    """Runs the loop over one session.

    Args:
      services: what is done at boundaries; it also says where training ends.
      session: the model, ready to train.
      flag: looked at after every step.
      reporter: shows every change.
    """

    def __init__(self, services: Services, session: Session, *, flag: Flag, reporter: Reporter) -> None:
        self._services = services
        self._session = session
        self._flag = flag
        self._reporter = reporter
        self._is_recording = self._is_announced = False

    def train(self) -> Outcome:
        """Run the loop until the run is paused or finished, and save.

        Raises:
          JobError: a step failed. The state of the last boundary was saved where it is sound.
          StorageError: the save at the end could not be written.
        """
        self._session.bind(self._flag)
        self._services.start()
        try:
            with self._services.ticker:
                outcome = self._loop()
                self._services.finish(outcome, lambda: self._session.end(finished=outcome.phase is Phase.FINISHED))
                return outcome
        except JobError as error:
            self._services.save_after_failure(sound=error.sound)
            raise
        finally:
            self._services.checkpointer.close()
            self._services.recorder.close()

    def _loop(self) -> Outcome:
        """Steps and boundaries, until one of them ends the run."""
        services, session = self._services, self._session
        before = session.step
        if services.owed:  # what another process has left undone at this boundary is done before the first step
            self._record_from(before)
        outcome = services.at_boundary(Steps.unmeasured(before, 0))
        while outcome is None and not self._is_announced:
            outcome = self._first_step()
        while outcome is None:
            with services.stepping():
                steps = session.run_until(services.limit())
            outcome = services.at_boundary(steps)
        return outcome

    def _first_step(self) -> Outcome | None:
        """Run the first step alone: it compiles. Where the flag is raised, no step is run."""
        before = self._session.step
        with self._services.stepping():
            steps = self._session.run_until(before + 1)
        if self._session.step == before and steps.then is None:
            return self._services.at_boundary(steps)
        self._record_from(before)  # also the metrics of an epoch's end that another process has left undone
        if self._session.step == before:
            return self._services.at_boundary(steps)
        return self._services.at_boundary(steps, recorded=lambda: self._announce(before + 1))

    def _announce(self, step: int) -> None:
        """This run really trains. Its metrics are there for the observers."""
        self._is_announced = True
        self._reporter.hold(phase=Phase.TRAINING, step=self._session.step)
        log.info("training; the first step was %d", step, extra={"event": "training"})
        self._reporter.update()
        if not self._session.has_evaluation and not self._session.has_epochs:
            self._services.check_names()

    def _record_from(self, step: int) -> None:
        if not self._is_recording:
            self._services.recorder.begin(self._session, step)
            self._is_recording = True
