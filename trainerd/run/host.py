"""Hosts of a run, whether driven or attached: they hold the lock of the run directory, the signals and state.json."""

from __future__ import annotations

import contextlib
import logging
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NoReturn, Protocol

from trainerd.checkpoints import catalogue
from trainerd.config.schema import Config
from trainerd.errors import exit_code_of
from trainerd.history import run_job
from trainerd.loop.contract import Session
from trainerd.loop.flag import Flag
from trainerd.loop.guard.guard import LoopGuard
from trainerd.loop.outcome import LOOP_ENDED, PAUSED, Outcome, Paused
from trainerd.loop.signals import dispatch
from trainerd.run.run import Run
from trainerd.rundir import request_files
from trainerd.rundir.claim import claimed
from trainerd.rundir.paths import RunDirectory
from trainerd.rundir.reporter import Observer, Reporter
from trainerd.rundir.state import Phase
from trainerd.system.exit import end_now
from trainerd.system.process_wide import process_wide, within

log = logging.getLogger(__name__)

LAST_CURVES_SECS = 2.0  # for which a process that gives up on its loop waits until the curves are written


class Host(Protocol):
    """Holds a run directory for a program's session, and receives signals."""

    flag: Flag

    @property
    def reporter(self) -> Reporter | None:
        """The reporter of a run that is held beyond its sessions, as by a daemon; None if each session has its own."""

    def owns(self, rundir: RunDirectory) -> bool:
        """Return whether this host holds this run directory."""

    def session(
        self, rundir: RunDirectory | None, observers: Sequence[Observer], *, saves: bool
    ) -> contextlib.AbstractContextManager[Reporter | None]:
        """Hold the run directory while the block runs. If there is none, receive signals only and give None.

        Args:
          rundir: the run directory.
          observers: called with every change of the state.
          saves: whether the session makes checkpoints. One that makes none may be of another job.
        """

    def effective_config(self, config: Config, *, on_schedule: bool) -> Config:
        """Return the config of a program's services.

        Args:
          config: what the program asks for.
          on_schedule: whether it wants checkpoints on a schedule.
        """

    def made(self, make: Callable[..., Session], config: Config) -> Session:
        """Return the session of a driven run, as this host makes it.

        Args:
          make: makes it of a config, and options of the session.
          config: the config that counts.
        """

    def guarded(self, run: Run, *, is_driven: bool) -> contextlib.AbstractContextManager[None]:
        """Watch a run while the block runs, and end the process if a pause waits forever.

        Args:
          run: the run.
          is_driven: whether the loop is trainerd's, and not the program's own.
        """

    def reload(self) -> Config | None:
        """Return the config, read again on request; None for no change."""

    def report_end(self, outcome: Outcome, error: BaseException | None = None) -> None:
        """Report how the session has ended.

        Args:
          outcome: how it ended.
          error: the error that ended it; None if there was none.
        """


class ProcessHost:
    """A program that is a process of its own.

    Args:
      job: what trains; "" for the program.
    """

    reporter: Reporter | None = None

    def __init__(self, job: str = "") -> None:
        self.flag = Flag()
        self._job = job

    def owns(self, rundir: RunDirectory) -> bool:
        """Return False: the session takes the run directory itself."""
        return False

    def end(self) -> None:
        """Do nothing: each session has its own end."""

    @contextlib.contextmanager
    def session(
        self, rundir: RunDirectory | None, observers: Sequence[Observer], *, saves: bool
    ) -> Iterator[Reporter | None]:
        """Take the signals and the run directory.

        Raises:
          DataError: it holds the run of another program.
          Paused: this process was asked to pause before, by a signal, or in that run directory, also between two
            sessions. It may continue if it catches that.
        """
        if rundir is not None:
            end_held_run()
        if _was_asked_to_pause(rundir):
            log.info("the program was asked to pause, and ends", extra={"event": "paused"})
            raise Paused
        with dispatch.session_listens(self.flag):
            if rundir is None:
                yield None
                return
            program = self._job or run_job.this_program()
            newest, is_asked = None, False

            def check() -> None:
                nonlocal newest, is_asked
                is_accepted = request_files.is_asked(rundir.accept_job)
                newest = catalogue.newest(rundir) if saves else None
                run_job.require_own_job(rundir, newest, program, is_accepted=is_accepted)
                is_asked = _has_left(rundir) and request_files.consume_pause(rundir)

            with claimed(rundir, program or "python", observers, check) as self._reporter:
                if is_asked:
                    self._reporter.set(**catalogue.fields_of(rundir, newest))
                    self.report_end(PAUSED)
                    raise Paused
                _left.add(str(rundir.path))
                yield self._reporter

    def effective_config(self, config: Config, *, on_schedule: bool) -> Config:
        """Return the config, as the program asks for it."""
        return config

    def made(self, make: Callable[..., Session], config: Config) -> Session:
        """Return the session, as the program makes it."""
        return make(config)

    def guarded(self, run: Run, *, is_driven: bool) -> contextlib.AbstractContextManager[None]:
        """Guard trainerd's own loop. A program with a loop of its own decides itself when it ends.

        At a prompt and in a notebook a pause waits for an evaluation: the process has more than this training.
        """
        if not is_driven:
            return contextlib.nullcontext()
        return guarded(run, self.flag, self.report_end, self._fail, in_services=not hasattr(sys, "ps1"))

    def reload(self) -> Config | None:
        """Return None, for no change: there is no file to read."""
        return None

    def report_end(self, outcome: Outcome, error: BaseException | None = None) -> None:
        """Write the last state of this run."""
        reporter = self._reporter
        if outcome.phase is Phase.PAUSED:
            _paused.add(reporter.state.logdir)
        if error is None:
            reporter.update(phase=outcome.phase, ended=outcome.reason(self.flag.paused_by))
            return
        said = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
        reporter.update(phase=Phase.FAILED, error=said, exit_code=exit_code_of(error))

    def _fail(self, error: BaseException) -> None:
        """Report why the process is ended while its loop is stuck."""
        log.error("%s", error, extra={"event": "failed"})
        self.report_end(LOOP_ENDED, error)


