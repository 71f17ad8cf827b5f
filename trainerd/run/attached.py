"""Signals, checkpoints and summaries for a loop that the user writes.

The Supervisor, the monitored sessions and `fit` are made of this. What is special to graphs is in sessions/tf1/run.py,
and to TensorFlow 2 functions in sessions/tf2/run.py.
"""

from __future__ import annotations

import contextlib
import logging
import math
import os
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf

from trainerd.checkpoints.manifest import FINISH
from trainerd.config.schema import Config
from trainerd.errors import StorageError
from trainerd.loop import outcome
from trainerd.loop.contract import Events, Model, Steps
from trainerd.loop.flag import Request
from trainerd.loop.outcome import Outcome, Paused
from trainerd.loop.schedule import Schedule, ScheduleMark
from trainerd.loop.signals import open_sessions
from trainerd.run.boundary import STUCK_SECS, Boundary
from trainerd.run.failures import has_failed, is_clean
from trainerd.run.find_checkpoint import Found, find_checkpoint
from trainerd.run.host import Host, host_of
from trainerd.run.program_loop import ProgramLoop
from trainerd.run.run import Run
from trainerd.run.session_link import SessionLink
from trainerd.run.settings import KeepSettings, as_config
from trainerd.rundir import lock
from trainerd.rundir.paths import RunDirectory
from trainerd.rundir.state import EvaluationSummary, Phase, State
from trainerd.system.threads import called_every

log = logging.getLogger(__name__)
tf1 = tf.compat.v1

IDLE_SECS = 0.25
_TORN = "%s: the error came in the middle of a step, so nothing is saved of it. The next start %s."
_UNKNOWN = "%s: an error has ended `fit`, so nothing is saved. The next start %s."
_ABANDONED = {"event": "abandoned"}
_MAKES_WAY = "an earlier session of this process %s and was not closed. It is closed now, since another starts in %s"
_REMOVED = "%s was removed while a session of this process was open. The session saves nothing any more"
_ENDED = "the program has ended without ending its session in %s"
_STUCK = "%s: another thread is in the middle of a step, and nothing is saved of it"


