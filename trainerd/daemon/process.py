"""The life of one process: begin, load, restore, train, end. `trainerd run`, the daemon and the systemd unit all run
it."""

from __future__ import annotations

import contextlib
import logging
import math
import os
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NoReturn

from trainerd.checkpoints import catalogue
from trainerd.checkpoints.store import CheckpointStore
from trainerd.config import parse as configs
from trainerd.config.bare_script import is_script
from trainerd.config.schema import Config
from trainerd.daemon import failures, logs, over, tensorflow_import
from trainerd.daemon.program import DaemonHost, run
from trainerd.daemon.systemd.notify import Notifier
from trainerd.daemon.systemd.watchdog import Watchdog, interval_from_environment
from trainerd.daemon.tensorflow_import import uncollected
from trainerd.errors import (
    ConfigError,
    EntryError,
    JobError,
    TrainerdError,
    UsageError,
    exit_code_of,
    full_message,
    headline,
)
from trainerd.history import rollback, run_job
from trainerd.job.definition import Program
from trainerd.job.user_code import in_a_line
from trainerd.loop.between import serve_between
from trainerd.loop.contract import Session
from trainerd.loop.flag import Request
from trainerd.loop.outcome import PAUSED, PAUSED_EARLY, Outcome
from trainerd.loop.signals.dispatch import DaemonFlag, daemon_listens, interrupt_program, renew_handlers
from trainerd.rundir import lock, registry, request_files, run_events
from trainerd.rundir.claim import Claim
from trainerd.rundir.paths import RunDirectory
from trainerd.rundir.reporter import Observer
from trainerd.rundir.requests.answers import Answers
from trainerd.rundir.run_events import EventKind
from trainerd.rundir.state import Phase, State, read_state
from trainerd.script.run import program_of
from trainerd.system.exit import end_now
from trainerd.system.fork import ends_with_parent, undone_in_children
from trainerd.system.threads import called_every

if TYPE_CHECKING:
    from trainerd.workers.training.member import ClusterProcess

log = logging.getLogger(__name__)

BEAT_SECS = 0.5
_AT_START = (  # the keys that take effect at a start
    "entry",
    "logdir",
    "job_folder",
    "devices",
    "deterministic",
    "seed",
    "input_position",
    "stop_on_nan",
    "script",
    "params",
)


