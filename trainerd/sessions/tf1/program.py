"""A TensorFlow 1 graph under a Supervisor: its ops, and how its session is made."""

from __future__ import annotations

from collections.abc import Callable, Mapping
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

tf1 = tf.compat.v1

_WAITING = ("QueueDequeue", "ReaderRead", "Unstage", "MapUnstage", "OrderedMapUnstage", "BarrierTakeMany")


class GraphProgram:
    """The ops of a graph; see `Supervisor` for each.

    Attributes:
      restores: whether a session is restored from the prefix that it is to be; a session manager of the program's own
        looks for itself, as it does under TensorFlow's Supervisor.

    Raises:
      RuntimeError: called where TensorFlow executes eagerly, with no graph.
      ValueError: not the chief, and a variable has no device.
    """

    def __init__(
        self,
        graph: Any,
        *,
        is_chief: bool,
        ready_op: Any,
        ready_for_local_init_op: Any,
        init_op: Any,
        init_feed_dict: Mapping[Any, Any] | None,
        local_init_op: Any,
        summary_op: Any,
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
        self.init_fn = init_fn
        self._is_chief = is_chief
        self.restores = session_manager is None
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

    def writer(self, logdir: str | None) -> Any:
        """The summary writer for a folder."""
        if not logdir:
            return None
        with self.graph.as_default():
            return tf1.summary.FileWriter(logdir)

    def managed(
        self, rundir: RunDirectory | None, writer: Any, loop: ProgramLoop, host: Host | None = None
    ) -> GraphRun:
        """The managed run of its session. The graph is finalized."""
        self._writer, self._rundir = writer, rundir
        self._events = GraphEvents(writer, self.summary_op)
        with unfinalized(self.graph):  # an earlier Supervisor of this graph has finalized it
            self._managed = GraphRun(self.graph, rundir, self.saver, self.global_step, self._events, loop, host)
        self._require_devices()
        self.graph.finalize()
        return self._managed

    def session(self, master: str, config: Any, prefix: Any, max_wait_secs: float) -> Any:
        """A session, restored from a checkpoint or initialized; by the chief, which another process waits for."""
        with self.graph.as_default():
            if not self._is_chief:
                return self.session_manager.wait_for_session(master, config=config, max_wait_secs=max_wait_secs)
            options = {"config": config, "init_feed_dict": self.init_feed_dict, "init_fn": self.init_fn}
            if self.restores:
                options["checkpoint_filename_with_path"] = prefix
            else:
                options |= {"wait_for_checkpoint": False, "max_wait_secs": max_wait_secs}
                options["checkpoint_dir"] = str(self._rundir.path) if self._rundir is not None else None
            session = self.session_manager.prepare_session(master, init_op=self.init_op, saver=self.saver, **options)
            if not self.restores:
                self.require_restored(session, prefix)
            elif prefix is not None:
                self._give_saver_its_own()
            return session

    def _give_saver_its_own(self) -> None:
        """Give the Saver the checkpoints that the program saved itself, and none of ours: it deletes the oldest."""
        assert self._rundir is not None
        self.saver.recover_last_checkpoints(saver_checkpoints.listed(self._rundir))

    def require_restored(self, session: Any, prefix: str | None) -> None:
        """Require that a session that the program itself made has resumed from the run's checkpoint.

        Raises:
          DataError: it has not.
        """
        if prefix is None or self._rundir is None or self.saver is None:
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
    def has_queues(self) -> bool:
        """Whether a part of the graph may wait until something fills a queue."""
        return any(op.type.startswith(_WAITING) for op in self.graph.get_operations())

    @property
    def queue_runners(self) -> list[Any]:
        """The queue runners of the graph."""
        return list(self.graph.get_collection(tf1.GraphKeys.QUEUE_RUNNERS))

    def begun(self, session: Any) -> None:
        """The session is managed now: nothing is left to do."""

    def write_graph(self, logdir: str) -> None:
        """Write `graph.pbtxt`."""
        tf.io.write_graph(self.graph.as_graph_def(add_shapes=True), logdir, "graph.pbtxt")

    def show_graph(self, writer: Any) -> None:
        """Write the graph for TensorBoard."""
        writer.add_graph(self.graph)
        state = self._managed.state
        writer.add_meta_graph(state.meta_graph if state is not None else meta_graph(self.graph, self.saver))

    def summarized(self, session: Any, summary: Any, global_step: int | None) -> None:
        """Write a Summary of a step. Default: the present one.

        Raises:
          RuntimeError: there is no summary writer.
        """
        if not self._writer:
            raise RuntimeError(NO_WRITER)
        if global_step is None and self.global_step is not None:
            global_step = int(session.run(self.global_step).item())  # on whatever thread
        self._events.computed(summary, global_step)

    def _require_devices(self) -> None:
        """Refuse variables without a device, if there are several processes."""
        for op in () if self._is_chief else self.graph.get_operations():
            if op.type in ("Variable", "VariableV2") and not op.device:
                raise ValueError(f"When using replicas, all Variables must have their device set: {op}")
