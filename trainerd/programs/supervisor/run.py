"""The runs under a Supervisor: of a TensorFlow 1 graph, with its ops and its session, and of TensorFlow 2 functions."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import tensorflow as tf

from trainerd.checkpoints import saver_checkpoints
from trainerd.errors import DataError
from trainerd.run.defaults import NO_WRITER, or_default
from trainerd.run.host import Host
from trainerd.run.program_loop import ProgramLoop
from trainerd.rundir.paths import RunDirectory
from trainerd.sessions.tf1 import defaults
from trainerd.sessions.tf1.events import GraphEvents
from trainerd.sessions.tf1.run import GraphRun
from trainerd.sessions.tf1.saver import Saver
from trainerd.sessions.tf1.state import meta_graph
from trainerd.sessions.tf1.unfinalized import unfinalized
from trainerd.sessions.tf2.run import StepRun

tf1 = tf.compat.v1

_WAITING = ("QueueDequeue", "ReaderRead", "Unstage", "MapUnstage", "OrderedMapUnstage", "BarrierTakeMany")


class SupervisedGraph(GraphRun):
    """The run of a Supervisor's graph, which is finalized here.

    Args:
      rundir, loop, host: see `AttachedRun`.
      others: see `Supervisor` for each.

    Raises:
      RuntimeError: called where TensorFlow executes eagerly, with no graph.
      ValueError: not the chief, and a variable has no device.
    """

    def __init__(
        self,
        rundir: RunDirectory | None,
        loop: ProgramLoop,
        host: Host | None,
        *,
        graph: Any,
        is_chief: bool,
        ready_op: Any,
        ready_for_local_init_op: Any,
        init_op: Any,
        init_feed_dict: Mapping[Any, Any] | None,
        local_init_op: Any,
        summary_op: Any,
        summary_writer: Any,
        saver: Any,
        global_step: Any,
        session_manager: Any,
        recovery_wait_secs: float,
        init_fn: Callable[[Any], Any] | None,
        local_init_run_options: Any,
    ) -> None:
        if graph is None and tf.executing_eagerly():
            raise RuntimeError("Supervisors are incompatible with eager execution. Build the graph in a tf.Graph().")
        self.graph = graph if graph is not None else tf1.get_default_graph()
        self.init_feed_dict = init_feed_dict
        self._init_fn = init_fn
        self._is_chief = is_chief
        self._restores = session_manager is None  # a program's own looks for itself, as under TensorFlow's Supervisor
        with self.graph.as_default():
            self.ready_op = or_default(ready_op, defaults.ready_op)
            self.ready_for_local_init_op = or_default(ready_for_local_init_op, defaults.ready_for_local_init_op)
            self.init_op = or_default(init_op, defaults.init_op)
            self.local_init_op = or_default(local_init_op, defaults.local_init_op)
            self.saver = or_default(saver, lambda: defaults.saver(Saver))
            self.summary_op = or_default(summary_op, defaults.summary_op)
            self.global_step = or_default(global_step, defaults.global_step)
            self.session_manager = session_manager or tf1.train.SessionManager(
                local_init_op=self.local_init_op,
                ready_op=self.ready_op,
                ready_for_local_init_op=self.ready_for_local_init_op,
                graph=self.graph,
                recovery_wait_secs=recovery_wait_secs,
                local_init_run_options=local_init_run_options,
            )
            self.summary_writer: Any = None
            if is_chief:
                self.summary_writer = or_default(
                    summary_writer, lambda: tf1.summary.FileWriter(rundir.given) if rundir is not None else None
                )
        events = GraphEvents(self.summary_writer, self.summary_op)
        with unfinalized(self.graph):  # an earlier Supervisor of this graph has finalized it
            super().__init__(self.graph, rundir, self.saver, self.global_step, events, loop, host)
        self._require_devices()
        self.graph.finalize()

    def make_session(self, master: str, config: Any, max_wait_secs: float) -> Any:
        """Return a session, restored from what was found or initialized. Others wait until the chief has made it."""
        with self.graph.as_default():
            if not self._is_chief:
                return self.session_manager.wait_for_session(master, config=config, max_wait_secs=max_wait_secs)
            options = {"config": config, "init_feed_dict": self.init_feed_dict, "init_fn": self._init_fn}
            if self._restores:
                options["checkpoint_filename_with_path"] = self.found_prefix
            else:
                self.name_found()
                options |= {"wait_for_checkpoint": False, "max_wait_secs": max_wait_secs}
                options["checkpoint_dir"] = str(self.rundir.path) if self.rundir is not None else None
            session = self.session_manager.prepare_session(master, init_op=self.init_op, saver=self.saver, **options)
            if not self._restores:
                self.require_restored(session)
            elif self.found_prefix is not None:
                self._give_saver_its_own()
            return session

    def _give_saver_its_own(self) -> None:
        """Give the Saver the checkpoints that the program saved itself, and none of ours: it deletes the oldest."""
        assert self.rundir is not None
        self.saver.recover_last_checkpoints(saver_checkpoints.listed(self.rundir))

    def require_restored(self, session: Any) -> None:
        """Require that a session that the program itself made has resumed from the checkpoint that was found.

        Raises:
          DataError: it has not.
        """
        prefix = self.found_prefix
        if prefix is None or self.saver is None:
            return
        self._give_saver_its_own()
        if self.global_step is None:
            return
        reader, name = tf.train.load_checkpoint(prefix), self.global_step.op.name.removesuffix("/Read/ReadVariableOp")
        saved = int(reader.get_tensor(name)) if reader.has_tensor(name) else None
        if saved is not None and saved > (step := int(session.run(self.global_step))):
            raise DataError(
                f"a session that the program made began at step {step}, and {prefix}, from which the run resumes, has "
                f"step {saved}. Restore it from there: a session manager of the program's own is called with the "
                "checkpoint_dir. To start over, use another `logdir`."
            )

    @property
    def can_summarize(self) -> bool:
        """True if there is a writer for summaries."""
        return bool(self.summary_writer)

    @property
    def has_queues(self) -> bool:
        """True if a part of the graph may wait until something fills a queue."""
        return any(op.type.startswith(_WAITING) for op in self.graph.get_operations())

    @property
    def queue_runners(self) -> list[Any]:
        """The queue runners of the graph."""
        return list(self.graph.get_collection(tf1.GraphKeys.QUEUE_RUNNERS))

    def write_graph(self) -> None:
        """Write `graph.pbtxt` into the run directory."""
        assert self.rundir is not None
        tf.io.write_graph(self.graph.as_graph_def(add_shapes=True), self.rundir.given, "graph.pbtxt")

    def show_graph(self) -> None:
        """Write the graph for TensorBoard."""
        self.summary_writer.add_graph(self.graph)
        model = self.model
        whole = model.state.meta_graph if model is not None else meta_graph(self.graph, self.saver)
        self.summary_writer.add_meta_graph(whole)

    def summarized(self, session: Any, summary: Any, global_step: int | None) -> None:
        """Write a Summary of a step. Default: the present one.

        Raises:
          RuntimeError: there is no summary writer.
        """
        if not self.summary_writer:
            raise RuntimeError(NO_WRITER)
        if global_step is None and self.global_step is not None:
            global_step = int(session.run(self.global_step).item())  # on whatever thread
        self._graph_events.computed(summary, global_step)

    def _require_devices(self) -> None:
        """Refuse variables without a device, if there are several processes."""
        for op in () if self._is_chief else self.graph.get_operations():
            if op.type in ("Variable", "VariableV2") and not op.device:
                raise ValueError(f"When using replicas, all Variables must have their device set: {op}")


class SupervisedFunctions(StepRun):
    """The run of a Supervisor's functions; see `StepRun`. It has none of a graph's ops, and writes no graph."""

    ready_op = ready_for_local_init_op = init_op = init_feed_dict = local_init_op = session_manager = None
    summary_writer = None  # event files are trainerd's own, written in the background
    queue_runners: Sequence[Any] = ()
    can_summarize, has_queues = True, False

    def require_restored(self, session: Any) -> None:
        """Do nothing: the run restores the session when it takes it."""

    def write_graph(self) -> None:
        """Do nothing: a program may run several functions."""

    def show_graph(self) -> None:
        """Do nothing: no graph was written."""

    def summarized(self, session: Any, summary: Any, global_step: int | None) -> None:
        """Write scalars of a step. Default: the present one.

        Args:
          session: not used.
          summary: a dict of name to number, or a Summary of scalars, serialized or not.
          global_step: the step.

        Raises:
          RuntimeError: there is no `logdir`.
        """
        if not isinstance(summary, Mapping):
            parsed = tf.compat.v1.Summary.FromString(summary) if isinstance(summary, bytes) else summary
            summary = {value.tag: value.simple_value for value in parsed.value if value.HasField("simple_value")}
        self.write({str(name): float(value) for name, value in summary.items()}, global_step)
