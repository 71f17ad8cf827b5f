"""`trainerd.Supervisor`: what `tf.compat.v1.train.Supervisor` is, saved at boundaries, durable, and paused by a signal.

The names, the defaults and their meanings are those of TensorFlow's; its documentation of each holds here, but for
what the class says.
"""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf

from trainerd.config import CheckpointConfig, Config, EvaluateConfig, LogConfig, SummaryConfig
from trainerd.errors import TrainerdError
from trainerd.events.graphevents import GraphEvents, SessionLog
from trainerd.rundir import CHECKPOINT_BASENAME, RunDirectory
from trainerd.sessions.contract import Steps
from trainerd.sessions.graph import GraphSession, read_whole
from trainerd.sessions.graphstate import GraphState
from trainerd.state import Phase, State
from trainerd.supervisor import defaults
from trainerd.supervisor.boundary import Boundary
from trainerd.supervisor.flag import Flag, Request
from trainerd.supervisor.looper import Looper
from trainerd.supervisor.managed import Care, adopt
from trainerd.supervisor.outcome import Outcome
from trainerd.supervisor.periodic import called_every
from trainerd.supervisor.tenancy import signals_raise, tenancy
from trainerd.supervisor.upkeep import Upkeep

tf1 = tf.compat.v1

_IDLE_SECS = 0.25
_FOR_EVER = 2**62


