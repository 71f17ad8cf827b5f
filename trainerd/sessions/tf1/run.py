"""An attached run of a TensorFlow 1 graph."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import tensorflow as tf

from trainerd.run.attached import AttachedRun
from trainerd.run.boundary import Boundary
from trainerd.run.host import Host
from trainerd.run.program_loop import ProgramLoop
from trainerd.run.session_link import SessionLink
from trainerd.run.settings import KeepSettings
from trainerd.rundir.paths import RunDirectory
from trainerd.rundir.state import LastCheckpoint, State
from trainerd.sessions.tf1.events import GraphEvents
from trainerd.sessions.tf1.model import GraphModel
from trainerd.sessions.tf1.saver import Saver
from trainerd.sessions.tf1.session import adopt
from trainerd.sessions.tf1.session_link import GraphSessionLink
from trainerd.sessions.tf1.state import GraphState


class GraphRun(AttachedRun):
    """Signals, checkpoints and summaries for one session of a graph; see `AttachedRun`.

    Args:
      graph: the graph.
      rundir: where checkpoints go; None if nothing is saved.
      saver: says what is saved, and how much is kept; None if nothing is.
      global_step: counts the steps; None if nothing does.
      events: what is written for TensorBoard; None for nothing.
      loop, host: see `AttachedRun`.

    Attributes:
      model: the graph as it is saved; None without a run directory.
    """

    def __init__(
        self,
        graph: Any,
        rundir: RunDirectory | None,
        saver: Any,
        global_step: Any,
        events: GraphEvents | None,
        loop: ProgramLoop,
        host: Host | None = None,
    ) -> None:
        if saver is not None and saver.saver_def is None:
            with graph.as_default():
                saver.build()
        if saver is not None and saver.saver_def is None:  # a Saver of nothing: it was made with allow_empty
            saver = None
        self.model: GraphModel | None = None
        if rundir is not None:
            self.model = GraphModel(GraphState(graph, saver), global_step)
            self.model.state.require_exact_inputs()
        self._saver = saver
        self._published: LastCheckpoint | None = None
        name = global_step.op.name.removesuffix("/Read/ReadVariableOp") if global_step is not None else None
        events = events or GraphEvents(None)
        events.show_with(self.show)
        self._graph_events = events
        keep = None
        if saver is not None:
            keep = KeepSettings(saver.saver_def.max_to_keep, saver.saver_def.keep_checkpoint_every_n_hours)
        super().__init__(rundir, self.model, keep, name, events, loop, host)

    def _make_session_link(self, boundary: Boundary) -> SessionLink:
        if self.rundir is None or self._saver is None:
            return GraphSessionLink(boundary, model=self.model)
        return GraphSessionLink(
            boundary,
            model=self.model,
            save_path=self.rundir.path / self.rundir.basename,
            save=lambda: self.save_now("saver"),
        )

    def _adopt(self, session: Any) -> None:
        assert isinstance(self._session_link, GraphSessionLink)
        if isinstance(session, tf.compat.v1.Session):
            adopt(session, self._session_link)

    def leave(self, error: BaseException | None) -> None:
        """See `AttachedRun`. What a program saves from then on, its Saver writes as TensorFlow does."""
        super().leave(error)
        if isinstance(self._session_link, GraphSessionLink):
            self._session_link.save_no_more()

    def _open(self, session: Any, prefix: Path | None, step: int, *, was_finished: bool) -> None:
        assert self.model is not None
        self.model.open(session, prefix, step, was_finished=was_finished)

    def _be_back_at(self, step: float) -> None:
        """Have the loop come to a boundary at this global step, and after as many runs as there are steps left.

        A run may be no step, or several.
        """
        super()._be_back_at(step)
        assert isinstance(self._session_link, GraphSessionLink) and self.model is not None
        if self._run is not None and self._run.config.max_steps is not None:
            limit = self.model.runs + max(1, self._run.config.max_steps - self.model.step)
            self._session_link.be_back_after(limit)

    def _saved(self, state: State) -> None:
        """Record the checkpoint for TensorBoard and in the Supervisor's Saver, which programs ask for checkpoints.

        A Saver of the program's own does not get it: it would delete checkpoints by its own count.
        """
        super()._saved(state)
        last, rundir = state.last_checkpoint, self.rundir
        if last is None or rundir is None or last == self._published:
            return
        self._published = last
        if isinstance(self._saver, Saver):
            self._saver.publish([f"{rundir.save_path}-{step}" for step in reversed(rundir.steps())])
        if last.seconds is not None:  # it was saved now, and not restored
            self._graph_events.saved(last.path, last.step)
            self.loop.saved(last.step)
