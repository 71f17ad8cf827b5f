"""A run whose loop is trainerd's: steps at graph speed, and at each boundary what is due."""

from __future__ import annotations

import contextlib
import logging

from trainerd.checkpoints.format.gpu_room import peak_memory
from trainerd.config.schema import Config
from trainerd.errors import JobError
from trainerd.loop.contract import Session, Steps
from trainerd.loop.flag import Flag, Request
from trainerd.loop.outcome import PAUSED_EARLY, Outcome
from trainerd.run.host import Host
from trainerd.run.run import Run
from trainerd.rundir import request_files
from trainerd.rundir.paths import RunDirectory
from trainerd.rundir.reporter import Reporter
from trainerd.rundir.state import Phase
from trainerd.system.gpus import watched

log = logging.getLogger(__name__)


def train(config: Config, session: Session, rundir: RunDirectory, host: Host, reporter: Reporter) -> Outcome:
    """Restore the newest checkpoint that verifies, and train until the run is paused or finished.

    A pause may end the process instead, if the loop's thread is in something that takes long.

    Args:
      config: what to train, and how.
      session: the model, as it is built.
      rundir: the run directory.
      host: holds it, and receives signals.
      reporter: holds the state of the run.

    Raises:
      DataError: checkpoints exist and none can be used.
      JobError: a step failed. The state of the last boundary was saved if it is sound.
      StorageError: the save at the end could not be written.
    """
    run = Run(
        config,
        session,
        rundir,
        flag=host.flag,
        reporter=reporter,
        events=session.events(rundir.path),
        reload=host.reload,
        steered=session,
    )
    with reporter.phase(Phase.RESTORING):
        run.restore(accept_changes=config.accept_changes)
    if host.flag.wants(Request.PAUSE):
        request_files.consume_pause(rundir)
        return PAUSED_EARLY
    with host.guarded(run, is_driven=True):
        return Loop(run, session, flag=host.flag, reporter=reporter).train()


class Loop:
    """Runs the loop over one session.

    Args:
      run: what is done at boundaries; it also says at which step training ends.
      session: the model, ready to train.
      flag: checked after every step.
      reporter: shows every change.
    """

    def __init__(self, run: Run, session: Session, *, flag: Flag, reporter: Reporter) -> None:
        self._run = run
        self._session = session
        self._flag = flag
        self._reporter = reporter
        self._is_recording = self._is_announced = False

    def train(self) -> Outcome:
        """Run the loop until the run is paused or finished, and save.

        Raises:
          JobError: a step failed. The state of the last boundary was saved if it is sound.
          StorageError: the save at the end could not be written.
        """
        self._session.bind(self._flag)
        if (epochs := self._session.epochs) is not None:
            self._reporter.set(epochs=epochs.count, last_step=epochs.last_step)
        self._run.start()
        try:
            with self._run.ticker.running(), self._watched_devices():
                outcome = self._loop()
                self._run.finish(outcome, lambda: self._session.end(finished=outcome.phase is Phase.FINISHED))
                return outcome
        except JobError as error:
            self._run.save_after_failure(sound=error.sound)
            raise
        finally:
            self._run.checkpointer.close()
            self._run.recorder.close()

    def _watched_devices(self) -> contextlib.AbstractContextManager[None]:
        """Return a context in which the state shows how the devices are."""
        return watched(self._session.devices, lambda devices: self._reporter.set(devices=devices), peak_memory)

    def _loop(self) -> Outcome:
        """Run steps and boundaries until a boundary ends the run."""
        run, session = self._run, self._session
        before = session.step
        if run.overdue:  # what another process has left undone at this boundary is done before the first step
            self._record_from(before)
        outcome = run.at_boundary(Steps.unmeasured(before, 0))
        while outcome is None and not self._is_announced:
            outcome = self._first_step()
        while outcome is None:
            with run.stepping():
                steps = session.run_until(run.limit())
            outcome = run.at_boundary(steps)
        return outcome

    def _first_step(self) -> Outcome | None:
        """Run the first step alone, since it compiles. If the flag is raised, no step is run."""
        before = self._session.step
        with self._run.stepping():
            steps = self._session.run_until(before + 1)
        if self._session.step == before and steps.then is None:
            return self._run.at_boundary(steps)
        self._record_from(before)  # also the metrics of an epoch's end that another process has left undone
        if self._session.step == before:
            return self._run.at_boundary(steps)
        return self._run.at_boundary(steps, recorded=lambda: self._announce(before + 1))

    def _announce(self, step: int) -> None:
        """Report that this run really trains. Its metrics are there for the observers."""
        self._is_announced = True
        self._reporter.set(phase=Phase.TRAINING, step=self._session.step)
        log.info("training; the first step was %d", step, extra={"event": "training"})
        self._reporter.update()
        if not self._session.has_evaluation and self._session.epochs is None:
            self._run.check_names()

    def _record_from(self, step: int) -> None:
        if not self._is_recording:
            self._run.recorder.begin(self._session, step)
            self._is_recording = True
