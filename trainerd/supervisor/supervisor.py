"""The Supervisor: runs the loop and its services until the run is paused or finished."""

from __future__ import annotations

import contextlib
import logging
import math
import time
from collections.abc import Callable
from dataclasses import dataclass

from trainerd import fingerprint
from trainerd.background import Background
from trainerd.checkpoints import restore
from trainerd.checkpoints.manifest import Manifest
from trainerd.checkpoints.retention import Policy
from trainerd.checkpoints.store import CheckpointStore
from trainerd.config import Config
from trainerd.errors import DataError, JobError, StorageError
from trainerd.rundir import RunDirectory
from trainerd.sessions.contract import Session, Steps
from trainerd.state import Phase
from trainerd.supervisor import requests
from trainerd.supervisor.checkpointing import Checkpointing
from trainerd.supervisor.flag import Flag, Request
from trainerd.supervisor.recording import Events, Recording
from trainerd.supervisor.reporter import Reporter
from trainerd.supervisor.schedule import Mark, Schedule
from trainerd.supervisor.services import Service
from trainerd.supervisor.ticker import Ticker

log = logging.getLogger(__name__)

REPORT_SECS = 1.0


@dataclass(frozen=True)
class Outcome:
    """How training ended: the phase that it left the run in, why, for a person, and whether the data was used up."""

    phase: Phase
    why: str
    input_ended: bool = False