class Supervisor:
    """Looks after a TensorFlow 1 graph while a program of the user's own trains it.

    As with `tf.compat.v1.train.Supervisor`, but:

    - checkpoints and summaries are made between two steps of the thread that asked for the session, so each is of one
      step; they are written in the background, and are on disk for sure and verified before they are named;
    - SIGTERM, SIGINT, and a file `pause` in `logdir` make `should_stop()` true; SIGUSR1 and a file `save` save;
    - when it stops it saves, unless `save_model_secs` is 0 and it was not asked to pause;
    - one process at a time trains in a `logdir`.

    Args:
      graph: the graph; it is finalized here. Defaults to the default graph.
      ready_op, ready_for_local_init_op: name what is not initialized. None: not checked.
      is_chief: whether this process initializes, saves and writes summaries.
      init_op, init_feed_dict: initialize the model where there is no checkpoint. None: no such op.
      local_init_op: initializes what is not saved.
      logdir: where checkpoints and event files go. None: neither is written.
      summary_op: what the summary service fetches. None: no such service.
      saver: what is saved and restored, and how many checkpoints are kept. None: nothing is saved.
      global_step: counts the steps. None: they are not counted.
      save_summaries_secs: seconds between summaries. 0: none.
      save_model_secs: seconds between checkpoints. 0: none.
      recovery_wait_secs: seconds between checks of whether the chief has made the model ready.
      stop_grace_secs: seconds that threads have to stop.
      checkpoint_basename: the first part of the checkpoints' names.
      session_manager: makes the session. Defaults to TensorFlow's own.
      summary_writer: defaults to a FileWriter for `logdir`. None: no summaries.
      init_fn: called with the session after `init_op`, where there is no checkpoint.
      local_init_run_options: RunOptions for `local_init_op`.

    Raises:
      RuntimeError: called where TensorFlow executes eagerly, with no graph.
      ValueError: not the chief, and a variable has no device.
    """

    USE_DEFAULT = 0

    def __init__(
        self,
        graph: Any = None,
        ready_op: Any = USE_DEFAULT,
        ready_for_local_init_op: Any = USE_DEFAULT,
        is_chief: bool = True,
        init_op: Any = USE_DEFAULT,
        init_feed_dict: Mapping[Any, Any] | None = None,
        local_init_op: Any = USE_DEFAULT,
        logdir: str | None = None,
        summary_op: Any = USE_DEFAULT,
        saver: Any = USE_DEFAULT,
        global_step: Any = USE_DEFAULT,
        save_summaries_secs: float = 120,
        save_model_secs: float = 600,
        recovery_wait_secs: float = 30,
        stop_grace_secs: float = 120,
        checkpoint_basename: str = CHECKPOINT_BASENAME,
        session_manager: Any = None,
        summary_writer: Any = USE_DEFAULT,
        init_fn: Callable[[Any], Any] | None = None,
        local_init_run_options: Any = None,
    ) -> None:
        if graph is None and tf.executing_eagerly():
            raise RuntimeError("Supervisors are incompatible with eager execution. Build the graph in a tf.Graph().")
        self._graph = graph if graph is not None else tf1.get_default_graph()
        self._is_chief = is_chief
        self._coord = tf1.train.Coordinator()
        self._recovery_wait_secs = recovery_wait_secs
        self._stop_grace_secs = stop_grace_secs
        self._init_feed_dict, self._init_fn = init_feed_dict, init_fn
        self._logdir = logdir if is_chief else None
        self._save_summaries_secs = save_summaries_secs if is_chief else None
        self._save_model_secs = save_model_secs if is_chief else None
        with self._graph.as_default():
            self._ready_op = _default(ready_op, defaults.ready_op)
            self._ready_for_local_init_op = _default(ready_for_local_init_op, defaults.ready_for_local_init_op)
            self._init_op = _default(init_op, defaults.init_op)
            self._local_init_op = _default(local_init_op, defaults.local_init_op)
            self._saver = _default(saver, defaults.saver)
            self._summary_op = _default(summary_op, defaults.summary_op)
            self._global_step = _default(global_step, defaults.global_step)
            self._session_manager = session_manager or tf1.train.SessionManager(
                local_init_op=self._local_init_op,
                ready_op=self._ready_op,
                ready_for_local_init_op=self._ready_for_local_init_op,
                graph=self._graph,
                recovery_wait_secs=recovery_wait_secs,
                local_init_run_options=local_init_run_options,
            )
        self._state = self._model = self._rundir = None
        if self._logdir:
            self._rundir = RunDirectory(Path(self._logdir).expanduser().absolute(), checkpoint_basename)
            self._state = GraphState(self._graph, self._saver)
            self._model = GraphSession(self._state, self._global_step)
        self._summary_writer = _default(summary_writer, self._make_writer) if is_chief else None
        self._graph_written = False
        self._require_devices()
        self._graph.finalize()
        self._flag = Flag()
        self._stack = contextlib.ExitStack()
        self._upkeep: Upkeep | None = None
        self._care: Care | None = None
        self._outcome: Outcome | None = None
        self._error: BaseException | None = None

    # ------------------------------------------------------------------ what it was made with

    @property
    def is_chief(self) -> bool:
        """Whether this process initializes, saves and writes summaries."""
        return self._is_chief

    @property
    def session_manager(self) -> Any:
        """The SessionManager that makes the session."""
        return self._session_manager

    @property
    def coord(self) -> Any:
        """The Coordinator of the threads."""
        return self._coord

    @property
    def init_op(self) -> Any:
        """The op that initializes the model, or None."""
        return self._init_op

    @property
    def init_feed_dict(self) -> Any:
        """What is fed to `init_op`."""
        return self._init_feed_dict

    @property
    def ready_op(self) -> Any:
        """The op that names what is not initialized, or None."""
        return self._ready_op

    @property
    def ready_for_local_init_op(self) -> Any:
        """The op that names what `local_init_op` still needs, or None."""
        return self._ready_for_local_init_op

    @property
    def summary_writer(self) -> Any:
        """The chief's FileWriter, or None."""
        return self._summary_writer

    @property
    def summary_op(self) -> Any:
        """What the summary service fetches, or None."""
        return self._summary_op

    @property
    def save_summaries_secs(self) -> float | None:
        """Seconds between summaries; None where this is not the chief."""
        return self._save_summaries_secs

    @property
    def global_step(self) -> Any:
        """What counts the steps, or None."""
        return self._global_step

    @property
    def saver(self) -> Any:
        """The Saver that says what is saved, or None."""
        return self._saver

    @property
    def save_model_secs(self) -> float | None:
        """Seconds between checkpoints; None where this is not the chief."""
        return self._save_model_secs

    @property
    def save_path(self) -> str | None:
        """What the checkpoints' paths begin with; None where nothing is saved."""
        return None if self._rundir is None else str(Path(str(self._logdir)) / self._rundir.basename)

    # ------------------------------------------------------------------ a session's life, top to bottom

    @contextlib.contextmanager
    def managed_session(
        self,
        master: str = "",
        config: Any = None,
        start_standard_services: bool = True,
        close_summary_writer: bool = True,
    ) -> Iterator[Any]:
        """A session that is restored or initialized, ready to run steps, and looked after while the block runs.

        What the block or a service raises is raised when the block ends, after everything was stopped and saved.
        `tf.errors.OutOfRangeError` says that the input has ended, and is no error.

        Args:
          master: the TensorFlow master.
          config: a ConfigProto for the session.
          start_standard_services: whether checkpoints and summaries are made on their schedules.
          close_summary_writer: whether the summary writer is closed at the end.
        """
        session = None
        try:
            session = self.prepare_or_wait_for_session(
                master, config=config, start_standard_services=start_standard_services
            )
            yield session
        except Exception as error:
            self._error = error
            self.request_stop(error)
        finally:
            try:
                self.stop(close_summary_writer=close_summary_writer)
            finally:
                if session is not None:
                    with contextlib.suppress(Exception):  # what still blocks in it is cut off, which it may lament
                        session.close()

    def prepare_or_wait_for_session(
        self,
        master: str = "",
        config: Any = None,
        wait_for_checkpoint: bool = False,
        max_wait_secs: float = 7200,
        start_standard_services: bool = True,
    ) -> Any:
        """Make a session, and restore or initialize the model in it; wait for the chief to do so where this is not it.

        Args:
          master, config: see `managed_session`.
          wait_for_checkpoint: whether to wait until there is a checkpoint.
          max_wait_secs: for how long to wait.
          start_standard_services: whether to start the services and the queue runners.

        Raises:
          DataError: there are checkpoints, and none verifies.
          InUseError: another process trains in `logdir`.
        """
        self._coord.clear_stop()
        self._outcome = self._error = None
        if self._summary_writer:
            self._summary_writer.reopen()
        boundary = Boundary(self._flag, self._serve)
        if self._is_chief:
            session = self._prepare(boundary, master, config, wait_for_checkpoint, max_wait_secs)
            self._write_graph()
            if start_standard_services:
                tf1.logging.info("Starting standard services.")
                self.start_standard_services(session)
        else:
            session = self._session_manager.wait_for_session(master, config=config, max_wait_secs=max_wait_secs)
            self._care = Care(boundary, None, None)
            adopt(session, self._care)
        if start_standard_services:
            tf1.logging.info("Starting queue runners.")
            self.start_queue_runners(session)
        return session

    def start_standard_services(self, sess: Any) -> list[Any] | None:
        """Have checkpoints and summaries made on their schedules from now on.

        Returns:
          The threads that run them: none, they are run between two steps. None where there is no `logdir`.

        Raises:
          RuntimeError: this is not the chief.
        """
        if not self._is_chief:
            raise RuntimeError(
                "Only chief supervisor can start standard services. Because only chief supervisors can write events."
            )
        if self._upkeep is None or self._model is None or self._care is None:
            tf1.logging.warning("Standard services need a 'logdir' passed to the SessionManager")
            return None
        with self._care.boundary.lock:
            if self._global_step is not None and self._summary_writer:
                self._upkeep.recording.begin(self._model, self._model.step)
            self._upkeep.apply(self._config(services=True))
            if self._summary_writer and self._save_summaries_secs:
                self._upkeep.run_now("summary", "step counter")
            if self._saver is not None and self._save_model_secs:
                self._upkeep.checkpointing.start(self._model, "start")
        return []

    def start_queue_runners(self, sess: Any, queue_runners: Sequence[Any] | None = None) -> list[Any]:
        """Start the threads of queue runners: the graph's, where none are given."""
        if queue_runners is None:
            queue_runners = self._graph.get_collection(tf1.GraphKeys.QUEUE_RUNNERS)
        threads: list[Any] = []
        for runner in queue_runners:
            threads.extend(runner.create_threads(sess, coord=self._coord, daemon=True, start=True))
        return threads

    def loop(
        self,
        timer_interval_secs: float | None,
        target: Callable[..., Any],
        args: Sequence[Any] | None = None,
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        """Call a function every so many seconds, between two steps, until the supervisor stops.

        Args:
          timer_interval_secs: seconds between two calls; None for as often as possible.
          target, args, kwargs: what to call.

        Returns:
          The thread that keeps the time.
        """
        boundary = self._care.boundary if self._care else None
        looper = Looper(self._coord, timer_interval_secs, boundary, target, args, kwargs)
        looper.start()
        return looper

    def stop(
        self,
        threads: Sequence[Any] | None = None,
        close_summary_writer: bool = True,
        ignore_live_threads: bool = False,
    ) -> None:
        """Save, and stop the services and the threads. The session is not closed.

        Args:
          threads: further threads to wait for.
          close_summary_writer: whether to close the summary writer.
          ignore_live_threads: whether threads that do not stop in `stop_grace_secs` are no error.

        Raises:
          what a service or a thread raised first.
        """
        self._coord.request_stop()
        try:
            with self._stack:
                self._end(threads, ignore_live_threads)
        finally:
            self._stack = contextlib.ExitStack()
            self._upkeep = None
            if close_summary_writer and self._summary_writer:
                self._summary_writer.add_session_log(SessionLog(status=SessionLog.STOP))
                self._summary_writer.close()
                self._graph_written = False

    # ------------------------------------------------------------------ what a program asks for

    def request_stop(self, ex: Any = None) -> None:
        """Ask all threads to stop; see `tf.compat.v1.train.Coordinator.request_stop`."""
        self._coord.request_stop(ex=ex)

    def should_stop(self) -> bool:
        """Whether the loop should end: it was asked to, a service failed, or the run is to be paused."""
        if self._flag.is_raised and self._care is not None and self._care.boundary.is_mine:
            self._care.boundary.reached()
        return bool(self._coord.should_stop())

    def stop_on_exception(self) -> Any:
        """A context that asks to stop where its block raises; see `tf.compat.v1.train.Coordinator`."""
        return self._coord.stop_on_exception()

    def wait_for_stop(self) -> None:
        """Wait until somebody asks to stop. Meanwhile what is due is done."""
        while not self.should_stop():
            self._coord.wait_for_stop(_IDLE_SECS)

    def summary_computed(self, sess: Any, summary: Any, global_step: int | None = None) -> None:
        """Write a Summary to the event file.

        Args:
          sess: the session.
          summary: a Summary, or a serialized one.
          global_step: of which step; the present one where it is left out.

        Raises:
          RuntimeError: there is no summary writer.
        """
        if not self._summary_writer:
            raise RuntimeError("Writing a summary requires a summary writer.")
        if global_step is None and self._global_step is not None:
            global_step = tf1.train.global_step(sess, self._global_step)
        self._events().computed(summary, global_step)

    # ------------------------------------------------------------------ the beginning

    def _prepare(self, boundary: Boundary, master: str, config: Any, wait: bool, max_wait_secs: float) -> Any:
        """The chief's session: restored from the newest checkpoint that verifies, or initialized."""
        self._care = Care(boundary, self._state, self._model)
        prefix = None
        with contextlib.ExitStack() as stack:
            stack.enter_context(signals_raise(self._flag))
            stack.enter_context(called_every(_IDLE_SECS, boundary.serve_if_idle, name="idle"))
            if self._rundir is not None:
                prefix = self._take_rundir(stack, self._rundir, wait, max_wait_secs)
            with self._graph.as_default():
                session = self._session_manager.prepare_session(
                    master,
                    init_op=self._init_op,
                    saver=self._saver,
                    checkpoint_filename_with_path=None if prefix is None else str(prefix),
                    config=config,
                    init_feed_dict=self._init_feed_dict,
                    init_fn=self._init_fn,
                )
            adopt(session, self._care)
            if self._model is not None:
                self._model.open(session, prefix, self._upkeep.checkpointing.saved_step if self._upkeep else 0)
            if self._upkeep is not None and self._model is not None:
                self._upkeep.start()
                self._recorded = self._model.step
                self._reporter.update(phase=Phase.TRAINING, step=self._recorded)
                stack.enter_context(self._upkeep.ticker)
            self._stack = stack.pop_all()
        return session

    def _take_rundir(
        self, stack: contextlib.ExitStack, rundir: RunDirectory, wait: bool, max_wait_secs: float
    ) -> Path | None:
        """Take the run directory for this process. The prefix of the checkpoint to restore, if there is one."""
        assert self._model is not None
        self._reporter = stack.enter_context(tenancy(rundir, Path(sys.argv[0]).name or "python", [self._saved]))
        self._upkeep = upkeep = Upkeep(
            self._config(services=False),
            self._model,
            rundir,
            flag=self._flag,
            reporter=self._reporter,
            events=self._events(),
        )
        if self._saver is None:
            return None
        deadline = time.monotonic() + max_wait_secs
        while True:
            upkeep.store.adopt(read_whole)
            found = upkeep.find()
            if found is not None:
                upkeep.resumed(found)
                tf1.logging.info("Restoring parameters from %s", rundir.prefix(found.step))
                return rundir.prefix(found.step)
            if not wait or time.monotonic() > deadline:
                return None
            tf1.logging.info("Waiting for checkpoint to be available.")
            self._coord.wait_for_stop(self._recovery_wait_secs)

    def _config(self, *, services: bool) -> Config:
        """What a trainerd.toml would say of all this."""
        definition = self._saver.saver_def if self._saver is not None else None
        keep, hours = (definition.max_to_keep, definition.keep_checkpoint_every_n_hours) if definition else (0, 0.0)
        none = CheckpointConfig(save_model_secs=0, keep_last=keep or _FOR_EVER, keep_every_hours=hours)
        config = Config(
            entry=Path(sys.argv[0]).name,
            logdir=str(self._rundir.path if self._rundir else ""),
            stop_on_nan=False,
            checkpoint=none,
            summary=SummaryConfig(save_summaries_secs=0, metrics_secs=0),
            evaluate=EvaluateConfig(evaluate_secs=0),
            log=LogConfig(progress_secs=0),
        )
        if not services:
            return config
        save = (self._save_model_secs or 0) if self._saver is not None else 0
        show = (self._save_summaries_secs or 0) if self._summary_writer else 0
        return replace(
            config,
            checkpoint=replace(none, save_model_secs=save),
            summary=replace(config.summary, save_summaries_secs=show),
        )

    def _make_writer(self) -> Any:
        return None if self._logdir is None else tf1.summary.FileWriter(self._logdir)

    def _write_graph(self) -> None:
        """Write `graph.pbtxt`, and the graph for TensorBoard."""
        if self._logdir:
            tf.io.write_graph(self._graph.as_graph_def(add_shapes=True), self._logdir, "graph.pbtxt")
        if self._summary_writer and not self._graph_written:
            self._summary_writer.add_graph(self._graph)
            if self._state is not None:
                self._summary_writer.add_meta_graph(self._state.meta_graph)
            self._graph_written = True

    def _require_devices(self) -> None:
        """Where there are several processes every variable must have its device."""
        for op in () if self._is_chief else self._graph.get_operations():
            if op.type in ("Variable", "VariableV2") and not op.device:
                raise ValueError(f"When using replicas, all Variables must have their device set: {op}")

    # ------------------------------------------------------------------ boundaries

    def _serve(self, taken: set[Request]) -> None:
        """Do what is due at a boundary. What fails stops the supervisor, and is raised when it has stopped."""
        try:
            if Request.PAUSE in taken:
                self._outcome = Outcome(Phase.PAUSED, "paused on request")
                self._coord.request_stop()
            if self._upkeep is None or self._model is None:
                return
            self._record(self._model.step)
            saves = self._saver is not None
            self._upkeep.serve(taken if saves else taken - {Request.SAVE, Request.PAUSE})
            self._upkeep.run_due()
            if self._outcome is not None and saves:  # at once: who asked may not wait for the loop to look
                self._upkeep.checkpointing.start(self._model, "pause")
        except Exception as error:
            self._coord.request_stop(error)

    def _record(self, step: int) -> None:
        """Tell the rate, and the step, of what was done since the last boundary."""
        assert self._upkeep is not None and self._model is not None
        done, self._recorded = max(0, step - self._recorded), step
        self._upkeep.recording.steps(Steps(step - done + 1, (), np.empty((done, 0))), self._model)

    def _events(self) -> GraphEvents:
        return GraphEvents(self._summary_writer, self._summarize, self._tell)

    def _summarize(self) -> bytes | None:
        if self._summary_op is None or self._model is None:
            return None
        content: bytes = self._model.run(self._summary_op)
        return content

    def _tell(self, scalars: dict[str, float]) -> None:
        """What was summarized last is what `trainerd status` shows."""
        if self._upkeep is not None:
            self._reporter.hold(metrics=self._reporter.state.metrics | scalars)

    def _saved(self, state: State) -> None:
        """Tell the Saver and the event file of each new checkpoint."""
        if self._saver is None or state.last_checkpoint is None:
            return
        path = state.last_checkpoint.path
        known = self._saver.last_checkpoints
        if path not in known:
            self._saver.set_last_checkpoints_with_time([(p, time.time()) for p in [*known, path]])

    # ------------------------------------------------------------------ the end

    def _end(self, threads: Sequence[Any] | None, ignore_live_threads: bool) -> None:
        """Save what is sound, and wait for the threads."""
        error: BaseException | None = self._error
        try:
            try:
                self._save_at_end()
            finally:
                self._coord.join(
                    threads, stop_grace_period_secs=self._stop_grace_secs, ignore_live_threads=ignore_live_threads
                )
        except BaseException as raised:
            error = raised
            raise
        finally:
            if self._upkeep is not None:
                self._tell_the_end(error if not isinstance(error, tf.errors.OutOfRangeError) else None)

    def _save_at_end(self) -> None:
        if self._upkeep is None or self._model is None or self._care is None or self._saver is None:
            return
        with self._care.boundary.lock:
            failed = self._error is not None and not isinstance(self._error, tf.errors.OutOfRangeError)
            if failed:
                self._upkeep.save_after_failure(sound=self._error is not self._care.failure)
            elif self._save_model_secs or self._outcome is not None:
                self._record(self._model.step)
                self._upkeep.finish(self._outcome or Outcome(Phase.FINISHED, "the program's loop has ended"))
            else:
                self._upkeep.checkpointing.wait()

    def _tell_the_end(self, error: BaseException | None) -> None:
        outcome = self._outcome or Outcome(Phase.FINISHED, "the program's loop has ended")
        if error is None:
            self._reporter.update(phase=outcome.phase)
            return
        code = error.exit_code if isinstance(error, TrainerdError) else 70
        self._reporter.update(phase=Phase.FAILED, error=f"{type(error).__name__}: {error}", exit_code=code)


def _default(value: Any, make: Callable[[], Any]) -> Any:
    """A value, or what is made where it is USE_DEFAULT: 0, and no tensor that happens to equal it."""
    return make() if value is Supervisor.USE_DEFAULT else value
