"""The loop: steps at graph speed, and at each boundary what is due."""

from __future__ import annotations

import contextlib
import logging
import math

from trainerd.errors import JobError, StorageError
from trainerd.loop.contract import Session, Steps
from trainerd.loop.flag import Flag
from trainerd.loop.outcome import Outcome, reached
from trainerd.loop.services import Services
from trainerd.rundir.reporter import Reporter
from trainerd.rundir.state import Phase

log = logging.getLogger(__name__)


class Loop:
    """Runs the loop over one session.

    Args:
      services: what is done at boundaries; it also says where training ends.
      session: the model, ready to train.
      flag: looked at after every step.
      reporter: told of every change.
    """

    def __init__(self, services: Services, session: Session, *, flag: Flag, reporter: Reporter) -> None:
        self._services = services
        self._session = session
        self._flag = flag
        self._reporter = reporter
        self._is_recording = False

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
                outcome = self._reached() or self._loop()
                self._services.finish(outcome, lambda: self._session.end(finished=outcome.phase is Phase.FINISHED))
                return outcome
        except JobError as error:
            self._services.save_after_failure(sound=error.sound)
            raise
        finally:
            self._services.checkpointer.close()
            self._services.recorder.close()

    def _loop(self) -> Outcome:
        """Steps and services, until one of them ends the run. The first step is run alone: it compiles."""
        before, begun = self._session.step, False
        while True:
            if (outcome := self._services.serve(self._flag.take())) is not None:
                return outcome
            with self._services.stepping():
                steps = self._session.run_until(self._limit(before, begun))
            if not begun and self._session.step > before:
                self._begin(before, steps)
                begun = True
            else:
                self._record(steps)
            if steps.then is not None:
                self._services.between(steps.then)
            if (outcome := self._over(steps)) is not None:
                return outcome
            self._services.run_due()
            if (outcome := self._reached()) is not None:  # an evaluation may have met the target
                return outcome

    def _limit(self, before: int, begun: bool) -> int:
        """The step to run to. Before the first, what another process has left undone at this boundary is done."""
        if begun:
            return self._services.limit()
        if not self._services.owed:
            return before + 1
        self._record_from(before)
        return before

    def _begin(self, before: int, steps: Steps) -> None:
        """The first step is done: this run really trains. Who is told finds its figures, and the line in the log."""
        self._record_from(before)
        self._record(steps)
        self._reporter.hold(phase=Phase.TRAINING, step=self._session.step)
        log.info("training; the first step was %d", before + 1, extra={"event": "training"})
        self._reporter.update()
        if not self._session.has_evaluation and not self._session.has_epochs:
            self._services.check_names()

    def _record_from(self, step: int) -> None:
        if not self._is_recording:
            self._services.recorder.begin(self._session, step)
            self._is_recording = True

    # ------------------------------------------------------------------ what is over

    def _over(self, steps: Steps) -> Outcome | None:
        if steps.over:
            return Outcome(Phase.FINISHED, steps.over, by_job=True)
        if steps.ended:
            why = f"the dataset ended after step {self._session.step}; end it with .repeat() to train for longer"
            return Outcome(Phase.FINISHED, why, by_job=True)
        return self._reached()

    def _reached(self) -> Outcome | None:
        """Whether training is at its end; a run that was started again may have been before its first step."""
        return reached(self._services.config, self._session.step, self._reporter.state.metrics)

    def _record(self, steps: Steps) -> None:
        """Keep what the steps measured; stop where the loss is no number."""
        self._services.recorder.steps(steps, self._session)
        loss = steps.last().get("loss", 0.0)
        if self._services.config.stop_on_nan and not math.isfinite(loss):
            step = self._session.step
            with contextlib.suppress(StorageError):
                self._services.checkpointer.wait()  # for the message: what is under way is from before this
            raise JobError(
                f"the loss became {loss} in step {step}, and nothing was saved after that. Look at the learning "
                f"rate and the data. The next start resumes from {self._services.checkpointer.resume_point}.",
                step=step,
                sound=False,
            )
