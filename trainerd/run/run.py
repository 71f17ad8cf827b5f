"""A run: it resumes, serves what is due at the boundaries between steps, and ends.

trainerd's own loop drives it (driven.py), or it is attached to a loop that the user writes (attached.py).
"""

from __future__ import annotations

import contextlib
import logging
import math
import time
from collections.abc import Callable, Mapping

from trainerd.checkpoints.manifest import FINISH, Manifest
from trainerd.checkpoints.retention import Policy
from trainerd.checkpoints.store import CheckpointStore
from trainerd.config import fingerprint
from trainerd.config.schema import Config
from trainerd.errors import JobError, StorageError, TrainerdError
from trainerd.history import run_job
from trainerd.loop import outcome
from trainerd.loop.boundary_state import BoundaryState
from trainerd.loop.changes.run_changes import RunChanges
from trainerd.loop.changes.trouble import BadTurn, bad_turn
from trainerd.loop.checkpointer import Checkpointer
from trainerd.loop.contract import Events, Model, Session, Steps
from trainerd.loop.flag import Flag, Request
from trainerd.loop.guard.guard import LoopGuard
from trainerd.loop.guard.holding import Holding
from trainerd.loop.guard.state_check import StateCheck
from trainerd.loop.outcome import Outcome
from trainerd.loop.recorder import BETWEEN, Recorder
from trainerd.loop.schedule import Schedule, ScheduleMark, Service
from trainerd.loop.ticker import Ticker
from trainerd.run import resume
from trainerd.rundir import lock, request_files, run_events
from trainerd.rundir.paths import RunDirectory
from trainerd.rundir.reporter import Reporter
from trainerd.rundir.run_events import EventKind
from trainerd.rundir.state import Phase
from trainerd.system.durable_files import total_bytes
from trainerd.system.threads import Background
from trainerd.text import counted

log = logging.getLogger(__name__)

REPORT_SECS = 1.0
_GOING_BACK = {"rollback", "skip"}


