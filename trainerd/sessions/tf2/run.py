"""An attached run of TensorFlow 2 functions."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import tensorflow as tf

from trainerd.events.writer import EventWriter
from trainerd.loop.contract import Events, Steps
from trainerd.run.attached import AttachedRun
from trainerd.run.boundary import Boundary
from trainerd.run.defaults import NO_WRITER, USE_DEFAULT
from trainerd.run.host import Host
from trainerd.run.program_loop import ProgramLoop
from trainerd.run.session_link import SessionLink
from trainerd.run.settings import KeepSettings
from trainerd.rundir.paths import RunDirectory
from trainerd.sessions.tf2.model import CheckpointModel
from trainerd.sessions.tf2.session import FunctionSessionLink, StepSession


class FunctionRun(AttachedRun):
    """Signals, checkpoints and summaries for one session of functions; see `AttachedRun`.

    Args:
      rundir: where checkpoints go; None if nothing is saved.
      model: what the functions change: a CheckpointModel, or the session of a job.
      keep: how much is kept.
      loop, host: see `AttachedRun`.
    """

    saves_at_start = False  # what there is to save may only be known after the first step

    def __init__(
        self,
        rundir: RunDirectory | None,
        model: Any,
        keep: KeepSettings,
        loop: ProgramLoop,
        host: Host | None = None,
    ) -> None:
        self.model = model
        kept: tuple[Any, Any] = (None, None) if rundir is None else (model, keep)
        super().__init__(rundir, *kept, "global_step", Events(), loop, host)

    @contextlib.contextmanager
    def begun(self) -> Iterator[None]:
        """Take the run directory and the signals; see `AttachedRun`. It opens new event files each time."""
        if self.rundir is not None:
            self._events = EventWriter(self.rundir.path)
        with super().begun():
            yield

    def summarize(self) -> None:
        """Write a point of each curve, and the summaries."""
        self.write_metrics()
        super().summarize()

    def write_metrics(self) -> None:
        """Write a point of each curve."""
        if self._run is not None:
            self._run.recorder.write_metrics()

    def write(self, scalars: Mapping[str, float], step: int | None) -> None:
        """Write scalars of a step; of the present one if none is given.

        Raises:
          RuntimeError: there is no `logdir`.
        """
        if self._run is None:
            raise RuntimeError(NO_WRITER)
        self._events.scalars(scalars, self.model.step if step is None else step, time.time())
        self.show(dict(scalars))

    def leave(self, error: BaseException | None) -> None:
        """See `AttachedRun`. The curves get their last points."""
        if self._run is not None:
            self._run.recorder.write_metrics()
            self._run.recorder.close()
        super().leave(error)

    def _make_session_link(self, boundary: Boundary) -> SessionLink:
        return FunctionSessionLink(boundary, ran=self._ran, should_stop=self.loop.should_stop)

    def _adopt(self, session: StepSession) -> None:
        assert isinstance(self._session_link, FunctionSessionLink)
        session.session_link = self._session_link

    def _open(self, session: Any, prefix: Path | None, step: int, *, was_finished: bool) -> None:
        if prefix is None:
            self.model.begin_inputs()
        else:
            self.model.restore(prefix)
        self.model.count_from(step)

    def _ran(self, steps: Steps) -> None:
        """Keep the metrics of these steps."""
        if self._run is not None:
            self._recorded = self.model.step
            self._run.recorder.steps(steps)
            if self.loop.loss:
                self._run.minima.steps(steps, self.loop.loss)


class StepRun(FunctionRun):
    """The run of functions that change what a `tf.train.Checkpoint` tracks.

    Args:
      rundir, loop, host: see `AttachedRun`.
      checkpoint, global_step, summary_op, init_fn: see `Supervisor`.
      is_chief: True: one process trains by itself.
      others: what only a graph has a use for, by the names of the program's arguments.

    Raises:
      EntryError: it is not a `tf.train.Checkpoint`.
      ValueError: an argument is given that only a graph has a use for, or this is not the chief.
    """

    def __init__(
        self,
        rundir: RunDirectory | None,
        loop: ProgramLoop,
        host: Host | None = None,
        *,
        checkpoint: Any,
        is_chief: bool = True,
        global_step: Any = None,
        summary_op: Any = None,
        init_fn: Callable[[Any], Any] | None = None,
        others: Mapping[str, Any],
    ) -> None:
        if given := [name for name, value in others.items() if value is not None and value is not USE_DEFAULT]:
            raise ValueError(f"{', '.join(given)}: with `checkpoint` there is no graph, so leave it out.")
        if not is_chief:
            raise ValueError("is_chief=False: with `checkpoint` one process trains by itself.")
        self._counts = global_step is USE_DEFAULT or global_step is None
        if self._counts:
            with tf.device("CPU:0"):
                global_step = tf.Variable(0, dtype=tf.int64, trainable=False, name="global_step")
        self.global_step = global_step
        self.summary_op = None if summary_op is USE_DEFAULT else summary_op
        self.saver = checkpoint
        self._init_fn = init_fn
        self._is_new = False
        model = CheckpointModel(checkpoint, global_step, self.summary_op)
        super().__init__(rundir, model, KeepSettings(), loop, host)

    def make_session(self, master: str = "", config: Any = None, max_wait_secs: float = 0) -> StepSession:
        """Return a session, which `take` restores. Its arguments are for graphs."""
        self._is_new = self.found_prefix is None
        tf.summary.experimental.set_step(self.global_step)
        return StepSession(self.model, self.global_step, counts=self._counts)

    def take(self, session: Any) -> Any:
        """Manage this session; see `AttachedRun`. If there was no checkpoint, the program's `init_fn` is called."""
        super().take(session)
        is_new, self._is_new = self._is_new, False
        if is_new and self._init_fn is not None:
            self._init_fn(session)
        return session