class Supervisor:
    """Runs the loop over one session.

    Args:
      config: the schedules, where training ends, and what is kept.
      session: the model, ready to train.
      rundir: where all of the run goes.
      flag: raised by signals; the files and the clock raise it too.
      reporter: told of every change.
      events: what is written for TensorBoard.
      reload: reads the config again when the flag was raised for that; None where it is wrong.
      writer: the thread that writes checkpoints.
      timer: seconds on a clock that is never set.
    """

    def __init__(
        self,
        config: Config,
        session: Session,
        rundir: RunDirectory,
        *,
        flag: Flag,
        reporter: Reporter,
        events: Events,
        reload: Callable[[], Config | None] = lambda: None,
        writer: Background | None = None,
        timer: Callable[[], float] = time.monotonic,
    ) -> None:
        self._config = config
        self._session = session
        self._rundir = rundir
        self._flag = flag
        self._reporter = reporter
        self._reload = reload
        self._timer = timer
        self.store = CheckpointStore(rundir, timer=timer)
        self._checkpointing = Checkpointing(rundir, self.store, reporter, flag, writer=writer, timer=timer)
        self._recording = Recording(reporter, events, timer=timer)
        self._ticker = Ticker(flag, rundir, timer=timer)
        self._services: list[Service] = []

    # ------------------------------------------------------------------ a run's life, top to bottom

    def restore(self, *, accept_changes: bool = False) -> None:
        """Read the newest checkpoint that verifies into the session; none where the run is new.

        Args:
          accept_changes: whether to go on where the input is no longer the one whose position was saved.

        Raises:
          DataError: checkpoints exist and none can be used.
        """
        self.store.clean()
        self._checkpointing.fingerprint = {**fingerprint.of_config(self._config), **self._session.fingerprint()}
        found = restore.newest_verified(self._rundir, self.store)
        if found is None:
            log.info("a new run: nothing to restore in %s", self._rundir.path, extra={"event": "new"})
            return
        self._compare(found, accept_changes)
        self._session.restore(self._rundir.prefix(found.step))
        self._checkpointing.resumed(found)
        log.info("restored step %d (%s)", found.step, found.reason, extra={"event": "restored"})

    def _compare(self, found: Manifest, accept_changes: bool) -> None:
        """Show what has changed since a checkpoint was saved, and refuse what makes its resume wrong."""
        changes = fingerprint.differences(found.fingerprint, self._checkpointing.fingerprint)
        for change in changes:
            log.info("changed since step %d: %s", found.step, change, extra={"event": "changed"})
        if any(change.is_of_state for change in changes):
            return  # restoring will say so, which is the greater news
        moved = [change for change in changes if change.moves_position]
        if moved and self._config.input_position == "exact" and not accept_changes:
            lines = "\n".join(f"  {change}" for change in moved)
            raise DataError(
                f"the dataset is not the one whose position was saved at step {found.step}:\n{lines}\n"
                "Its batches would not be those that come next. Put it back; or start once with --accept-changes (or "
                f"`touch {self._rundir.accept_changes}` before the start) to go on from that position all the same; "
                'or set input_position = "restart" to begin the dataset anew at every start.'
            )

    def train(self) -> Outcome:
        """Run the loop until the run is paused or finished, and save.

        Raises:
          JobError: a step failed. The state of the last boundary was saved where it is sound.
          StorageError: the save at the end could not be written.
        """
        self._session.bind(self._flag)
        self._start_services()
        try:
            with self._ticker:
                return self._end(self._reached() or self._loop())
        except JobError as error:
            self._save_after_failure(error)
            raise
        finally:
            self._recording.close()

    def _loop(self) -> Outcome:
        """Steps and services, until one of them ends the run. The first step is run alone: it compiles."""
        before, begun = self._session.step, False
        while True:
            if (outcome := self._serve(self._flag.take())) is not None:
                return outcome
            steps = self._session.run_until(self._limit() if begun else before + 1)
            if not begun and self._session.step > before:
                self._begin(before, steps)
                begun = True
            else:
                self._record(steps)
            if (outcome := self._over(steps)) is not None:
                return outcome
            self._run_services()
            if (outcome := self._reached()) is not None:  # an evaluation may have met the target
                return outcome

    def _begin(self, before: int, steps: Steps) -> None:
        """The first step is done: this run really trains. Who is told finds its figures, and the line in the log."""
        self._recording.begin(self._session, before)
        self._record(steps)
        self._reporter.hold(phase=Phase.TRAINING, step=self._session.step)
        log.info("training; the first step was %d", before + 1, extra={"event": "training"})
        self._reporter.update()
        if not self._session.has_evaluation:
            self._check_target()

    def _end(self, outcome: Outcome) -> Outcome:
        """Evaluate what is finished, save, and say so."""
        session, finished = self._session, outcome.phase is Phase.FINISHED
        if not finished:
            self._reporter.update(phase=Phase.PAUSING)
        if session.step > self._checkpointing.saved_step:
            self._recording.write_metrics()
            if finished:
                self._recording.evaluate(session)
                self._recording.summarize(session)
        self._checkpointing.finish(session, "finish" if finished else "pause")
        self._recording.report()
        return outcome

    def _save_after_failure(self, error: JobError) -> None:
        """Save what is sound. What is wrong with that must not hide the error that ends the run."""
        try:
            if error.sound:
                self._checkpointing.finish(self._session, "failure")
            else:
                self._checkpointing.wait()
        except (JobError, StorageError) as another:
            log.error("%s", another, extra={"event": "save-failed"})

    # ------------------------------------------------------------------ requests

    def _serve(self, taken: set[Request]) -> Outcome | None:
        """Serve what the flag was raised for. The outcome where that ends the run."""
        self._checkpointing.settle(self._session)
        if self._config.checkpoint.save_model_secs == "auto":
            self._set_schedules()  # what was just measured may have changed them
        if Request.RELOAD in taken:
            self._apply(self._reload())
        if Request.PAUSE in taken:
            requests.consume(self._rundir.pause)
            if ids := requests.consume_save(self._rundir):
                self._checkpointing.start(self._session, "pause", ids)
            return Outcome(Phase.PAUSED, "paused on request")
        if Request.SAVE in taken:
            self._checkpointing.start(self._session, "request", requests.consume_save(self._rundir))
        self._ticker.set_due(min(self._checkpointing.retry_at, *(service.next_time for service in self._services)))
        return None

    def _apply(self, config: Config | None) -> None:
        """Take over what may change without a stop."""
        if config is not None:
            self._config = config
            self._set_schedules()
            log.info("the configuration was read again", extra={"event": "reload"})

    # ------------------------------------------------------------------ what is over

    def _over(self, steps: Steps) -> Outcome | None:
        if steps.ended:
            why = f"the dataset ended after step {self._session.step}; end it with .repeat() to train for longer"
            return Outcome(Phase.FINISHED, why, input_ended=True)
        return self._reached()

    def _reached(self) -> Outcome | None:
        """Whether training is at its end; a run that was started again may have been before its first step."""
        return reached(self._config, self._session.step, self._reporter.state.metrics)

    # ------------------------------------------------------------------ services

    def _start_services(self) -> None:
        """Make the services, in the order in which those due at one boundary are done: saving comes last."""
        recording, session = self._recording, self._session
        actions: dict[str, Callable[[], None]] = {
            "metrics": recording.write_metrics,
            "evaluate": self._evaluate,
            "summary": lambda: recording.summarize(session),
            "step counter": recording.count_steps,
            "report": self._report,
            "progress": recording.log_progress,
            "checkpoint": self._save_on_schedule,
        }
        mark = Mark(session.step, self._timer())
        self._checkpointing.begin(mark)
        self._services = [Service(name, action, Schedule(), mark) for name, action in actions.items()]
        self._set_schedules()

    def _set_schedules(self) -> None:
        config = self._config
        schedules = {
            "metrics": Schedule(secs=config.summary.metrics_secs),
            "evaluate": Schedule(config.evaluate.evaluate_secs, config.evaluate.evaluate_steps),
            "summary": Schedule(secs=config.summary.save_summaries_secs),
            "step counter": Schedule(secs=config.summary.save_summaries_secs),
            "report": Schedule(secs=REPORT_SECS),
            "progress": Schedule(secs=config.log.progress_secs),
            "checkpoint": Schedule(self._save_secs(), config.checkpoint.save_model_steps),
        }
        for service in self._services:
            service.schedule = schedules[service.name]
        self._reporter.hold(save_model_secs=self._save_secs() or None)
        self.store.policy = _policy(config)
        self._checkpointing.hang_secs = config.watchdog.save_secs
        self._recording.metrics_steps = config.summary.metrics_steps

    def _save_secs(self) -> float:
        """Seconds between checkpoints, as the config says or as was measured."""
        cadence, secs = self._checkpointing.cadence, self._config.checkpoint.save_model_secs
        cadence.max_overhead = self._config.checkpoint.max_overhead
        return cadence.secs if secs == "auto" else float(secs)

    def _run_services(self) -> None:
        mark = Mark(self._session.step, self._timer())
        for service in self._services:
            if service.is_due(mark):
                service.run(mark)
        if mark.now >= self._checkpointing.retry_at:
            self._checkpointing.start(self._session, "retry")

    def _evaluate(self) -> None:
        self._recording.evaluate(self._session)
        self._check_target()

    def _check_target(self) -> None:
        """Warn where the target names a metric that the job does not have: the run would never end."""
        target = self._config.parsed_target()
        mistake = target.mistake(self._reporter.state.metrics) if target is not None else None
        if mistake:
            self._reporter.warn(f"target: {mistake}")

    def _save_on_schedule(self) -> None:
        """By the clock a save that is under way will do; each of so many steps is one that a person counts on."""
        every = self._config.checkpoint.save_model_steps
        if every and self._session.step % every == 0:
            self._checkpointing.make_way()
        self._checkpointing.start(self._session, "schedule")

    def _report(self) -> None:
        self._recording.report()
        self._checkpointing.watch()

    def _limit(self) -> int:
        """The step at which the loop must be at a boundary, whatever the flag."""
        limits = [service.next_step for service in self._services]
        limit = min([*limits, self._config.max_steps or math.inf])
        return int(limit) if limit < math.inf else 2**62

    def _record(self, steps: Steps) -> None:
        """Keep what the steps measured; stop where the loss is no number."""
        self._recording.steps(steps, self._session)
        loss = steps.last().get("loss", 0.0)
        if self._config.stop_on_nan and not math.isfinite(loss):
            step = self._session.step
            with contextlib.suppress(StorageError):
                self._checkpointing.wait()  # for the message: what is under way is from before this
            raise JobError(
                f"the loss became {loss} in step {step}, and nothing was saved after that. Look at the learning "
                f"rate and the data. The next start resumes from {self._checkpointing.resume_point}.",
                step=step,
                sound=False,
            )


def _policy(config: Config) -> Policy:
    keep = config.checkpoint
    return Policy(keep.keep_last, keep.keep_every_hours, config.parsed_best(), keep.keep_best)


def reached(config: Config, step: int, metrics: dict[str, float]) -> Outcome | None:
    """Whether a run with these figures is at the end that its config sets."""
    target = config.parsed_target()
    if target is not None and target.is_met_by(metrics):
        return Outcome(Phase.FINISHED, f"the target {target} is reached at step {step}")
    if config.max_steps is not None and step >= config.max_steps:
        how = "is reached" if step == config.max_steps else f"is passed: {step} steps are done already"
        return Outcome(Phase.FINISHED, f"max_steps = {config.max_steps} {how}")
    return None
