"""A program whose calls of `fit` are one run, from its first call to its end."""

from __future__ import annotations

import atexit
import contextlib
import multiprocessing
import sys
import threading
from collections.abc import Iterator, Sequence

from trainerd.loop.between import serve_between
from trainerd.loop.flag import Request
from trainerd.loop.outcome import LOOP_ENDED, PAUSED, Outcome
from trainerd.loop.signals.dispatch import interrupt_program, interruptible, renew_handlers
from trainerd.run.host import Host, ProcessHost, held_run, host_of
from trainerd.rundir import request_files
from trainerd.rundir.paths import RunDirectory
from trainerd.rundir.reporter import Observer, Reporter
from trainerd.rundir.state import Phase
from trainerd.system.fork import undone_in_children
from trainerd.system.threads import called_every

LOOK_SECS = 0.25  # between two looks for request files


class ScriptHost(ProcessHost):
    """A program that holds the run directory from its first call of `fit` until it ends.

    Between two calls a pause ends the program: `Paused` is raised where it is. A save is answered at once.

    Args:
      rundir: the run directory.
      job: what trains.
    """

    def __init__(self, rundir: RunDirectory, job: str) -> None:
        super().__init__(job)
        self._rundir = rundir
        self._held = contextlib.ExitStack()
        self._outcome: Outcome | None = None  # of the last call; None while one is under way, and before the first

    def owns(self, rundir: RunDirectory) -> bool:
        """Return whether it is the run directory of the calls before, and none of them is under way."""
        return self._outcome is not None and rundir.path == self._rundir.path

    @contextlib.contextmanager
    def session(
        self, rundir: RunDirectory | None, observers: Sequence[Observer], *, saves: bool
    ) -> Iterator[Reporter | None]:
        """Take the signals and the run directory at the first call, and keep them; see `ProcessHost.session`."""
        if self.reporter is None:
            with contextlib.ExitStack() as stack:
                self.reporter = stack.enter_context(super().session(rundir, (), saves=saves))
                stack.enter_context(undone_in_children(self._forget))
                stack.enter_context(called_every(LOOK_SECS, self._look, name="between"))
                self._held = stack.pop_all()
            atexit.register(self.end_with_program)
            held_run.append(self)
        assert self.reporter is not None
        interruptible(False)  # first: a pause that comes before this ends the run as one between two calls
        self._outcome = None
        renew_handlers()
        try:
            with self.reporter.observed_by(observers):
                yield self.reporter
        finally:
            if self._outcome is None:
                self._release()
            interruptible(self._outcome is not None)

    def report_end(self, outcome: Outcome, error: BaseException | None = None) -> None:
        """Write how the call has ended. After a pause or an error the run has ended with it."""
        if error is not None or outcome.phase is Phase.PAUSED:
            super().report_end(outcome, error)
            return
        assert self.reporter is not None
        self._outcome = outcome
        self.reporter.update(phase=Phase.FINISHING)

    def end_with_program(self) -> None:
        """End the run, since the program ends."""
        self.end(getattr(sys, "last_value", None))  # which Python sets if an error ends it

    def end(self, error: BaseException | None = None) -> None:
        """End the run: the program ends, or trains elsewhere. Nothing is done while a call is under way.

        Args:
          error: the error that ends the program; None if there is none.
        """
        if self._outcome is None:
            return
        interruptible(False)
        if self.flag.wants(Request.PAUSE):
            request_files.consume_pause(self._rundir)
            super().report_end(PAUSED)
        elif error is not None:
            super().report_end(LOOP_ENDED, error)
        else:
            super().report_end(self._outcome)
        self._release()

    def _release(self) -> None:
        self._forget()
        self._held.close()
        self.reporter = self._outcome = None

    def _forget(self) -> None:
        """Leave the run to the process that made this one."""
        atexit.unregister(self.end_with_program)
        held_run.clear()

    def _look(self) -> None:
        """Serve requests between two calls."""
        assert self.reporter is not None
        if self._outcome is not None and serve_between(self._rundir, self.flag, self.reporter):
            interrupt_program()


def host_of_call(rundir: RunDirectory, job: str) -> Host:
    """Return the host of a call of `fit`: that of the call before, if it is of the same run.

    At a prompt, on a thread, and in a process of `multiprocessing`, which has no exit handlers, each call ends its run.
    """
    if held_run and held_run[0].owns(rundir):
        return held_run[0]
    host = host_of(rundir, job)
    is_main = threading.current_thread() is threading.main_thread() and multiprocessing.parent_process() is None
    if type(host) is not ProcessHost or not is_main or hasattr(sys, "ps1"):
        return host
    return ScriptHost(rundir, job)