class Run:
    """One session in its run directory: it resumes, serves boundaries and ends.

    One class, since its methods are the parts of one life, and of the one order in which a boundary is served.

    Args:
      config: the schedules, and how many checkpoints are kept.
      session: the model.
      rundir: the run directory.
      flag: raised by signals, by request files and by the clock.
      reporter: holds the state of the run and passes it to its observers.
      events: writes the event files for TensorBoard.
      reload: reads the config again; returns None if it is wrong.
      saves: whether checkpoints are made.
      steered: the session, if it can be restored while it trains.
      before_save: called with the step before its state is taken; see `Checkpointer`.
      writer: the thread that writes checkpoints.
      timer: seconds on a clock that is never set.

    Attributes:
      config: the config, as it was last read.
      session, rundir: see the arguments.
      checkpointer: makes the checkpoints.
      recorder: keeps the metrics.
      ticker: raises the flag by the clock and for request files. The loop starts and stops it.
      minima: keeps the state at the minima of the loss.
      changes: goes back, sets numbers, skips batches.
      holding: holds the state while something takes long; None if a pause waits until that ends.
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
        saves: bool = True,
        steered: Session | None = None,
        before_save: Callable[[int], None] | None = None,
        writer: Background | None = None,
        timer: Callable[[], float] = time.monotonic,
    ) -> None:
        self.config = config
        self.store = CheckpointStore(rundir, policy=_policy(config, rundir), timer=timer)
        self.recorder = Recorder(
            rundir, reporter, events, section=lambda name: self.section(name, is_service=True), timer=timer
        )
        self.checkpointer = Checkpointer(
            rundir, self.store, self.recorder, reporter, flag, writer=writer, before_save=before_save, timer=timer
        )
        self.minima = self.checkpointer.minima
        self.changes = RunChanges(rundir, self.store, self.checkpointer, reporter, session, steered, self._resume_from)
        self.ticker = Ticker(flag, rundir, timer=timer)
        self.holding: Holding | None = None
        self._holds_in_services = False
        self.session = session
        self.rundir = rundir
        self._reporter = reporter
        self._flag = flag
        self._reload = reload
        self._saves = saves
        self._is_over = False  # whether the end that the config sets was reported
        self._marked = 0  # the last checkpoint that is marked in TensorBoard
        self._timer = timer
        self._services: list[Service] = []
        self._overdue: tuple[str, ...] = ()  # the services that the process before left undone where this one begins
        self._unfinished: tuple[str, ...] = ()  # those that are due where something is done that may take long

    def guarded_by(self, guard: LoopGuard, *, in_services: bool = True) -> None:
        """Serve pauses and saves at once, also while something takes long.

        Args:
          guard: serves them.
          in_services: whether a pause may abandon a service, and not only a step.
        """
        check = StateCheck(refuse=self.config.deterministic)
        self.holding = Holding(self.session, guard, check, timer=self._timer)
        self._holds_in_services = in_services

    def section(self, name: str, *, is_service: bool = False) -> contextlib.AbstractContextManager[None]:
        """Return a context for something at a boundary that may take long."""
        if self.holding is None or (is_service and not self._holds_in_services):
            return contextlib.nullcontext()
        return self.holding.section(name, self._unfinished)

    def stepping(self, *, is_ending: bool = False) -> contextlib.AbstractContextManager[None]:
        """Return a context for steps: steps that call Python may never end.

        Args:
          is_ending: whether the loop is to end.
        """
        patience = self.config.watchdog.pause_secs
        if self.holding is None or not patience:
            return contextlib.nullcontext()
        if is_ending:
            return self.holding.ending(patience)
        return self.holding.stepping(patience) if self.session.calls_python else contextlib.nullcontext()

    # ------------------------------------------------------------------ the beginning

    def restore(self, *, accept_changes: bool = False) -> None:
        """Restore the newest checkpoint that verifies into the session, if there is one.

        Args:
          accept_changes: whether to resume although the dataset, the optimizer or the variables' places have changed.

        Raises:
          DataError: checkpoints exist and none can be used.
        """
        found = self.find(accept_changes=accept_changes)
        if found is not None:
            self.session.restore(self.rundir.prefix(found.step))
            self.resumed(found)

    def find(self, *, accept_changes: bool = False, unmanaged: bool = False) -> Manifest | None:
        """Find the checkpoint to resume from; see `resume.find`. For sessions that restore it by other means."""
        now = {**fingerprint.of_config(self.config), **self.session.fingerprint()}
        self.checkpointer.describe_run(now)
        is_program = run_job.is_program(self.config.entry)
        found = resume.find(
            self.rundir,
            self.store,
            now,
            exact=self.config.input_position == "exact",
            is_program=is_program,
            accept_changes=accept_changes,
            unmanaged=unmanaged,
            answer=self.checkpointer.answers.give,
        )
        if found is None or accept_changes or not self.checkpointer.is_of_this_call(found):
            return found
        # Of another state the restore says what is missing.
        if found.fingerprint.get(fingerprint.STATE) == now.get(fingerprint.STATE):
            changes = self.session.changes_since(self.rundir.prefix(found.step))
            resume.refuse_changes(found.step, changes, self.rundir, is_program=is_program)
        return found

    def resumed(self, found: Manifest) -> None:
        """Record that the session has been restored from this checkpoint."""
        self.store.resumed(found.step)
        self._overdue, self._marked = found.unfinished, found.step
        self.checkpointer.resumed(found)
        self.minima.resumed(found)
        self.changes.resumed(found)
        if not self.checkpointer.is_of_this_call(found):
            log.info("the next call of fit begins after step %d", found.step, extra={"event": "call"})
            return
        log.info("restored step %d (%s)", found.step, found.reason, extra={"event": "restored"})
        said = f"from the checkpoint of step {found.step} ({found.reason})"
        if (lost := self._reporter.state.goodput.known_until - found.step) > 0:
            said += f"; to train again: {counted(lost, 'step')}"
        run_events.add(self.rundir, EventKind.RESUME, said, step=found.step)

    # ------------------------------------------------------------------ a boundary

    def at_boundary(self, steps: Steps, *, recorded: Callable[[], None] = lambda: None) -> Outcome | None:
        """Do everything that is due at a boundary, in the order of every loop: metrics, services, requests.

        Requests come last, so that the guard sees the flag raised while a service runs.

        Args:
          steps: what was run since the boundary before.
          recorded: called when the metrics of the steps are recorded.

        Returns:
          How the run ends; None if it continues. The end that the config sets is reported once: a program may continue.

        Raises:
          JobError: the loss is not a number, or the job's own code failed.
          StorageError: the run directory is gone.
        """
        if (bad := self._record(steps)) is not None:
            self.changes.roll_back(bad, self.config.trouble)
            return None
        self.changes.do_due(steps.last_step)
        recorded()
        if steps.then is not None:
            self._between(steps.last_step, steps.then)
        over = outcome.after(steps) or self._reached(steps.last_step)
        if self.checkpointer.note_end(self.session):  # before the services: another save may begin there
            self._set_schedules()
        self._run_due(steps.last_step, is_over=over is not None)
        return over or self._reached(steps.last_step) or self._serve(self._flag.take())

    def _record(self, steps: Steps) -> BadTurn | None:
        """Keep the metrics of the steps. Returns what went wrong in them, if the run is to go back for that.

        Raises:
          JobError: the loss went wrong, and the run is to stop.
        """
        known, smoothing = self.minima.valleys, self.config.checkpoint.minima_smoothing_steps
        self.recorder.steps(steps)
        self.minima.steps(steps)
        bad = bad_turn(steps, known, self.config.trouble, smoothing, stops_on_nan=self.config.stop_on_nan)
        if bad is None:
            return None
        with contextlib.suppress(StorageError):
            self.checkpointer.wait()  # for the message: what is under way is from before this
        self.checkpointer.forget_memory()  # it led here
        if bad.action != "stop":
            return bad
        raise JobError(
            f"{bad.what}, and nothing was saved after it. Check the learning rate and the data. The next start "
            f"{self.checkpointer.next_start}.",
            step=bad.last,
            sound=False,
        )

    def _reached(self, step: int) -> Outcome | None:
        if self._is_over:
            return None
        over = outcome.reached(self.config, step, self._reporter.state.metrics)
        self._is_over = over is not None
        return over

    def _serve(self, taken: set[Request]) -> Outcome | None:
        """Serve what the flag was raised for. Returns the outcome if that ends the run."""
        if self.checkpointer.finish_save(self.session):
            self._set_schedules()
        if self.checkpointer.saved_step > self._marked:
            self._marked = self.checkpointer.saved_step
            self.recorder.mark("checkpoint", self._marked)
        if Request.RELOAD in taken and (config := self._reload()) is not None:
            self.apply(config)
            log.info("the configuration was read again", extra={"event": "reload"})
        if Request.PAUSE in taken:
            if (ids := self._accept_pause()) and self._saves:
                self.checkpointer.start(self.session, "pause", ids, self.overdue)
            return outcome.PAUSED
        if Request.SET in taken and self._saves:
            self.changes.set_numbers()
        if Request.ROLLBACK in taken and self._saves and (paused := self.changes.go_back()) is not None:
            return paused
        if Request.SAVE in taken and self._saves and (asked := self._take_save()) is not None:
            self.checkpointer.start(self.session, "request", asked, self.overdue)
        self.ticker.set_due(min([self.checkpointer.retry_at, *(service.next_time for service in self._services)]))
        return None

    def _resume_from(self, found: Manifest) -> None:
        """Restore the session from a checkpoint, while it trains, and restart everything from there."""
        if self.holding is not None:
            self.holding.forget()
        with self._reporter.phase(Phase.RESTORING):
            self.session.restore(self.rundir.prefix(found.step))
        self._reporter.went_back()
        self.resumed(found)
        self.recorder.begin(self.session, found.step)
        self.recorder.mark("rollback", found.step + 1, found.metrics.get("loss"))
        self._is_over = False
        self.start()

    def _accept_pause(self) -> list[str]:
        """Remove the request for a pause. Returns the ids of the commands that wait for the checkpoint."""
        lock.require_in_place(self.rundir)
        request_files.consume_pause(self.rundir)
        return self._take_save() or []

    def _take_save(self) -> list[str] | None:
        """Remove the request for a save. Returns the ids of the commands that wait; None if all were served before."""
        ids = request_files.consume_save(self.rundir)
        new = self.checkpointer.answers.take(ids)
        return None if ids and not new else new

    # ------------------------------------------------------------------ served by the guard, on its thread

    @property
    def is_saving(self) -> bool:
        """True if a checkpoint is being written."""
        return self.checkpointer.is_busy

    def save_held(self, held: BoundaryState) -> None:
        """Begin to make a checkpoint of a held state, for the commands that asked for one."""
        if (ids := self._take_save()) is None:
            return
        try:
            self.checkpointer.start(held, "request", ids, held.about.unfinished)
        except (JobError, StorageError) as error:
            self.checkpointer.answers.give(ids, None, str(error))

    def pause_held(self, held: BoundaryState) -> Outcome:
        """Make a checkpoint of a held state, and wait until it is durable.

        Raises:
          JobError: the state must not be saved.
          StorageError: it could not be.
        """
        log.info("pausing at step %d, while %s is under way", held.step, held.what, extra={"event": "pausing"})
        ids, saving = self._accept_pause(), self.checkpointer
        if held.what != BETWEEN and held.step == self._reporter.state.step:  # what the next start does again has points
            self.recorder.write_metrics()
        with self._reporter.phase(Phase.PAUSING):
            saving.wait()
            if held.patience and saving.saved_step > held.step:  # what is on disk is newer
                saving.answers.give(ids, saving.saved_step, None)
            else:
                saving.finish(held, "pause", ids=ids, unfinished=held.about.unfinished)
        self._reporter.set(step=saving.saved_step)
        return outcome.abandoned(held.what, held.step, held.patience)

    def apply(self, config: Config) -> None:
        """Take over the settings that may change while the run continues."""
        self.config = config
        self._set_schedules()

    # ------------------------------------------------------------------ the end

    def finish(self, reached: Outcome, end: Callable[[], None]) -> None:
        """End the run: evaluate it if it is finished, save the last step, and report.

        Args:
          reached: how the run has ended.
          end: ends the session. That may take long if the run is finished.

        Raises:
          JobError: the state must not be saved.
          StorageError: it could not be.
        """
        session, finished = self.session, reached.phase is Phase.FINISHED
        is_new = session.step > self.checkpointer.saved_step or bool(finished and self.overdue)
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
        overdue = () if finished else self.overdue
        self.checkpointer.finish(session, FINISH if finished else "pause", unfinished=overdue)
        self.recorder.report()

    def _at_end(self) -> tuple[str, ...]:
        """Return the services that `finish` runs when a run has finished."""
        return ("evaluate", "summary") if self.config.summary.save_summaries_secs else ("evaluate",)

    def save_after_failure(self, *, sound: bool) -> None:
        """Save the state if it is sound. An error of that save must not hide the error that ends the run."""
        try:
            if sound:
                self.checkpointer.finish(self.session, "failure")
            else:
                self.checkpointer.wait()
        except TrainerdError as another:
            log.error("%s", another, extra={"event": "save-failed"})

    # ------------------------------------------------------------------ services

    def start(self) -> None:
        """Make the services, in the order in which they run at one boundary: the checkpoint comes last."""
        session, mark = self.session, ScheduleMark(self.session.step, self._timer())
        self.checkpointer.begin(mark)
        trouble = self.config.trouble
        if self._saves and not self.checkpointer.saved_step and {trouble.on_nan, trouble.on_spike} & _GOING_BACK:
            self.checkpointer.start(session, "start")  # for the run to go back to
        self._services = [
            Service(name, action, schedule, mark, is_overdue=name in self._overdue)
            for name, (action, schedule) in self._table().items()
        ]
        self._set_schedules()

    @property
    def are_started(self) -> bool:
        """True if the services are made."""
        return bool(self._services)

    def _set_schedules(self) -> None:
        config = self.config
        self.checkpointer.reconfigure(config, _policy(config, self.rundir))
        table = self._table()
        for service in [each for each in self._services if each.name in table]:
            service.reschedule(table[service.name][1])
        self._reporter.set(save_model_secs=self._save_secs() or None)
        self.recorder.reconfigure(config.summary.metrics_steps)

    def _table(self) -> dict[str, tuple[Callable[[], None], Schedule]]:
        """Return what the services do, and when, in their order at one boundary: the checkpoint comes last.

        A boundary that has a checkpoint is not saved to memory.
        """
        config, recorder = self.config, self.recorder
        summaries = Schedule(secs=config.summary.save_summaries_secs)
        return {
            "metrics": (recorder.write_metrics, Schedule(secs=config.summary.metrics_secs)),
            "evaluate": (self._evaluate, Schedule(config.evaluate.evaluate_secs, config.evaluate.evaluate_steps)),
            "summary": (lambda: recorder.summarize(self.session), summaries),
            "step counter": (recorder.count_steps, summaries),
            "report": (self._report, Schedule(secs=REPORT_SECS)),
            "progress": (recorder.log_progress, Schedule(secs=config.log.progress_secs)),
            "checkpoint": (self._save_on_schedule, Schedule(self._save_secs(), config.checkpoint.save_model_steps)),
            "memory": (self._save_to_memory, Schedule(secs=self.checkpointer.memory_secs if self._saves else 0.0)),
        }

    def _save_secs(self) -> float:
        """Return the seconds between checkpoints, from the config or from measured costs."""
        config = self.config.checkpoint
        if config.save_model_secs != "auto":
            return float(config.save_model_secs)
        return max(self.checkpointer.cadence.disk.secs, self.checkpointer.secs_for(config.disk_writes_per_day))

    def _run_due(self, step: int, *, is_over: bool) -> None:
        """Run the services that are due at this boundary; at the last one, only those that `finish` does not run."""
        mark = ScheduleMark(step, self._timer())
        due = [each for each in self._services if each.is_due(mark) and (each.is_programs or not is_over)]
        for number, service in enumerate(due):
            self._unfinished = tuple(each.name for each in due[number:])
            service.run(mark)
        self._unfinished = ()
        if not is_over and self._saves:
            self.checkpointer.look_for_minimum(self.session)
        if mark.now >= self.checkpointer.retry_at and not is_over:
            self.checkpointer.start(self.session, "retry")

    @property
    def overdue(self) -> tuple[str, ...]:
        """The services that an earlier process left undone at the restored step, and that are not done yet."""
        return tuple(service.name for service in self._services if service.is_overdue)

    def _between(self, step: int, then: Callable[[], Mapping[str, float]]) -> None:
        """Have the session do its own work at this boundary, such as the end of an epoch, before the services run."""
        mark = ScheduleMark(step, self._timer())
        self._unfinished = tuple(service.name for service in self._services if service.is_due(mark))
        self.recorder.between(self.session, then)
        self._unfinished = ()
        self.check_names()

    def add(self, name: str, action: Callable[[], None], schedule: Schedule, *, at_next_step: bool = False) -> None:
        """Add a service on a schedule that begins now, or with the next step."""
        last = ScheduleMark(self.session.step, self._timer())
        if at_next_step:
            last = ScheduleMark(last.step + 1 - schedule.steps, last.now - schedule.secs)
        from_step = self.session.step + 1 if at_next_step else 0
        self._services.append(Service(name, action, schedule, last, from_step, is_programs=True))

    def _evaluate(self) -> None:
        self.recorder.evaluate(self.session)
        self.check_names()

    def check_names(self) -> None:
        """Warn if the config names a metric that the job does not have: the run would never end, or keep no best."""
        for key, wanted in (("target", self.config.parsed_target()), ("best", self.config.parsed_best())):
            if wanted is not None and (mistake := wanted.mistake(self._reporter.state.metrics)):
                self._reporter.warn(f"{key}: {mistake}")

    def _save_on_schedule(self) -> None:
        """Save. By the clock, a save that is under way is enough; a save by steps is made at exactly that step."""
        every = self.config.checkpoint.save_model_steps
        if every and self.session.step % every == 0:
            self.checkpointer.wait_for_save()
        self.checkpointer.start(self.session, "schedule")

    def _save_to_memory(self) -> None:
        self.checkpointer.start_to_memory(self.session)

    def _report(self) -> None:
        self.recorder.report()
        self.checkpointer.watch()

    def limit(self) -> int:
        """Return the step at which the loop must come to a boundary even if the flag is not raised."""
        limits = [service.next_step for service in self._services]
        limits += [self.changes.next_change or math.inf, self.config.max_steps or math.inf]
        limit = min(limits)
        return int(limit) if limit < math.inf else 2**62


def _policy(config: Config, rundir: RunDirectory) -> Policy:
    keep = config.checkpoint
    return Policy(
        keep_last=keep.keep_last,
        keep_every_hours=keep.keep_every_hours,
        best=config.parsed_best(),
        keep_best=keep.keep_best,
        keep_minima=keep.keep_minima if keep.minima else 0,
        keep_hourly=keep.keep_hourly,
        keep_daily=keep.keep_daily,
        max_bytes=_max_bytes(keep.max_disk_share, rundir),
    )


def _max_bytes(share: float, rundir: RunDirectory) -> int | None:
    """Return what the checkpoints may take; None for no limit."""
    if share < 1:
        with contextlib.suppress(OSError):  # of a file system that is away for a moment: all are kept meanwhile
            return int(share * total_bytes(rundir.path))
    return None
