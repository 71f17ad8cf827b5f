"""What a program's own session is looked after with: the run directory, signals, boundaries, and the end.

The Supervisor of a library and a MonitoredSession differ in what they promise a program; this is what both are made of.
"""

from __future__ import annotations

import contextlib
import math
import re
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf

from trainerd.checkpoints.manifest import DamagedError, Manifest
from trainerd.config import CheckpointConfig, Config, EvaluateConfig, LogConfig, SummaryConfig
from trainerd.errors import StorageError, TrainerdError
from trainerd.events.graphevents import GraphEvents
from trainerd.rundir import RunDirectory
from trainerd.sessions.contract import Steps
from trainerd.sessions.graph import GraphSession, read_whole
from trainerd.sessions.graphstate import GraphState
from trainerd.state import LastCheckpoint, Phase, State
from trainerd.supervisor.boundary import Boundary
from trainerd.supervisor.flag import Flag, Request
from trainerd.supervisor.managed import Care, adopt
from trainerd.supervisor.outcome import Outcome
from trainerd.supervisor.periodic import called_every
from trainerd.supervisor.saver import Saver
from trainerd.supervisor.schedule import Mark, Schedule
from trainerd.supervisor.tenancy import signals_raise, tenancy
from trainerd.supervisor.upkeep import Upkeep

tf1 = tf.compat.v1

IDLE_SECS = 0.25
_FOR_EVER = 2**62
_ENDED = Outcome(Phase.FINISHED, "the program's loop has ended")