@contextlib.contextmanager
def guarded(
    run: Run,
    flag: Flag,
    ended: Callable[[Outcome], None],
    failed: Callable[[BaseException], None],
    *,
    in_services: bool = True,
) -> Iterator[None]:
    """End the process if a pause waits for something stuck while the block runs. Nothing else gives up on a loop.

    Args:
      run: the run; it saves the state that it holds.
      flag: what the requests raise.
      ended: called with the outcome before the process ends with 0.
      failed: called with the error before the process ends with its exit code: the state could not be saved.
      in_services: see `Run.guarded_by`.
    """

    def end(outcome: Outcome) -> NoReturn:
        try:
            ended(outcome)
        finally:
            _flush(run)
            end_now(0)

    def fail(error: BaseException) -> NoReturn:
        try:
            failed(error)
        finally:
            end_now(exit_code_of(error))

    with LoopGuard(flag, run, end, fail) as guard:
        run.guarded_by(guard, in_services=in_services)
        yield


def _flush(run: Run) -> None:
    """Write the last points of the curves, unless that takes long."""
    flushing = threading.Thread(target=run.recorder.close, name="trainerd-last-curves", daemon=True)
    flushing.start()
    flushing.join(LAST_CURVES_SECS)


_logdirs = process_wide("default logdirs", list[str]())
_redirects = process_wide("redirects", list[Path]())
_hosts = process_wide("hosts", list[Host]())


held_run = process_wide("held run", list[ProcessHost]())


def end_held_run() -> None:
    """End the run that the program holds between two calls of `fit`, if there is one."""
    for host in [*held_run]:
        host.end()


def hosting(host: Host) -> contextlib.AbstractContextManager[None]:
    """Have sessions in the run directory that this host holds use this host while the block runs."""
    return within(_hosts, host)


def is_hosted() -> bool:
    """Return whether a daemon runs this program."""
    return bool(_hosts)


def host_of(rundir: RunDirectory | None, job: str = "") -> Host:
    """Return the host of a session: the daemon, if it holds this run directory, and else the program itself.

    Args:
      rundir: the run directory; None if nothing is saved.
      job: see `ProcessHost`.
    """
    for host in _hosts:
        if rundir is not None and host.owns(rundir):
            return host
    return ProcessHost(job)


def default_logdir(path: str) -> contextlib.AbstractContextManager[None]:
    """Have an estimator that names no folder use this one while the block runs."""
    return within(_logdirs, path)


def hosted_logdir() -> str | None:
    """Return the run directory of the daemon that builds this estimator; None without one."""
    return _logdirs[-1] if _logdirs else None


def redirected(rundir: Path) -> contextlib.AbstractContextManager[None]:
    """Have each `fit` train in this run directory, whatever its `logdir`, while the block runs."""
    return within(_redirects, rundir)


def rundir_for(logdir: Path) -> Path:
    """Return the run directory of a `fit` with this `logdir`."""
    return _redirects[-1] if _redirects else logdir


def hosted_phase(phase: Phase) -> contextlib.AbstractContextManager[None]:
    """Show this phase of the program's run, if it is held now: by the daemon that runs it, or between two calls of
    `fit`."""
    reporter = next((host.reporter for host in [*_hosts, *held_run]), None)
    return reporter.phase(phase) if reporter is not None else contextlib.nullcontext()


def hosted_tell(**changes: Any) -> None:
    """Show these changes of the state in the daemon that runs this program, if there is one."""
    reporter = _hosts[-1].reporter if _hosts else None
    if reporter is not None:
        reporter.update(**changes)


_paused = process_wide("paused", set[str]())
_left = process_wide("left", set[str]())


def _has_left(rundir: RunDirectory) -> bool:
    """Return whether an earlier session of this program was in that run directory: a request since then is for it."""
    return str(rundir.path) in _left and not hasattr(sys, "ps1")


def _was_asked_to_pause(rundir: RunDirectory | None) -> bool:
    """Return whether the process was asked to pause, or was paused in that run directory, since this was last asked.

    A person at a prompt continues at will.
    """
    place = str(rundir.path) if rundir is not None else ""
    was_paused = place in _paused
    _paused.discard(place)
    if hasattr(sys, "ps1"):  # a prompt
        dispatch.forget_pause()
        return False
    return dispatch.take_pause() or was_paused
