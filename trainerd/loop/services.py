"""What is done for a run at its boundaries: requests are served, services are run, checkpoints are made.

Who runs the steps is not its business: the daemon's loop, or a script of the user's own.
"""

from __future__ import annotations

import contextlib
import logging
import math
import time
from collections.abc import Callable, Mapping

from trainerd.checkpoints import latest
from trainerd.checkpoints.manifest import FINISH, Manifest
from trainerd.checkpoints.retention import Policy
from trainerd.checkpoints.store import CheckpointStore
from trainerd.config import fingerprint
from trainerd.config.schema import Config
from trainerd.errors import DataError, JobError, StorageError
from trainerd.loop.checkpointer import Checkpointer
from trainerd.loop.contract import Events, Model
from trainerd.loop.flag import Flag, Request
from trainerd.loop.guard import Guard, HeldState
from trainerd.loop.holding import Holding
from trainerd.loop.outcome import Outcome
from trainerd.loop.recorder import Recorder
from trainerd.loop.schedule import Mark, Schedule, Service
from trainerd.loop.state_check import StateCheck
from trainerd.loop.ticker import Ticker
from trainerd.rundir import lock, request_files
from trainerd.rundir.paths import RunDirectory
from trainerd.rundir.reporter import Reporter
from trainerd.rundir.state import Phase
from trainerd.system.threads import Background

log = logging.getLogger(__name__)

REPORT_SECS = 1.0
BUILT_OTHERWISE = (
    "what the job builds is not what it built when step %d was saved, and its source is the same: names, shapes or "
    "constants depend on something that is another at each start, and what was learned may belong to other things now, "
    "as the rows of an embedding to other words. Likely causes: the order of a set (use sorted()), hash() of a text "
    "(PYTHONHASHSEED), the order of os.listdir or glob (use sorted()), the clock, the pid, random numbers without a "
    "seed; or a module that the job imports was changed"
)