class Custody:
    """Looks after one session of a graph, from before it is made until after its last step.

    Args:
      graph: the graph.
      rundir: where checkpoints go; None where nothing is saved.
      saver: says what is saved, and how much is kept; None where nothing is.
      global_step: counts the steps; None where nothing does.
      events: what is written for TensorBoard; None for nothing.
      stop: called with None where the run is to pause, and with the error where a service failed.
      saving: called with the step when a checkpoint is begun.

    Attributes:
      outcome: how the run ends, once that is decided.
      saves_at_end: whether the last step is saved although nobody asked for it.
      model, state: the graph as it is saved; None where there is no run directory.
    """

    def __init__(
        self,
        graph: Any,
        rundir: RunDirectory | None,
        saver: Any,
        global_step: Any,
        events: GraphEvents | None,
        stop: Callable[[BaseException | None], None],
        saving: Callable[[int], None] = lambda step: None,
    ) -> None:
        if saver is not None and saver.saver_def is None:
            with graph.as_default():
                saver.build()
        if saver is not None and saver.saver_def is None:  # a Saver of nothing: it was made with allow_empty
            saver = None
        self.outcome: Outcome | None = None
        self.saves_at_end = True
        self.model: GraphSession | None = None
        self.state: GraphState | None = None
        if rundir is not None:
            self.state = GraphState(graph, saver)
            self.model = GraphSession(self.state, global_step)
        self._rundir = rundir
        self._saver = saver
        self._global_step = global_step
        self._events = events or GraphEvents(None)
        self._events.told = self.tell
        self._stop = stop
        self._tell_saving = saving
        self._flag = Flag()
        self._stack = contextlib.ExitStack()
        self._upkeep: Upkeep | None = None
        self._care: Care | None = None
        self._found: Manifest | None = None
        self._own: Path | None = None  # what the program saved itself, and is restored
        self._is_kept = self._is_over = False
        self._recorded = 0
        self._counted: Mark | None = None
        self._saving: int | None = None
        self._published: LastCheckpoint | None = None

    # ------------------------------------------------------------------ the beginning

    @contextlib.contextmanager
    def begun(self) -> Iterator[None]:
        """Take the run directory and the signals. They are given back by `end`, or here where the block raises."""
        self.outcome = None
        boundary = Boundary(self._flag, self._serve)
        self._care = Care(boundary, self.state, self.model, closing=self._closing)
        if self._rundir is not None and self._saver is not None:
            self._care.save_path, self._care.save = self._rundir.path / self._rundir.basename, self._save_now
        with contextlib.ExitStack() as stack:
            stack.enter_context(signals_raise(self._flag))
            stack.enter_context(called_every(IDLE_SECS, boundary.serve_if_idle, name="idle"))
            if self._rundir is not None and self.model is not None:
                job = Path(sys.argv[0]).name or "python"
                self._reporter = stack.enter_context(tenancy(self._rundir, job, [self._saved]))
                self._upkeep = Upkeep(
                    self._config(0, 0),
                    self.model,
                    self._rundir,
                    flag=self._flag,
                    reporter=self._reporter,
                    events=self._events,
                )
                stack.callback(self._gone)
            yield
            self._stack = stack.pop_all()

    def find(self, *, wait_secs: float = 0, poll_secs: float = 30, waiting: Callable[[float], Any] = time.sleep) -> Any:
        """The prefix of the checkpoint to restore: the newest that verifies. None where there is none.

        Args:
          wait_secs: how long to wait for one.
          poll_secs: how often to look meanwhile.
          waiting: called to wait for so many seconds.

        Raises:
          DataError: there are checkpoints, and none verifies.
        """
        self._found = self._own = None
        self._is_over = False
        if self._upkeep is None or self._rundir is None or self._saver is None:
            return None
        deadline = time.monotonic() + wait_secs
        while True:
            if (own := self._programs_own(self._rundir)) is not None:
                self._own = Path(own)
                return own
            self._upkeep.store.adopt(read_whole)
            self._found = self._upkeep.find(foreign=True)
            if self._found is not None:
                return str(self._rundir.prefix(self._found.step))
            if time.monotonic() >= deadline:
                return None
            tf1.logging.info("Waiting for checkpoint to be available.")
            waiting(poll_secs)

    def _programs_own(self, rundir: RunDirectory) -> str | None:
        """The prefix that `checkpoint` names, where the program saved it last, under a name that is not ours."""
        latest = tf.train.latest_checkpoint(str(rundir.path))
        if latest is None or re.fullmatch(re.escape(rundir.basename) + r"-\d+", Path(latest).name):
            return None
        try:
            read_whole(Path(latest))
        except DamagedError as error:
            tf1.logging.warning("%s is passed over: %s", latest, error)
            return None
        return str(latest)

    def take(self, session: Any) -> Any:
        """Look after this `tf.compat.v1.Session` from now on, in which the model is restored or initialized."""
        assert self._care is not None
        with self._care.boundary.lock:
            if isinstance(session, tf1.Session):
                adopt(session, self._care)
                self._care.closing = self._closing
            if self.model is None or self._upkeep is None:
                return session
            found = self._found
            if found is None:
                self.model.open(session, self._own)
            else:
                assert self._rundir is not None
                self.model.open(session, self._rundir.prefix(found.step), found.step)
                self._upkeep.resumed(found)
            self._recorded = self.model.step
            self._reporter.update(phase=Phase.TRAINING, step=self._recorded)
            if not self._is_kept:
                self._upkeep.start()
                self._stack.enter_context(self._upkeep.ticker)
                self._is_kept = True
        return session

    def start_services(self, secs: float, steps: int) -> None:
        """Have checkpoints made on a schedule from now on, the first at once.

        Args:
          secs, steps: between checkpoints; 0 for none.
        """
        if self._upkeep is None or self.model is None or self._care is None:
            return
        with self._care.boundary.lock:
            if self._global_step is not None:
                self._upkeep.recording.begin(self.model, self.model.step)
            self._upkeep.apply(self._config(secs, steps) if self._saver is not None else self._config(0, 0))
            if self._saver is not None and (secs or steps):
                self._upkeep.checkpointing.start(self.model, "start")
            self._flag.raise_for(Request.TICK)  # the schedules are looked at when it is served

    def add_service(
        self, name: str, action: Callable[[], None], schedule: Schedule, *, at_next_step: bool = False
    ) -> None:
        """Have something done on a schedule, at boundaries: first when it is due, or after the next step."""
        if self._upkeep is not None and self._care is not None:
            with self._care.boundary.lock:
                self._upkeep.add(name, action, schedule, at_next_step=at_next_step)
            self._flag.raise_for(Request.TICK)  # the schedules are looked at when it is served

    def _config(self, secs: float, steps: int) -> Config:
        """What a trainerd.toml would say of all this."""
        definition = self._saver.saver_def if self._saver is not None else None
        keep, hours = (definition.max_to_keep, definition.keep_checkpoint_every_n_hours) if definition else (0, 0.0)
        return Config(
            entry=Path(sys.argv[0]).name,
            logdir=str(self._rundir.path if self._rundir else ""),
            stop_on_nan=False,
            checkpoint=CheckpointConfig(
                save_model_secs=secs,
                save_model_steps=steps,
                keep_last=keep or _FOR_EVER,
                keep_every_hours=hours,
            ),
            summary=SummaryConfig(save_summaries_secs=0, metrics_secs=0),
            evaluate=EvaluateConfig(evaluate_secs=0),
            log=LogConfig(progress_secs=0),
        )

    # ------------------------------------------------------------------ the loop

    @property
    def is_active(self) -> bool:
        """Whether it holds the run directory."""
        return self._upkeep is not None

    @property
    def next_step(self) -> float:
        """The global step at which a service is due; infinity where none is by steps."""
        return self._care.next_step if self._care is not None else math.inf

    @property
    def boundary(self) -> Boundary | None:
        """Where services are run; None before a session is looked after."""
        return self._care.boundary if self._care is not None else None

    def look(self) -> None:
        """The program looks whether it should stop: on the loop's thread that is a boundary too."""
        if self._flag.is_raised and self._care is not None and self._care.boundary.is_mine:
            self._care.boundary.reached()

    def summarize(self) -> None:
        """Run the summary op."""
        if self._upkeep is not None and self.model is not None:
            self._upkeep.recording.summarize(self.model)

    def count_steps(self) -> None:
        """Write the rate of the steps since the last time."""
        if self.model is None:
            return
        now = Mark(self.model.step, time.monotonic())
        if self._counted is not None and now.now > self._counted.now:
            rate = (now.step - self._counted.step) / (now.now - self._counted.now)
            name = self._global_step.op.name.removesuffix("/Read/ReadVariableOp")
            with contextlib.suppress(StorageError):  # the next summary will say so
                self._events.scalars({f"{name}/sec": rate}, now.step, time.time())
        self._counted = now

    def tell(self, scalars: dict[str, float]) -> None:
        """These figures are what `trainerd status` shows."""
        if self._upkeep is not None:
            self._reporter.hold(metrics=self._reporter.state.metrics | scalars)

    def _serve(self, taken: set[Request]) -> None:
        """Do what is due at a boundary. What fails stops the program's loop, which raises it at its end."""
        try:
            if Request.PAUSE in taken:
                self.outcome = Outcome(Phase.PAUSED, "paused on request")
                self._stop(None)
            if self._upkeep is None or self.model is None or self._care is None:
                return
            if not self._is_kept:  # the session is being made
                if Request.SAVE in taken:
                    self._flag.raise_for(Request.SAVE)
                return
            self._record(self.model.step)
            saves = self._saver is not None
            self._upkeep.serve(taken if saves else taken - {Request.SAVE, Request.PAUSE})
            self._upkeep.run_due()
            if self.outcome is not None and saves:  # at once: who asked may not wait for the program to look
                self._upkeep.checkpointing.start(self.model, "pause")
            self._care.next_step = self._upkeep.limit()
        except Exception as error:
            self._stop(error)

    def _record(self, step: int) -> None:
        """Tell the rate, and the step, of what was done since the last boundary."""
        assert self._upkeep is not None and self.model is not None
        done, self._recorded = max(0, step - self._recorded), step
        self._upkeep.recording.steps(Steps(step - done + 1, (), np.empty((done, 0))), self.model)

    def _saved(self, state: State) -> None:
        """Tell that a checkpoint is begun; and the Supervisor's Saver which there are: programs ask it for them.

        A Saver of the program's own is not told: it would delete them, by its own count.
        """
        if state.saving is not None and state.saving != self._saving:
            self._tell_saving(state.saving)
        self._saving = state.saving
        if isinstance(self._saver, Saver) and state.last_checkpoint is not None and self._rundir is not None:
            if state.last_checkpoint != self._published:
                self._saver.published = [str(self._rundir.prefix(step)) for step in reversed(self._rundir.steps())]
            self._published = state.last_checkpoint

    def _save_now(self) -> str:
        """Make a checkpoint of this boundary. Its prefix, when it is durable."""
        assert (
            self._upkeep is not None and self.model is not None and self._care is not None and self._rundir is not None
        )
        with self._care.boundary.lock:
            step = self.model.step
            self._record(step)
            self._upkeep.checkpointing.finish(self.model, "saver")
        return str(self._rundir.prefix(step))

    # ------------------------------------------------------------------ the end

    def save(self, error: BaseException | None) -> None:
        """Save what is sound, and wait until it is durable.

        Args:
          error: what ended the program's loop.

        Raises:
          StorageError: it could not be saved.
        """
        if self._upkeep is None or self.model is None or self._care is None or self._saver is None:
            return
        if not self._is_kept or self._is_over:  # there was never a session, or it is closed already
            return
        with self._care.boundary.lock:
            if error is not None and not is_clean(error):
                diverged = isinstance(error, tf1.train.NanLossDuringTrainingError)
                self._upkeep.save_after_failure(sound=not self._care.failed(error) and not diverged)
            elif self.saves_at_end or self.outcome is not None:
                outcome = self.outcome or _ENDED
                self._record(self.model.step)
                self._reporter.update(phase=Phase.PAUSING)
                reason = "finish" if outcome.phase is Phase.FINISHED else "pause"
                self._upkeep.checkpointing.finish(self.model, reason)
                self._upkeep.recording.report()
            else:
                self._upkeep.checkpointing.wait()

    def part(self) -> None:
        """The session is about to be closed, and what is to be saved of it is saved."""
        if self._care is not None:
            self._care.closing = lambda error: None
        self.wait()

    def wait(self) -> None:
        """Wait until the checkpoint under way is written: its tensors are in the session."""
        if self._upkeep is not None:
            with contextlib.suppress(StorageError):  # told already
                self._upkeep.checkpointing.wait()

    def leave(self, error: BaseException | None) -> None:
        """Tell how it ended, and give back the run directory and the signals.

        Args:
          error: what ended it.
        """
        with self._care.boundary.lock if self._care is not None else contextlib.nullcontext():
            if self._upkeep is not None:
                if error is None or is_clean(error):
                    self._reporter.update(phase=(self.outcome or _ENDED).phase)
                else:
                    code = error.exit_code if isinstance(error, TrainerdError) else TrainerdError.exit_code
                    self._reporter.update(phase=Phase.FAILED, error=f"{type(error).__name__}: {error}", exit_code=code)
            self._gone()  # what is still raised finds nothing to do
            if self._care is not None:
                self._care.closing = lambda error: None
        self._stack.close()

    def _closing(self, error: BaseException | None) -> None:
        """The program closes the session, before it says that it is done."""
        if threading.get_ident() == (self._care.boundary.thread if self._care is not None else None):
            self.save(error)
        self.wait()
        self._is_over = True

    def _gone(self) -> None:
        if self._upkeep is not None:
            self._upkeep.checkpointing.close()
        self._upkeep, self._is_kept, self._is_over = None, False, False


def is_clean(error: BaseException) -> bool:
    """Whether an error says that the input has ended, and no more."""
    return isinstance(error, tf.errors.OutOfRangeError | StopIteration)