class AttachedRun(ABC):
    """Signals, checkpoints and summaries for one session of a loop that the user writes.

    One class, since each method is a moment in the life of the same session: they share its stage, its outcome and the
    boundary's lock.

    Args:
      rundir: where checkpoints go; None if nothing is saved.
      model: the model that is saved and restored; None if there is no run directory.
      keep: how many checkpoints are kept; None if none are made.
      step_name: the name of the step counter, for the curve of the rate; None if there is none.
      events: writes the event files for TensorBoard.
      loop: the program's loop.
      host: holds the run directory, and receives signals.

    Attributes:
      outcome: how the run ends, once that is decided.
      saves_at_start: whether the first checkpoint of a schedule is made before the first step.
      has_outlived: whether the program has ended before its session.
      loop: see the arguments.
      rundir: the run directory; None if nothing is saved.
    """

    has_outlived = False
    saves_at_start = True

    def __init__(
        self,
        rundir: RunDirectory | None,
        model: Model | None,
        keep: KeepSettings | None,
        step_name: str | None,
        events: Events,
        loop: ProgramLoop,
        host: Host | None = None,
    ) -> None:
        self.outcome: Outcome | None = None
        self.loop = loop
        self.rundir = rundir
        self._model = model
        self._keep_settings, self._saves = keep, keep is not None
        self._step_name = step_name
        self._events = events
        self._host = host or host_of(rundir)
        self._flag = self._host.flag
        self._stack = contextlib.ExitStack()
        self._steps = contextlib.ExitStack()  # entered between two boundaries
        self._run: Run | None = None
        self._session_link: SessionLink | None = None
        self._found = Found()
        self._is_training = False  # whether it has a session
        self._is_within = False  # whether a `with` statement will end it
        self._saves_end = False  # whether the step at which the outcome was decided is saved, or is being saved
        self._pid = os.getpid()
        self._recorded = 0
        self._losses: list[float] = []  # of the runs since the last boundary
        self._counted: ScheduleMark | None = None
        self._saving: int | None = None

    # ------------------------------------------------------------------ what differs between kinds of sessions

    @abstractmethod
    def _make_session_link(self, boundary: Boundary) -> SessionLink:
        """Make the session link that the session gets."""

    @abstractmethod
    def _adopt(self, session: Any) -> None:
        """Have this session report its steps to the run."""

    @abstractmethod
    def _open(self, session: Any, prefix: Path | None, step: int, *, was_finished: bool) -> None:
        """Open the model in this session. It resumes from a checkpoint, if there is one.

        Args:
          session: the session.
          prefix: the checkpoint.
          step: its step.
          was_finished: whether the session that saved it had come to its own end.
        """

    def be_within(self, is_within: bool) -> None:
        """Record whether a `with` statement will end the run. It is False again once that statement has done so."""
        self._is_within = is_within

    # ------------------------------------------------------------------ the beginning

    @contextlib.contextmanager
    def begun(self) -> Iterator[None]:
        """Take the run directory and the signals. `leave` gives them back, or this does if the block raises."""
        self.outcome, self._pid = None, os.getpid()
        self._saves_end = False
        open_sessions.close_for_another(self._place, self)
        boundary = Boundary(self._flag, self._serve)
        self._session_link = self._make_session_link(boundary)
        self._session_link.call_at_close(self._closing)
        with contextlib.ExitStack() as stack:
            stack.callback(boundary.retire)
            reporter = stack.enter_context(self._host.session(self.rundir, [self._saved], saves=self._saves))
            if self.rundir is not None:
                stack.enter_context(open_sessions.holding(self._place, self))
            if self.loop.serves_when_idle:
                stack.enter_context(called_every(IDLE_SECS, boundary.serve_if_idle, name="idle"))
            if self.rundir is not None and self._model is not None and reporter is not None:
                self._reporter = reporter
                self._run = Run(
                    self._host.effective_config(self._config(0, 0), on_schedule=False),
                    self._model,
                    self.rundir,
                    flag=self._flag,
                    reporter=self._reporter,
                    events=self._events,
                    reload=self._host.reload,
                    saves=self._saves,
                    before_save=self.loop.before_save,
                )
                stack.enter_context(self._host.guarded(self._run, is_driven=False))
                stack.callback(self._gone)
            self._stack = stack  # a session that is taken in the block adds to it
            yield
            self._stack = stack.pop_all()

    @property
    def _place(self) -> str:
        """The real path of the run directory; "" if there is none."""
        return os.path.realpath(self.rundir.path) if self.rundir is not None else ""

    def requested_error(self) -> BaseException | None:
        """Return the error with which a service or a thread has stopped the loop; None if there is none."""
        try:
            self.loop.raise_requested()
        except BaseException as error:  # a thread may have wanted to exit
            return error
        return None

    def save_and_leave(self, error: BaseException | None) -> None:
        """Save what is sound, and leave.

        Args:
          error: what has ended the loop.

        Raises:
          StorageError: it could not be saved.
        """
        try:
            self.save(error)
        except BaseException as raised:
            error = raised
            raise
        finally:
            self.leave(error)

    def find(
        self, *, wait_secs: float = 0, poll_secs: float = 30, waiting: Callable[[float], Any] = time.sleep
    ) -> str | None:
        """Return the prefix of the checkpoint to restore; None if there is none. See `find_checkpoint`."""
        self._found = Found()
        if self._run is not None and self._saves:
            self._found = find_checkpoint(self._run, wait_secs=wait_secs, poll_secs=poll_secs, waiting=waiting)
        return self.found_prefix

    def name_found(self) -> None:
        """Have the file `checkpoint` name the checkpoint that `find` found, for programs that read it."""
        if self._found.manifest is not None and self._run is not None:
            self._run.store.name(self._found.step)

    def take(self, session: Any) -> Any:
        """Manage this session from now on, in which the model is restored or initialized."""
        with self.session_link.boundary.lock:
            self._adopt(session)
            self.session_link.call_at_close(self._closing)
            if self.outcome is not None:  # decided while there was no session
                self.loop.stop(None)
            if (run := self._run) is None:
                return session
            found = self._found
            self._open(session, found.prefix, found.step, was_finished=found.was_finished)
            if found.manifest is not None:
                with self._reporter.phase(Phase.RESTORING):  # so that the start is among the events before it
                    run.resumed(found.manifest)
            self._recorded = run.session.step
            self._reporter.update(phase=Phase.TRAINING, step=self._recorded)
            log.info("training from step %d on", self._recorded + 1, extra={"event": "training"})
            if not run.are_started:
                run.start()
                self._stack.enter_context(run.ticker.running())
            self._is_training = True
        return session

    def start_services(self, secs: float, steps: int) -> None:
        """Make checkpoints on a schedule from now on, the first at once.

        Args:
          secs, steps: between checkpoints; 0 for none.
        """
        if (run := self._run) is None:
            return
        with self.session_link.boundary.lock:
            self._steps.close()
            if self._step_name is not None:
                run.recorder.begin(run.session, run.session.step)
            run.apply(self._host.effective_config(self._config(secs, steps), on_schedule=True))
            if self._saves and (secs or steps) and self.saves_at_start:
                run.checkpointer.start(run.session, "start")
            self._flag.raise_for(Request.TICK)  # the schedules are checked when it is served

    def add_service(
        self, name: str, action: Callable[[], None], schedule: Schedule, *, at_next_step: bool = False
    ) -> None:
        """Add a service on a schedule. It first runs when it is due, or after the next step."""
        if self._run is not None:
            with self.session_link.boundary.lock:
                self._run.add(name, action, schedule, at_next_step=at_next_step)
            self._flag.raise_for(Request.TICK)  # the schedules are checked when it is served

    def _config(self, secs: float, steps: int) -> Config:
        logdir = str(self.rundir.path if self.rundir else "")
        loop = self.loop
        return as_config(logdir, self._keep_settings, secs, steps, loop.metrics_secs, loop.metrics_steps)

    # ------------------------------------------------------------------ the loop

    @property
    def session_link(self) -> SessionLink:
        """The session link of this run, which has begun."""
        assert self._session_link is not None
        return self._session_link

    @property
    def changes(self) -> int:
        """The changes of the model; see `loop.contract.Savable`."""
        return self._model.changes if self._model is not None else 0

    @property
    def step(self) -> int:
        """The global step; 0 if nothing is saved."""
        return self._model.step if self._model is not None else 0

    @property
    def is_paused(self) -> bool:
        """True if the loop is to end for a pause."""
        return self.outcome is not None and self.outcome.phase is Phase.PAUSED

    @property
    def found_prefix(self) -> str | None:
        """The prefix of the checkpoint that `find` found; None if it found none."""
        return str(self._found.prefix) if self._found.prefix is not None else None

    @property
    def was_finished(self) -> bool:
        """True if what was restored had come to its own end."""
        return self._found.was_finished

    @property
    def _is_of_parent(self) -> bool:
        """True if this process is a child that was forked: the run is its parent's."""
        return self._pid != os.getpid()

    @property
    def is_active(self) -> bool:
        """True if it holds the run directory."""
        return self._run is not None

    @property
    def resumed_step(self) -> int | None:
        """The step of the checkpoint that the session was restored from; None if it has none with a manifest."""
        return self._found.step if self._found.manifest is not None else None

    @property
    def saved_step(self) -> int | None:
        """The step of the newest checkpoint; None if there is none."""
        last = self._reporter.state.last_checkpoint if self._run is not None else None
        return last.step if last is not None else None

    @property
    def next_step(self) -> float:
        """The global step at which a service is due; infinity if none is by steps."""
        return self._session_link.next_step if self._session_link is not None else math.inf

    @property
    def boundary(self) -> Boundary | None:
        """The boundary at which services are run; None before the run has begun."""
        return self._session_link.boundary if self._session_link is not None else None

    def _be_back_at(self, step: float) -> None:
        """Have the loop come to a boundary at this global step."""
        self.session_link.be_back_at(step)

    def serve(self) -> None:
        """Serve a boundary if the program asks on the loop's thread whether it should stop, and the flag is raised."""
        if self._flag.is_raised and self._session_link is not None and self._session_link.boundary.is_mine:
            self._session_link.boundary.reached()

    def summarize(self) -> None:
        """Run the summary op."""
        if self._run is not None:
            self._run.recorder.summarize(self._run.session)

    def count_steps(self) -> None:
        """Write the rate of the steps since the last time."""
        if self._model is None:
            return
        now = ScheduleMark(self._model.step, time.monotonic())
        if self._counted is not None and now.now > self._counted.now:
            rate = (now.step - self._counted.step) / (now.now - self._counted.now)
            with contextlib.suppress(StorageError):  # the next summary will say so
                self._events.scalars({f"{self._step_name}/sec": rate}, now.step, time.time())
        self._counted = now

    def show(self, scalars: dict[str, float]) -> None:
        """Show these metrics in `trainerd status`."""
        if self._run is not None:
            self._reporter.set(metrics=self._reporter.state.metrics | scalars)

    def evaluating(self) -> contextlib.AbstractContextManager[None]:
        """Show that the loop waits for an evaluation while the block runs."""
        return self._reporter.phase(Phase.EVALUATING) if self._run is not None else contextlib.nullcontext()

    def show_evaluated(self, evaluations: EvaluationSummary) -> None:
        """Show what was evaluated so far."""
        if self._run is not None:
            self._reporter.set(evaluations=evaluations)

    def _serve(self) -> None:
        """Do what is due at a boundary. What fails stops the program's loop, which raises it at its end."""
        self._steps.close()
        try:
            if (run := self._run) is None or not self._is_training:
                self._serve_without_session(self._flag.take())
                return
            self._end_with(run.at_boundary(self._steps_to(run.session.step)))
            if self.outcome is not None and self._saves and not self._saves_end:
                self._saves_end = True  # at once: who asked may not wait for the program to look
                run.checkpointer.start(run.session, _reason(self.outcome))
            self._be_back_at(run.limit())
            if self._saves:
                self._steps.enter_context(run.stepping(is_ending=self.is_paused))
        except Exception as error:
            self.loop.stop(error)

    def _serve_without_session(self, taken: set[Request]) -> None:
        """Serve requests while no session trains: a pause is noted, a save waits."""
        if Request.PAUSE in taken:
            if self.rundir is not None:
                lock.require_in_place(self.rundir)
            self._end_with(outcome.PAUSED)
        if Request.SAVE in taken and self._run is not None:
            self._flag.raise_for(Request.SAVE)

    def _end_with(self, found: Outcome | None) -> None:
        """End the program's loop if this is how the run ends.

        If the loop continues after it was asked to end, the first outcome stands, or a later pause.
        """
        if found is not None and (self.outcome is None or found.phase is Phase.PAUSED):
            self.outcome, self._saves_end = found, False
            self.loop.stop(None)

    def follow(self, loss: float) -> None:
        """Record the loss that a run of the session has given."""
        self._losses.append(loss)

    def _steps_to(self, step: int) -> Steps:
        """Return the steps since the last boundary. Their losses are known if each was one run that gave one."""
        done, self._recorded = max(0, step - self._recorded), step
        losses, self._losses = self._losses, []
        if losses and len(losses) == done:
            return Steps(step - done + 1, ["loss"], np.array(losses, dtype=np.float64).reshape(-1, 1), False)
        return Steps.unmeasured(step, done)

    def _record(self, run: Run) -> None:
        run.recorder.steps(self._steps_to(run.session.step))

    def _saved(self, state: State) -> None:
        """Report to the loop that a checkpoint is begun."""
        if state.saving is not None and state.saving != self._saving:
            self.loop.saving(state.saving)
        self._saving = state.saving

    def save_now(self, reason: str) -> str:
        """Make a checkpoint of this boundary and wait until it is durable. Returns its prefix."""
        run = self._run
        assert run is not None
        with self.session_link.boundary.lock:
            self._steps.close()
            self._record(run)
            run.checkpointer.finish(run.session, reason, is_last=False)
            return str(run.rundir.prefix(run.session.step))

    # ------------------------------------------------------------------ the end

    def save(self, error: BaseException | None) -> None:
        """Save what is sound, and wait until it is durable.

        Args:
          error: what ended the program's loop.

        Raises:
          StorageError: it could not be saved.
        """
        self._note_pause(error)
        if (run := self._run) is None or not self._saves or self._is_of_parent:
            return
        if not self._is_training:  # there was never a session, or it is closed
            return
        link = self.session_link
        with link.boundary.lock:
            self._steps.close()
            is_torn = link.failed(error) and link.failed_at == run.session.changes
            if has_failed(error, self.outcome) or (is_torn and not is_clean(error)):
                with contextlib.suppress(tf.errors.OpError, RuntimeError):  # it must not hide the error itself
                    self._record(run)
                diverged = isinstance(error, tf1.train.NanLossDuringTrainingError)
                if self._says_finished:  # what came after the last save has failed: the next start must repeat it
                    run.checkpointer.changed(run.checkpointer.lineage, at=run.session.step)
                if diverged:
                    run.checkpointer.forget_memory()  # it led here
                run.save_after_failure(sound=not is_torn and not diverged)
                if is_torn:
                    where = run.checkpointer.next_start
                    said = _UNKNOWN if link.failure is None else _TORN
                    log.warning(said, self._place, where, extra=_ABANDONED)
            elif self.loop.saves_at_end or self.outcome is not None:
                ending = self._ending
                self._record(run)
                if ending.phase is Phase.PAUSED:
                    self._reporter.update(phase=Phase.PAUSING)
                run.checkpointer.finish(run.session, _reason(ending))
                run.recorder.report()
            else:
                run.checkpointer.wait()
                run.checkpointer.forget_memory()
            if self.outcome is None or self.outcome.phase is not Phase.PAUSED:
                self._reporter.update(phase=Phase.FINISHING)  # no step comes: threads are joined

    @property
    def _ending(self) -> Outcome:
        """The outcome; if none is decided, the end of the loop."""
        return self.outcome or self.loop.ended

    @property
    def _says_finished(self) -> bool:
        """True if this run has saved a checkpoint that says that it has come to its own end."""
        last = self._reporter.state.last_checkpoint
        return last is not None and last.reason == FINISH and last.step != self.resumed_step

    def part(self) -> None:
        """Detach the session, which is saved and about to be closed. Nothing runs in it any more."""
        self._is_training = False
        if self._session_link is not None:
            self._session_link.call_at_close(None)
            if self._session_link.boundary.thread == threading.get_ident():
                with self._session_link.boundary.lock:  # where another thread serves the flag, it has done so now
                    pass
        self.wait()

    def wait(self) -> None:
        """Wait until the checkpoint under way is written: its tensors are in the session."""
        if self._run is not None and not self._is_of_parent:  # in a child nothing is under way
            with contextlib.suppress(StorageError):  # it is reported already
                self._run.checkpointer.wait()

    def leave(self, error: BaseException | None) -> None:
        """Report how the run ended, and give back the run directory and the signals.

        Args:
          error: what ended it.
        """
        if self._is_of_parent:
            return
        self._note_pause(error)
        with self._session_link.boundary.lock if self._session_link is not None else contextlib.nullcontext():
            if self._run is not None:
                failure = error if has_failed(error, self.outcome) else None
                self._host.report_end(self._ending, failure)
            self._gone()
            if self._session_link is not None:
                self._session_link.boundary.retire()
        self._stack.close()

    def _note_pause(self, error: BaseException | None) -> None:
        """Pause the loop if an evaluation beside it was asked to pause before the loop was."""
        if isinstance(error, Paused) and self.outcome is None:
            self.outcome = outcome.PAUSED

    def _closing(self, error: BaseException | None) -> None:
        """Save what is sound when the program closes the session before its loop has ended."""
        if threading.get_ident() == (self._session_link.boundary.thread if self._session_link is not None else None):
            self.save(error)
        self.wait()
        self._is_training = False

    # ------------------------------------------------------------------ the end, if the program does not end it

    def close_for_another(self) -> None:
        """End this session if an error or a pause has ended its loop: another session begins in its run directory.

        A notebook's cell is run once more after that, and with TensorFlow another session can begin. What is sound is
        saved. The run is not ended while a `with` statement will end it, while it is in a step or on another thread,
        or while it may train on. If its folder was removed there is nothing to train on.
        """
        link = self.session_link
        if self._is_within or link.is_within or not link.boundary.is_mine:
            return
        if self.rundir is not None and lock.was_removed(self.rundir) and not self.rundir.steps():
            log.warning(_REMOVED, self._place, extra=_ABANDONED)
            self.loop.stop(None)
            with link.boundary.lock:
                self._gone()
            self._stack.close()
            return
        is_torn = link.failed_at == self.changes
        if not is_torn and self.outcome is None:
            return
        if is_torn and is_clean(link.failure):  # an epoch's: its loop may begin another
            return
        log.warning(_MAKES_WAY, "has failed" if is_torn else "was asked to stop", self._place, extra=_ABANDONED)
        self.loop.stop(None)
        self.save_and_leave(link.failure or open_sessions.left_by_error() if is_torn else None)

    def end(self, error: BaseException | None) -> None:
        """Save what is sound of a session that its program has not ended, and leave: the program has ended.

        If another thread that lives is in a step, only the checkpoint under way is waited for.

        Args:
          error: what the program has ended with.

        Raises:
          StorageError: it could not be saved.
        """
        if self._is_of_parent:
            return
        self.has_outlived = True
        link, boundary = self.session_link, self.session_link.boundary
        boundary.inherit()
        if not boundary.is_mine or (self.rundir is not None and not lock.is_in_place(self.rundir)):
            self.wait()
            return
        log.info(_ENDED, self._place, extra=_ABANDONED)
        if not boundary.lock.acquire(timeout=STUCK_SECS):
            log.warning(_STUCK, self._place, extra=_ABANDONED)
            self.wait()
            return
        boundary.lock.release()
        self.loop.stop(None)
        if not has_failed(error, self.outcome):
            is_torn = link.failed_at == self.changes
            error = link.failure or open_sessions.left_by_error() if is_torn else self.requested_error()
        self.save_and_leave(error)
        self._events.flush()

    def _gone(self) -> None:
        self._steps.close()
        if self._run is not None:
            self._run.checkpointer.close()
        if self._session_link is not None:
            self._session_link.call_at_close(None)
        self._run = None
        self._is_training = False


def _reason(ending: Outcome) -> str:
    """Return the reason for which the last step is saved, for its manifest."""
    return FINISH if ending.phase is Phase.FINISHED else "pause"