class TrainerProcess:
    """Trains one run in this process until it is paused or finished.

    One class, since what fails at any point of a process's life is reported to the same state and the same observers.

    Args:
      config: what to train.
      overrides: the changes of the command line, applied again at a reload.
      observers: called with each new state.
      capture: whether the process has no terminal, and its output goes to the log.
      open_session: builds the session, with the engine of the cluster if there is one. Default: that of the config's
        job.
      around: what is put around the session that the loop runs.
      options: of the session that a script makes; see `KerasJobSession`.
      chdir: whether the config's folder becomes the working directory.
      ended: called with the outcome if the process ends without a return from `run`.
      terminal: the handler that shows log records to a person. Default: standard error or the journal.
    """

    def __init__(
        self,
        config: Config,
        *,
        overrides: Callable[[Config], Config] = lambda config: config,
        observers: list[Observer] | None = None,
        capture: bool = False,
        terminal: logging.Handler | None = None,
        open_session: Callable[[Config, Any], Session] | None = None,
        around: Callable[[Session], Session] = lambda session: session,
        options: Mapping[str, Any] = MappingProxyType({}),
        chdir: bool = True,
        ended: Callable[[Outcome], None] = lambda outcome: None,
    ) -> None:
        self._config = config
        self._overrides = overrides
        self._rundir = RunDirectory(config.rundir)
        self._observers = observers or []
        self._capture = capture
        self._terminal = terminal
        self._open_session = open_session
        self._around = around
        self._options = options
        self._chdir = chdir
        self._ended = ended
        self._over: Outcome | None = None  # how the run has ended before this start
        self._flag = DaemonFlag()
        self._member: ClusterProcess | None = None
        self._interrupted_at: float | None = None  # when a script was, outside of its calls of `fit`

    @property
    def state(self) -> State:
        """The present state of the run."""
        return self._reporter.state

    # ------------------------------------------------------------------ a life, top to bottom

    def run(self) -> Outcome:
        """Take the lock and train.

        Raises:
          TrainerdError: the error that ended the run; it is in the log and in state.json already.
        """
        self._rundir.create()
        with lock.acquire(self._rundir) as held:
            return self.run_locked(held)

    def run_locked(self, held: lock.Lock) -> Outcome:
        """Train, holding the lock already; see `run`."""
        is_accepted = request_files.is_asked(self._rundir.accept_job) or self._config.accept_job
        self._newest = catalogue.newest(self._rundir)
        run_job.require_own_job(self._rundir, self._newest, self._config.entry, is_accepted=is_accepted)
        self._left = read_state(self._rundir.state)
        self._accepts_changes = request_files.consume(self._rundir.accept_changes) or self._config.accept_changes
        self._notifier = Notifier()
        self._watchdog: Watchdog | None = None
        self._claim = Claim(
            held,
            self._rundir,
            self._config.entry,
            config=self._config.path,
            script=_started(self._config),
            options=self._config.options,
            before=lambda state: replace(state, **self._as_it_was_left()),
            observers=[self._notifier.observe, self._observe_watchdog, self._observe_member, *self._observers],
        )
        self._reporter = self._claim.reporter
        self._host = DaemonHost(
            replace(self._config, accept_changes=self._accepts_changes),
            self._rundir,
            flag=self._flag,
            reporter=self._reporter,
            reload=self._reload,
            ended=self._end_early,
            failed=self._fail,
            made=lambda make, config: self._around(make(config, **self._options)),
        )
        self._save_progress: Callable[[], object] = lambda: self._host.progress()
        if self._config.is_of_several:
            from trainerd.workers.training.member import ClusterProcess  # which may import TensorFlow

            self._member = ClusterProcess(
                self._config, self._rundir, flag=self._flag, reporter=self._reporter, give_up=self._give_up
            )
        with (
            contextlib.closing(self._notifier),
            logs.logging_to(
                self._rundir.log,
                level=self._config.log.level,
                state=lambda: self._reporter.state,
                capture=self._capture,
                terminal=self._terminal,
                rank=self._config.rank if self._config.is_of_several else None,
            ),
            undone_in_children(held.close),
            undone_in_children(ends_with_parent(os.getpid())),
            daemon_listens(self._flag),
        ):
            return self._live()

    def _live(self) -> Outcome:
        try:
            self._begin()
            with (
                # Two threads: a disk that hangs under state.json must not keep systemd from hearing of us.
                called_every(BEAT_SECS, self._look_at_disk, name="state"),
                called_every(BEAT_SECS, self._beat, name="watchdog"),
            ):
                outcome = self._load_and_train()
        except TrainerdError as error:
            raise self._failed(error) from error.__cause__
        except BaseException as error:
            self._fail(error)
            log.exception("an error of trainerd's own")
            raise
        self._end(outcome)
        return outcome

    def _end(self, outcome: Outcome) -> None:
        log.info("%s", outcome, extra={"event": str(outcome.phase)})
        self._reporter.update(phase=outcome.phase, ended=outcome.reason(self._flag.paused_by))
        if self._member is not None:
            self._member.end(outcome)

    def _as_it_was_left(self) -> dict[str, Any]:
        """Return fields of the state: the config's, those of the newest checkpoint, and the failure before."""
        found = catalogue.fields_of(self._rundir, self._newest)
        failure = self._left.failure if self._left is not None else None
        is_program = run_job.is_program(self._config.entry)  # which may describe the run itself, later
        described = {key: value for key, value in self._config.description().items() if value or not is_program}
        return {**found, **described, "max_steps": self._config.max_steps, "failure": failure}

    def _begin(self) -> None:
        """Report the start. A run that is to go back does so first: it may have been at its end."""
        if request_files.is_asked(self._rundir.rollback) or rollback.is_under_way(self._rundir):
            store = CheckpointStore(self._rundir)
            store.clean()
            rollback.finish_at_start(self._rundir, store, Answers(self._reporter).give)
            self._newest = catalogue.newest(self._rundir)
            self._reporter.set(**self._as_it_was_left())
        accepts = self._accepts_changes
        self._over = over.over_already(self._config, self._rundir, self._newest, self._left, accepts_changes=accepts)
        if self._over is None:
            self._reporter.update(phase=Phase.STARTING)
        log.info("starting %s in %s", self._config.entry, self._rundir.path, extra={"event": "starting"})
        if self._over is None:
            over.log_end(self._left)
        self._claim.log_void_pause()
        now = time.monotonic()
        interval = interval_from_environment()
        self._watchdog = Watchdog(
            self._notifier,
            interval,
            self._config.watchdog,
            now=now,
            save_progress=lambda: self._save_progress(),
            hung=self._note_hang,
        )

    def _load_and_train(self) -> Outcome:
        """Load the job and train. A pause that is requested during one part is granted before the next."""
        ended = self._over
        if self._member is not None:
            ended = self._member.gather(ended)
        if ended is not None:
            return ended
        session = self._load()
        logs.restore_handlers()
        renew_handlers()
        if self._member is not None and not self._member.plan.is_chief:
            return self._obey(self._member, session)
        if self._member is not None and not isinstance(session, Program):
            session = self._member.leading(session)
        if self._flag.wants(Request.PAUSE):
            request_files.consume_pause(self._rundir)
            return PAUSED_EARLY
        if isinstance(session, Program):
            return self._run_program(session)
        from trainerd.run.driven import train  # which may import TensorFlow

        config = replace(self._config, accept_changes=self._accepts_changes)
        return train(config, self._around(session), self._rundir, self._host, self._reporter)

    def _obey(self, member: ClusterProcess, session: Session | Program) -> Outcome:
        """Do what the chief of the cluster says."""
        assert not isinstance(session, Program)
        self._save_progress = lambda: member.heard  # the chief saves, and beats meanwhile
        return member.obey(session)

    def _end_early(self, outcome: Outcome) -> None:
        """Report the end after a pause: the process is about to end while the loop's thread is stuck."""
        self._end(outcome)
        self._ended(outcome)

    def _give_up(self, error: BaseException) -> NoReturn:
        """End the process from any thread: another worker is gone, or the job is not built in time."""
        try:
            self._fail(error)
        finally:
            end_now(exit_code_of(error))

    def _run_program(self, program: Program) -> Outcome:
        """Call a function that writes its own loop, with a Supervisor of this run; see `program.run`."""
        self._flag.reach_sessions()
        ended = run(program, self._config, self._host, self._flag)
        if ended.phase is Phase.PAUSED:
            request_files.consume_pause(self._rundir)
        return ended

    def _load(self) -> Session | Program:
        """Import the job, and TensorFlow with it."""
        if self._chdir:
            os.chdir(self._config.folder)
        is_program = run_job.is_program(self._config.entry)
        tensorflow_import.prepare(is_program=is_program)
        if is_program:
            return program_of(self._config)
        with uncollected():
            with tensorflow_import.stderr_to(self._rundir.log):
                from trainerd import open_job
            opened = self._open_session or open_job.open_entry
            if self._member is None:
                return opened(self._config, None)
            engine = self._form(open_job.import_job)
            return self._member.built(lambda: opened(self._config, engine))

    def _form(self, import_job: Callable[[Config], None]) -> Any:
        """Make TensorFlow's cluster, after the job's module has configured TensorFlow. Return its engine."""
        assert self._member is not None
        import_job(self._config)
        with tensorflow_import.stderr_to(self._rundir.log):
            engine = self._member.form()
            renew_handlers()  # forming the cluster takes SIGTERM
        return engine

    # ------------------------------------------------------------------ while it lives

    def _reload(self) -> Config | None:
        """Read the config again. A wrong one changes nothing."""
        self._notifier.reloading()
        try:
            return self._read_again()
        except (ConfigError, UsageError) as error:
            log.error("the configuration was not read again: %s", error, extra={"event": "reload-failed"})
            return None
        finally:
            self._notifier.reloaded()

    def _read_again(self) -> Config | None:
        if self._config.path is None:
            log.info("there is no configuration file to read again", extra={"event": "reload"})
            return None
        new = self._overrides(configs.load(self._config.path))
        for name in _AT_START:
            if getattr(new, name) != getattr(self._config, name):
                log.warning(
                    "`%s` has changed in the config, which takes effect at the next start: pause the run first",
                    name,
                    extra={"event": "reload"},
                )
                new = replace(new, **{name: getattr(self._config, name)})
        self._config = new = replace(new, folder=self._config.folder)  # which `job_folder` names
        logs.set_level(new.log.level)
        if self._watchdog is not None:
            self._watchdog.reconfigure(new.watchdog)
        self._reporter.set(max_steps=new.max_steps, **new.description())
        return new

    def _observe_watchdog(self, state: State) -> None:
        if self._watchdog is not None:
            self._watchdog.observe(state, time.monotonic())

    def _observe_member(self, state: State) -> None:
        if self._member is not None:
            self._member.observe(state)

    def _note_hang(self, secs: float) -> None:
        """Note a hang: systemd ends the process soon."""
        state = self._reporter.state
        said = f"no sign of life for {secs:.0f} s while {state.phase}: systemd starts it again soon"
        log.error("%s", said, extra={"event": "hang"})
        run_events.add(self._rundir, EventKind.HANG, said, step=state.step)

    def _look_at_disk(self) -> None:
        self._claim.flush()
        self._serve_outside_fit()
        # A program may have no session now that looks.
        if self._flag.has_program and (by := request_files.who_asks_for_pause(self._rundir)) is not None:
            self._flag.raise_for(Request.PAUSE, by)

    def _serve_outside_fit(self) -> None:
        """Serve a script outside of its calls of `fit`: what they have trained is on disk, so a pause ends it."""
        is_outside = run_job.is_program(self._config.entry) and self._host.is_in_program and not self._host.was_paused
        if not is_outside or not serve_between(self._rundir, self._flag, self._reporter):
            return
        interrupt_program()
        if self._interrupted_at is None:
            self._interrupted_at = time.monotonic()
        elif self._interrupted_at + (self._config.watchdog.pause_secs or math.inf) < time.monotonic():
            request_files.consume_pause(self._rundir)
            try:
                self._end_early(PAUSED if self._host.had_session else PAUSED_EARLY)
            finally:
                end_now(0)

    def _beat(self) -> None:
        logs.restore_handlers()
        if self._watchdog is not None:
            self._watchdog.beat(time.monotonic())

    def _failed(self, error: TrainerdError) -> TrainerdError:
        """Report why the run ended. Returns the error that it ends with, which differs after too many
        failures."""
        if self._member is not None:
            error = self._member.cause_of(error)
        if isinstance(error, JobError | EntryError):
            error.cause = in_a_line(error.__cause__) if error.__cause__ is not None else ""
            self._reporter.set(failure=failures.count(self._reporter.state, error, time.time()))
            if failures.is_too_often(self._reporter.state):
                self._reporter.set(step=error.step if isinstance(error, JobError) else self._reporter.state.step)
                error = failures.too_often(self._reporter.state, full_message(error))
        self._fail(error)
        return error

    def _fail(self, error: BaseException) -> None:
        """Report why the run ended. Nothing here may hide the error itself."""
        logs.restore_handlers()
        if isinstance(error, TrainerdError):
            log.error("%s", full_message(error), extra={"event": "failed"})
            error.was_shown = not self._capture
        with contextlib.suppress(TrainerdError):
            if isinstance(error, JobError):
                self._reporter.set(step=error.step)
            shown = headline(error)
            if isinstance(error, JobError | EntryError):
                shown = failures.with_count(self._reporter.state, shown)
            self._reporter.update(phase=Phase.FAILED, error=shown, exit_code=exit_code_of(error))
        if self._member is not None:
            self._member.end(error)


def _started(config: Config) -> registry.StartedScript | None:
    """Return how a script that has no config is started; None for others."""
    if config.path is None or not is_script(config.path):
        return None
    return registry.StartedScript(config.folder, config.script.adopt, config.script.arguments)
