"""Takes a run directory for a process that trains there."""

from __future__ import annotations

import contextlib
import logging
import os
import socket
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import psutil

from trainerd.rundir import lock, registry, request_files, run_events
from trainerd.rundir.goodput import Goodput, Spent
from trainerd.rundir.paths import RunDirectory
from trainerd.rundir.reporter import Observer, Reporter
from trainerd.rundir.run_events import EventKind
from trainerd.rundir.state import Phase, State, read_state
from trainerd.rundir.state_writer import StateWriter
from trainerd.system.fork import undone_in_children
from trainerd.system.threads import called_every

log = logging.getLogger(__name__)


FLUSH_SECS = 0.5
_REMOVED = "the run directory was removed"
_ENDS = {Phase.PAUSED: EventKind.PAUSE, Phase.FINISHED: EventKind.FINISH, Phase.FAILED: EventKind.FAIL}


class Claim:
    """The claim of a process on a run directory whose lock it holds: its name in the lock, and state.json.

    Requests from before this start are void, as whoever starts a run wants it to train. They are removed before the
    lock names this process: what is asked for from then on is served.

    Args:
      held: the lock.
      rundir: the run directory.
      job: what trains there, for `trainerd status`.
      config: the config that it was started with, for `trainerd list`; None for none.
      script: how a script that has no config was started; None for others.
      options: the options that changed the config.
      before: makes the first state, from the one that names the process.
      observers: called with each new state, after it is in state.json.

    Attributes:
      reporter: holds the state.
      was_paused: whether there was a pause file.
    """

    def __init__(
        self,
        held: lock.Lock,
        rundir: RunDirectory,
        job: str,
        *,
        config: Path | None = None,
        script: registry.StartedScript | None = None,
        options: registry.StartOptions = registry.PLAIN,
        before: Callable[[State], State] = lambda state: state,
        observers: Sequence[Observer] = (),
    ) -> None:
        rundir.rename_old_files()
        request_files.open_to_group(rundir)
        request_files.consume_save(rundir)
        request_files.consume(rundir.set_request)
        self._rundir, self._is_over = rundir, False
        self.was_paused = request_files.consume_pause(rundir)
        left = read_state(rundir.state)
        self._was_finished = left is not None and left.phase is Phase.FINISHED
        self._record_kill(left)
        holder = held.name_holder(os.getpid())
        registry.remember(rundir, config, script, options)
        self._state_file = StateWriter(rundir)
        goodput = _since(left, time.time())
        first = State(host=socket.gethostname(), **holder.__dict__, logdir=str(rundir.path), job=job, goodput=goodput)
        if left is not None:  # the memory is shown if the run is over; a command may not have read its answer yet
            first = replace(first, memory_bytes=left.memory_bytes, answers=left.answers)
            first = replace(first, name=left.name, tags=left.tags, notes=left.notes)
        first = replace(first, run_id=(left.run_id if left is not None else "") or uuid.uuid4().hex)
        state = before(first)
        self._start = f"{job}, pid {holder.pid}"
        self._started_at: float | None = time.time()  # None once that is noted
        self.reporter = Reporter(state, [self._state_file.observe, self._note, *observers])

    def log_void_pause(self) -> None:
        """Log that a pause from before this start is void."""
        if self.was_paused:
            log.warning("removed a pause file from before this start: %s", self._rundir.pause)

    def _record_kill(self, left: State | None) -> None:
        """Record as an event that the process before this one was killed: it could not do so itself."""
        if left is None or not left.at or not left.is_left(is_running=False):
            return
        said = f"{left.left_as}, at step {left.step} or later"
        run_events.add(self._rundir, EventKind.KILL, said, step=left.step, at=left.at)
        if left.is_of_this_machine and left.at < (booted := psutil.boot_time()):
            run_events.add(self._rundir, EventKind.REBOOT, "the machine was rebooted", step=left.step, at=booted)

    def _note(self, state: State) -> None:
        """Record that the run has started, and that it is over, each once; but no start that finds it finished."""
        kind = _ENDS.get(state.phase)
        if self._started_at is not None:
            if state.phase in (Phase.GATHERING, Phase.STARTING) or (kind is EventKind.FINISH and self._was_finished):
                return
            run_events.add(self._rundir, EventKind.START, self._start, at=self._started_at)
            self._started_at = None
        if kind is not None and not self._is_over:
            why = (state.ended or "").removeprefix(f"{state.phase} ")  # the kind of the event says it
            run_events.add(self._rundir, kind, state.error or why, step=state.step)
            run_events.flush(self._rundir)  # no later look writes it
        self._is_over = kind is not None

    def flush(self) -> None:
        """Check whether the run directory is there, and write the parts of the state that wait to be written."""
        warn_if_removed(self._rundir, self.reporter)
        self._state_file.flush()
        run_events.flush(self._rundir, patience=0.0)


def warn_if_removed(rundir: RunDirectory, reporter: Reporter) -> None:
    """Warn while the run directory is missing: a person may remove it while a process trains in it."""
    said = f"{_REMOVED}: {lock.removed(rundir)}"
    if lock.is_there(rundir):
        reporter.unwarn(_REMOVED)
    elif said not in reporter.state.warnings:
        log.error("%s", lock.removed(rundir), extra={"event": "removed"})
        reporter.warn(said)


def _since(left: State | None, now: float) -> Goodput:
    """Return how the time of the run was spent up to now, if an earlier process has left it in this state."""
    if left is None or not left.at:
        return Goodput()
    if left.phase in (Phase.PAUSED, Phase.FINISHED):
        return left.goodput.after(Spent.PAUSED, now - left.at)
    known = max(left.goodput.known_until, left.step)
    return replace(left.goodput.after(Spent.DOWN, now - left.at), known_until=known)


@contextlib.contextmanager
def claimed(
    rundir: RunDirectory, job: str, observers: Sequence[Observer] = (), check: Callable[[], None] = lambda: None
) -> Iterator[Reporter]:
    """Claim a run directory for this process while the block runs.

    Args:
      rundir: the run directory; it is made if it is missing.
      job: what trains there, for `trainerd status`.
      observers: called with each new state.
      check: called with the lock held, before anything is written: it raises if the job may not train there.

    Raises:
      InUseError: another process trains there.
      StorageError: it cannot be written.
    """
    rundir.create()
    with lock.acquire(rundir) as held, undone_in_children(held.close):
        check()
        claim = Claim(held, rundir, job, observers=observers)
        claim.log_void_pause()
        with called_every(FLUSH_SECS, claim.flush, name="state"):
            yield claim.reporter
