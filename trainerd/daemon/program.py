"""The daemon as the host of what it trains: its run directory, its flag, its config. A job's loop is trainerd's, and a
program has its own."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from trainerd.config.schema import DESCRIPTION, Config
from trainerd.errors import EntryError, JobError, TrainerdError
from trainerd.job.definition import GraphJob, Job, KerasJob, Program, Scheduled
from trainerd.job.params import require_asked
from trainerd.job.user_code import end_of, is_users, job_traceback
from trainerd.loop.contract import Session
from trainerd.loop.flag import Flag, Request
from trainerd.loop.outcome import PAUSED, PAUSED_EARLY, WITHOUT_SESSION, Outcome, Paused
from trainerd.loop.signals import open_sessions
from trainerd.loop.signals.dispatch import DaemonFlag, interruptible, lent_session_listens
from trainerd.rundir.paths import RunDirectory
from trainerd.rundir.reporter import Observer, Reporter
from trainerd.rundir.state import Phase
from trainerd.script.run import trained_nothing
from trainerd.system.fork import ended_in_children

if TYPE_CHECKING:  # its room may import TensorFlow
    from trainerd.run.run import Run


class DaemonHost:
    """Holds the run directory for the loop of a job, or for the Supervisor of a program; see `run.host.Host`.

    Args:
      config: the daemon's.
      rundir: the one that the daemon holds.
      flag, reporter: the daemon's.
      reload: reads the config again; None if it is wrong.
      ended: called with the outcome before the process is ended, if the loop does not end after a pause.
      failed: called with the error before the process is ended, if that pause could not be saved.
      made: makes the session of a driven run; see `run.host.Host`.

    Attributes:
      outcome: how the program's last session ended; None if there was none, or if it failed.
      error: the error that it failed with.
      is_in_program: whether the program's own code runs, outside of a session.
      had_session, was_paused: whether a session has ended, and whether one was paused.
      progress: returns a value that changes while the save under way gets written.
    """

    def __init__(
        self,
        config: Config,
        rundir: RunDirectory,
        *,
        flag: Flag,
        reporter: Reporter,
        reload: Callable[[], Config | None],
        ended: Callable[[Outcome], None],
        failed: Callable[[BaseException], None],
        made: Callable[[Callable[..., Session], Config], Session],
    ) -> None:
        self.made = made
        self.flag = flag
        self.outcome: Outcome | None = None
        self.error: BaseException | None = None
        self.is_in_program = self.had_session = self.was_paused = False
        self._settings_of_program = False  # whether it says how often it saves, and how much it keeps
        self._asked: Config | None = None  # what the program's session asks for
        self.progress: Callable[[], object] = lambda: None
        self._config = config
        self._rundir = rundir
        self.reporter = reporter
        self._reload = reload
        self._ended = ended
        self._failed = failed

    def owns(self, rundir: RunDirectory) -> bool:
        """Return whether it is the run directory of the daemon."""
        return os.path.realpath(rundir.path) == os.path.realpath(self._rundir.path)

    @contextlib.contextmanager
    def session(self, rundir: RunDirectory | None, observers: Sequence[Observer], *, saves: bool) -> Iterator[Reporter]:
        """Lend the daemon's run directory and reporter to a session while the block runs.

        It takes no lock, since the daemon has locked the run directory.

        Raises:
          EntryError: the run directory differs from the daemon's, or a script has not asked for its parameters.
          Paused: the program had a session already, and was asked to pause in it or since.
        """
        if rundir is None or not self.owns(rundir):
            there = f"{rundir.path}" if rundir is not None else "no run directory"
            raise EntryError(
                f"the program trains in {there}, and the daemon uses {self._rundir.path}. Make `logdir` the same in "
                "both; --logdir names another one for the daemon."
            )
        if self.was_paused or (self.had_session and self.flag.wants(Request.PAUSE)):
            raise Paused
        require_asked()
        interruptible(False)
        self.is_in_program = False
        try:
            with lent_session_listens(self.flag), self.reporter.observed_by(observers):
                yield self.reporter
        finally:
            interruptible(True)
            self.is_in_program = True

    def effective_config(self, config: Config, *, on_schedule: bool) -> Config:
        """Return the daemon's own config. A graph's summaries are the Supervisor's service.

        A config that does not describe the run, as that of a script without one, leaves this to the program.
        """
        self._asked = config
        checkpoint, asked = self._config.checkpoint, config.checkpoint
        if self._settings_of_program:
            checkpoint = replace(
                checkpoint,
                save_model_secs=asked.save_model_secs,
                save_model_steps=asked.save_model_steps,
                keep_last=asked.keep_last,
                keep_every_hours=asked.keep_every_hours,
            )
        if not on_schedule:
            checkpoint = replace(checkpoint, save_model_secs=0, save_model_steps=0)
        summary = replace(self._config.summary, save_summaries_secs=0)
        described = {key: getattr(self._config, key) or getattr(config, key) for key in DESCRIPTION}
        return replace(self._config, checkpoint=checkpoint, summary=summary, **described)

    def guarded(self, run: Run, *, is_driven: bool) -> contextlib.AbstractContextManager[None]:
        """Let the watchdog see its saves, and end the process if a pause waits forever."""
        from trainerd.run.host import guarded  # its room may import TensorFlow

        self.progress = run.store.progress
        return guarded(run, self.flag, self._ended, self._failed, in_services=is_driven)

    def reload(self) -> Config | None:
        """Return the config, read again."""
        found = self._reload()
        if found is None:
            return None
        self._config = found
        return found if self._asked is None else self.effective_config(self._asked, on_schedule=True)

    def report_end(self, outcome: Outcome, error: BaseException | None = None) -> None:
        """Record that the session has ended. The program may continue: the daemon decides how the run ends."""
        self.outcome, self.error = None if error is not None else outcome, error
        self.had_session = True
        self.was_paused = self.was_paused or outcome.phase is Phase.PAUSED
        if not self.was_paused:  # what the program does now, and begins next, may take as long as a start
            self.reporter.update(phase=Phase.FINISHING)

    @contextlib.contextmanager
    def running(self, program: Program) -> Iterator[None]:
        """Host the sessions of a program while the block runs."""
        from trainerd.run.host import hosting

        self._settings_of_program = program.has_settings
        with ended_in_children(), open_sessions.ended(), hosting(self):
            interruptible(True)
            self.is_in_program = True
            try:
                yield
            finally:
                self.is_in_program = False
                interruptible(False)


def run(program: Program, config: Config, host: DaemonHost, flag: DaemonFlag) -> Outcome:
    """Call a function that writes its own loop, with a Supervisor of the daemon's run.

    Raises:
      JobError: it failed, or ended itself with another exit code than 0.
      EntryError: it is a script that trains nothing; or a function that takes another argument than the Supervisor.
    """
    supervisor = None
    if program.takes_supervisor:
        from trainerd.programs.supervisor.daemon_supervisor import DaemonSupervisor  # it imports TensorFlow

        supervisor = DaemonSupervisor(config, host)
    raised_paused, returned = False, None
    try:
        with host.running(program):
            returned = program.function(supervisor)
    except Paused:
        raised_paused = True
    except TrainerdError:
        raise
    except BaseException as error:
        if not is_users(error):
            raise
        step = host.reporter.state.step
        if not isinstance(error, SystemExit):
            raise _failed("the program", error, step) from error
        if error.code:
            what = "the program" if program.takes_supervisor else "the script"
            raise JobError(f"{what} ended itself at step {step} {end_of(error)}", step=step, sound=True) from None
    if not (program.takes_supervisor or host.had_session or raised_paused):
        raise trained_nothing(config)
    outcome = _outcome(host, flag, raised_paused=raised_paused)
    is_job = isinstance(returned, Job | GraphJob | KerasJob | Scheduled)
    if outcome is WITHOUT_SESSION and program.may_take and (is_job or not host.reporter.state.step):
        raise EntryError(program.may_take)
    return outcome


def _outcome(host: DaemonHost, flag: DaemonFlag, *, raised_paused: bool) -> Outcome:
    """Return the outcome of a program that has returned.

    Args:
      host: the host of its sessions.
      flag: the daemon's.
      raised_paused: whether it ended with `Paused`.

    Raises:
      JobError: its session failed.
    """
    outcome = host.outcome
    is_at_end = outcome is not None and outcome.phase is Phase.FINISHED and not outcome.by_job
    paused = PAUSED if host.had_session or flag.was_heard else PAUSED_EARLY
    if host.was_paused or (raised_paused and not is_at_end):
        return paused
    if host.error is not None:
        raise _failed("the program's session", host.error, host.reporter.state.step) from host.error
    if (outcome is None and flag.wants(Request.PAUSE)) or (flag.was_heard and not is_at_end):
        return paused
    return outcome or WITHOUT_SESSION


def _failed(what: str, error: BaseException, step: int) -> JobError:
    """Return the error that the run ends with after an error of the user's code."""
    return JobError(f"{what} failed at step {step}", step=step, sound=True, details=job_traceback(error))