class Services:
    """Looks after one session.

    Args:
      config: the schedules, and what is kept.
      session: the model.
      rundir: where all of the run goes.
      flag: raised by signals; the files and the clock raise it too.
      reporter: told of every change.
      events: what is written for TensorBoard.
      reload: reads the config again when the flag was raised for that; None where it is wrong.
      writer: the thread that writes checkpoints.
      timer: seconds on a clock that is never set.

    Attributes:
      config: as it was last read.
      checkpointer: makes the checkpoints.
      recorder: keeps the figures.
      ticker: raises the flag by the clock and for files; started and stopped by who runs the steps.
      holding: holds the state while what may take long is under way; None where pauses wait for its end.
    """

    def __init__(
        self,
        config: Config,
        session: Model,
        rundir: RunDirectory,
        *,
        flag: Flag,
        reporter: Reporter,
        events: Events,
        reload: Callable[[], Config | None] = lambda: None,
        writer: Background | None = None,
        timer: Callable[[], float] = time.monotonic,
    ) -> None:
        self.config = config
        self.store = CheckpointStore(rundir, timer=timer)
        self.recorder = Recorder(reporter, events, timer=timer)
        self.checkpointer = Checkpointer(
            rundir, self.store, reporter, flag, writer=writer, timer=timer, elsewhere=lambda: self.recorder.took
        )
        self.ticker = Ticker(flag, rundir, timer=timer)
        self.holding: Holding | None = None
        self._session = session
        self._rundir = rundir
        self._was_at = rundir.path
        self._reporter = reporter
        self._reload = reload
        self._timer = timer
        self._services: list[Service] = []
        self._owed: tuple[str, ...] = ()  # the services that the process before left undone where this one begins
        self._unfinished: tuple[str, ...] = ()  # those that are due where something is done that may take long

    def guarded_by(self, guard: Guard, *, in_services: bool = True) -> None:
        """Have pauses and saves that come while something takes long served at once.

        Args:
          guard: serves them.
          in_services: whether a service may be abandoned for that, and not only a step.
        """
        check = StateCheck(refuse=self.config.deterministic)
        self.holding = Holding(self._session, guard, check, timer=self._timer)
        if in_services:
            self.recorder.section = lambda name: self.section(name)

    def section(self, name: str) -> contextlib.AbstractContextManager[None]:
        """Around what may take long at a boundary."""
        return self.holding.section(name, self._unfinished) if self.holding else contextlib.nullcontext()

    def stepping(self, *, is_ending: bool = False) -> contextlib.AbstractContextManager[None]:
        """Around steps, which may wait for ever where they call Python.

        Args:
          is_ending: whether the loop was told to end.
        """
        patience = self.config.watchdog.pause_secs
        if self.holding is None or not patience:
            return contextlib.nullcontext()
        if is_ending:
            return self.holding.ending(patience)
        return self.holding.stepping(patience) if self._session.calls_python else contextlib.nullcontext()

    # ------------------------------------------------------------------ the beginning

    def restore(self, *, accept_changes: bool = False) -> None:
        """Read the newest checkpoint that verifies into the session; none where the run is new.

        Args:
          accept_changes: whether to go on where the input is no longer the one whose position was saved.

        Raises:
          DataError: checkpoints exist and none can be used.
        """
        found = self.find(accept_changes=accept_changes)
        if found is not None:
            self._session.restore(self._rundir.prefix(found.step))
            self.resumed(found)

    def find(self, *, accept_changes: bool = False, foreign: bool = False) -> Manifest | None:
        """The newest checkpoint that verifies, for who restores it by other means; see `restore`.

        `foreign` says whether a program's own checkpoints may be there.
        """
        self.store.clean()
        self.checkpointer.fingerprint = {**fingerprint.of_config(self.config), **self._session.fingerprint()}
        found = latest.newest_verified(self._rundir, self.store, foreign=foreign)
        if found is None:
            log.info("a new run: nothing to restore in %s", self._rundir.path, extra={"event": "new"})
        else:
            self._compare(found, accept_changes)
        return found

    def resumed(self, found: Manifest) -> None:
        """The session has been restored from this checkpoint."""
        self.store.resumed(found.step)
        self._owed = found.unfinished
        self.checkpointer.resumed(found)
        log.info("restored step %d (%s)", found.step, found.reason, extra={"event": "restored"})

    def _compare(self, found: Manifest, accept_changes: bool) -> None:
        """Show what has changed since a checkpoint was saved, and refuse what makes its resume wrong."""
        if not found.fingerprint:  # a program saved it itself
            return
        changes = fingerprint.differences(found.fingerprint, self.checkpointer.fingerprint)
        for change in changes:
            log.info("changed since step %d: %s", found.step, change, extra={"event": "changed"})
        if any(change.is_of_state for change in changes):
            return  # restoring will say so, which is the greater news
        if fingerprint.builds_otherwise(changes):
            log.warning(BUILT_OTHERWISE, found.step, extra={"event": "changed"})
        if any(change.moves_order for change in changes) and self.config.input_position == "exact":
            log.warning(
                "the data of the dataset are not those of step %d: of the epoch that goes on some "
                "elements come twice and some never. Where their order is drawn at random at each start, as by "
                "image_dataset_from_directory without a seed, give it one; where it is that of a set, sort it.",
                found.step,
                extra={"event": "changed"},
            )
        others = [change for change in changes if change.is_of_optimizer]
        if others and not accept_changes:
            lines = "\n".join(f"  {change}" for change in others)
            raise DataError(
                f"the optimizer is not the one that was saved at step {found.step}:\n{lines}\n"
                "What the one kept means something else to the other. Put it back; or use another `logdir` for another "
                "optimizer; or start once with --accept-changes (or "
                f"`touch {self._rundir.accept_changes}` before the start) to go on with them all the same."
            )
        moved = [change for change in changes if change.moves_position]
        if moved and self.config.input_position == "exact" and not accept_changes:
            lines = "\n".join(f"  {change}" for change in moved)
            raise DataError(
                f"the dataset is not the one whose position was saved at step {found.step}:\n{lines}\n"
                "Its batches would not be those that come next. Put it back; or start once with --accept-changes (or "
                f"`touch {self._rundir.accept_changes}` before the start) to go on from that position all the same, "
                "which TensorFlow can where the stages are the same; "
                'or set input_position = "restart" to begin the dataset anew at every start.'
            )

    def serve(self, taken: set[Request]) -> Outcome | None:
        """Serve what the flag was raised for. The outcome where that ends the run."""
        self.checkpointer.settle(self._session)
        if self._rundir.path != self._was_at:
            self._was_at = self._rundir.path
            self.recorder.moved(self._was_at)
        if self.config.checkpoint.save_model_secs == "auto":
            self._set_schedules()  # what was just measured may have changed them
        if Request.RELOAD in taken:
            self._apply(self._reload())
        if Request.PAUSE in taken:
            if ids := self._accept_pause():
                self.checkpointer.start(self._session, "pause", ids, self.owed)
            return Outcome(Phase.PAUSED, "paused on request")
        if Request.SAVE in taken:
            self.checkpointer.start(self._session, "request", request_files.consume_save(self._rundir), self.owed)
        self.ticker.set_due(min(self.checkpointer.retry_at, *(service.next_time for service in self._services)))
        return None

    def _accept_pause(self) -> list[str]:
        """A pause is served now. The ids of those who wait for the checkpoint."""
        lock.require_in_place(self._rundir)
        request_files.consume(self._rundir.pause)
        return request_files.consume_save(self._rundir)

    # ------------------------------------------------------------------ served by the guard, on its thread

    @property
    def is_saving(self) -> bool:
        """Whether a checkpoint is being written."""
        return self.checkpointer.is_busy

    def save_held(self, held: HeldState) -> None:
        """Begin to make a checkpoint of a held state, for those who asked for one."""
        ids = request_files.consume_save(self._rundir)
        try:
            self.checkpointer.start(held, "request", ids, held.unfinished)
        except (JobError, StorageError) as error:
            self.checkpointer.answer(ids, None, str(error))

    def pause_held(self, held: HeldState) -> Outcome:
        """Make a checkpoint of a held state, and wait until it is durable.

        Raises:
          JobError: the state must not be saved.
          StorageError: it could not be.
        """
        log.info("pausing at step %d, while %s is under way", held.step, held.what, extra={"event": "pausing"})
        ids, saving = self._accept_pause(), self.checkpointer
        with self._reporter.phase(Phase.PAUSING):
            saving.wait()
            if held.patience and saving.saved_step > held.step:  # what is on disk is newer
                saving.answer(ids, saving.saved_step, None)
            else:
                saving.finish(held, "pause", ids=ids, unfinished=held.unfinished)
        self._reporter.hold(step=saving.saved_step)
        if held.patience:
            why = f"{held.what} did not end for {held.patience:g} s, and was abandoned"
        else:
            why = f"{held.what} of step {held.step} was abandoned, and is made again at the next start"
        return Outcome(Phase.PAUSED, f"paused on request; {why}")

    def apply(self, config: Config) -> None:
        """Take over what may change without a stop."""
        self.config = config
        self._set_schedules()

    def _apply(self, config: Config | None) -> None:
        if config is not None:
            self.apply(config)
            log.info("the configuration was read again", extra={"event": "reload"})

    # ------------------------------------------------------------------ the end

    def finish(self, outcome: Outcome, end: Callable[[], None]) -> None:
        """Evaluate what is finished, save, and say so.

        Args:
          outcome: how the run has ended.
          end: tells the session, which may take long where the run is finished.

        Raises:
          JobError: the state must not be saved.
          StorageError: it could not be.
        """
        session, finished = self._session, outcome.phase is Phase.FINISHED
        is_new = session.step > self.checkpointer.saved_step or bool(finished and self.owed)
        self._unfinished = self._at_end() if finished and is_new else ()
        with self.section("the end of training") if finished else contextlib.nullcontext():
            end()
        if not finished:
            self._reporter.update(phase=Phase.PAUSING)
        if is_new:
            self.recorder.write_metrics()
            if finished:
                self.recorder.evaluate(session)
                if self.config.summary.save_summaries_secs:
                    self.recorder.summarize(session)
        owed = () if finished else self.owed
        self.checkpointer.finish(session, FINISH if finished else "pause", unfinished=owed)
        self.recorder.report()

    def _at_end(self) -> tuple[str, ...]:
        """The services that are run once more when a run has finished."""
        return ("evaluate", "summary") if self.config.summary.save_summaries_secs else ("evaluate",)

    def save_after_failure(self, *, sound: bool) -> None:
        """Save what is sound. What is wrong with that must not hide the error that ends the run."""
        try:
            if sound:
                self.checkpointer.finish(self._session, "failure")
            else:
                self.checkpointer.wait()
        except (JobError, StorageError) as another:
            log.error("%s", another, extra={"event": "save-failed"})

    # ------------------------------------------------------------------ services

    def start(self) -> None:
        """Make the services, in the order in which those due at one boundary are done: saving comes last."""
        recorder, session = self.recorder, self._session
        actions: dict[str, Callable[[], None]] = {
            "metrics": recorder.write_metrics,
            "evaluate": self._evaluate,
            "summary": lambda: recorder.summarize(session),
            "step counter": recorder.count_steps,
            "report": self._report,
            "progress": recorder.log_progress,
            "checkpoint": self._save_on_schedule,
        }
        mark = Mark(session.step, self._timer())
        self.checkpointer.begin(mark)
        self._services = [
            Service(name, action, Schedule(), mark, is_owed=name in self._owed) for name, action in actions.items()
        ]
        self._set_schedules()

    def _set_schedules(self) -> None:
        config = self.config
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
            service.schedule = schedules.get(service.name, service.schedule)
        self._reporter.hold(save_model_secs=self._save_secs() or None)
        self.store.policy = _policy(config)
        self.checkpointer.hang_secs = config.watchdog.save_secs or math.inf
        self.recorder.metrics_steps = config.summary.metrics_steps

    def _save_secs(self) -> float:
        """Seconds between checkpoints, as the config says or as was measured."""
        cadence, secs = self.checkpointer.cadence, self.config.checkpoint.save_model_secs
        cadence.max_overhead = self.config.checkpoint.max_overhead
        return cadence.secs if secs == "auto" else float(secs)

    def run_due(self) -> None:
        """Run the services that are due at this boundary."""
        mark = Mark(self._session.step, self._timer())
        due = [service for service in self._services if service.is_due(mark)]
        for number, service in enumerate(due):
            self._unfinished = tuple(each.name for each in due[number:])
            service.run(mark)
        self._unfinished = ()
        if mark.now >= self.checkpointer.retry_at:
            self.checkpointer.start(self._session, "retry")

    @property
    def owed(self) -> tuple[str, ...]:
        """The services that were due where this process began, and are not done yet."""
        return tuple(service.name for service in self._services if service.is_owed)

    def between(self, then: Callable[[], Mapping[str, float]]) -> None:
        """Have the session do what it does at this boundary before the services do."""
        mark = Mark(self._session.step, self._timer())
        self._unfinished = tuple(service.name for service in self._services if service.is_due(mark))
        self.recorder.between(self._session, then)
        self._unfinished = ()
        self.check_names()

    def add(self, name: str, action: Callable[[], None], schedule: Schedule, *, at_next_step: bool = False) -> None:
        """Have another service run on a schedule, which begins now, or with the next step."""
        last = Mark(self._session.step, self._timer())
        if at_next_step:
            last = Mark(last.step + 1 - schedule.steps, last.now - schedule.secs)
        from_step = self._session.step + 1 if at_next_step else 0
        self._services.append(Service(name, action, schedule, last, from_step))

    def _evaluate(self) -> None:
        self.recorder.evaluate(self._session)
        self.check_names()

    def check_names(self) -> None:
        """Warn where the config names a metric that the job does not have: the run would never end, or keep no best."""
        for key, wanted in (("target", self.config.parsed_target()), ("best", self.config.parsed_best())):
            if wanted is not None and (mistake := wanted.mistake(self._reporter.state.metrics)):
                self._reporter.warn(f"{key}: {mistake}")

    def _save_on_schedule(self) -> None:
        """By the clock a save that is under way will do; each of so many steps is one that a person counts on."""
        every = self.config.checkpoint.save_model_steps
        if every and self._session.step % every == 0:
            self.checkpointer.make_way()
        self.checkpointer.start(self._session, "schedule")

    def _report(self) -> None:
        self.recorder.report()
        self.checkpointer.watch()

    def limit(self) -> int:
        """The step at which the loop must be at a boundary, whatever the flag."""
        limits = [service.next_step for service in self._services]
        limit = min([*limits, self.config.max_steps or math.inf])
        return int(limit) if limit < math.inf else 2**62


def _policy(config: Config) -> Policy:
    keep = config.checkpoint
    return Policy(keep.keep_last, keep.keep_every_hours, config.parsed_best(), keep.keep_best)
