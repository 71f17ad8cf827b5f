"""`trainerd.Supervisor`: what `tf.compat.v1.train.Supervisor` is, saved at boundaries, durable, and paused by a signal.

The names, the defaults and their meanings are those of TensorFlow's; its documentation of each holds here, but for
what the class says.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import tensorflow as tf

from trainerd.loop.schedule import Schedule
from trainerd.programs.supervisor.looper_thread import Looper
from trainerd.programs.supervisor.run import SupervisedFunctions, SupervisedGraph
from trainerd.run.attached import IDLE_SECS
from trainerd.run.defaults import USE_DEFAULT
from trainerd.run.failures import is_failure
from trainerd.run.host import Host
from trainerd.run.program_loop import ProgramLoop
from trainerd.rundir.paths import CHECKPOINT_BASENAME, RunDirectory
from trainerd.sessions.tf1.events import SessionLog

tf1 = tf.compat.v1

# What a run of a step raises where its queues are closed, as at a pause: the end of the loop, and no failure.
_OF_QUEUES = (tf.errors.OutOfRangeError, tf.errors.CancelledError)


class Supervisor(tf.compat.v1.train.Supervisor):  # type: ignore[misc]  # in name alone: `isinstance` is asked for
    """Signals, checkpoints and summaries for a program that trains a TensorFlow 1 graph, or TensorFlow 2 functions.

    As with `tf.compat.v1.train.Supervisor`, but:

    - checkpoints and summaries are made between two steps of the thread that made the session, so each is of one step;
    they are written in the background, and a checkpoint is durable before it is named;
    - SIGTERM, SIGINT, and a file `pause` in `logdir` make `should_stop()` true; SIGUSR1 and a file `save` save;
    - when it stops it saves, unless `save_model_secs` is 0 and it was not asked to pause;
    - one process at a time trains in a `logdir`.

    One class, since TensorFlow's is one, and programs use all of its names.

    Args:
      graph: the graph; it is finalized here. Defaults to the default graph.
      ready_op, ready_for_local_init_op: name what is not initialized. None: not checked.
      is_chief: whether this process initializes, saves and writes summaries.
      init_op, init_feed_dict: initialize the model if there is no checkpoint. None: no such op.
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
      init_fn: called with the session after `init_op`, if there is no checkpoint.
      local_init_run_options: RunOptions for `local_init_op`.
      checkpoint: a `tf.train.Checkpoint` of what is trained: then there is no graph, and the session runs TensorFlow 2
        functions. `summary_op` is then a function that writes with `tf.summary`, and `global_step` an int64 variable
        that the functions count themselves. Default: each run counts.
      metrics_secs, metrics_steps: seconds and steps between points of the curves of what the functions return. 0: none
        by that. The summary service writes a point too. A graph has none: its curves are its summaries.
      host: for the daemon, which holds the run directory already.

    Raises:
      RuntimeError: called where TensorFlow executes eagerly, with no graph.
      ValueError: not the chief, and a variable has no device; or points of curves are asked for of a graph.
    """

    USE_DEFAULT = USE_DEFAULT

    def __init__(
        self,
        graph: tf.Graph | None = None,
        ready_op: tf.Tensor | int | None = USE_DEFAULT,
        ready_for_local_init_op: tf.Tensor | int | None = USE_DEFAULT,
        is_chief: bool = True,
        init_op: tf.Operation | int | None = USE_DEFAULT,
        init_feed_dict: Mapping[Any, Any] | None = None,
        local_init_op: tf.Operation | int | None = USE_DEFAULT,
        logdir: str | None = None,
        summary_op: tf.Tensor | int | None = USE_DEFAULT,
        saver: tf.compat.v1.train.Saver | int | None = USE_DEFAULT,
        global_step: tf.Variable | tf.Tensor | int | None = USE_DEFAULT,
        save_summaries_secs: float = 120,
        save_model_secs: float = 600,
        recovery_wait_secs: float = 30,
        stop_grace_secs: float = 120,
        checkpoint_basename: str = CHECKPOINT_BASENAME,
        session_manager: tf.compat.v1.train.SessionManager | None = None,
        summary_writer: tf.compat.v1.summary.FileWriter | int | None = USE_DEFAULT,
        init_fn: Callable[[tf.compat.v1.Session], object] | None = None,
        local_init_run_options: tf.compat.v1.RunOptions | None = None,
        checkpoint: tf.train.Checkpoint | None = None,
        *,
        metrics_secs: float = 0,
        metrics_steps: int = 0,
        host: Host | None = None,
    ) -> None:
        _require_metrics(metrics_secs, metrics_steps, is_graph=checkpoint is None)
        self._is_chief = is_chief
        self._coord = tf1.train.Coordinator()
        self._recovery_wait_secs = recovery_wait_secs
        self._stop_grace_secs = stop_grace_secs
        self._save_summaries_secs = save_summaries_secs if is_chief else None
        self._save_model_secs = save_model_secs if is_chief else None
        self._graph_added_to_summary = False
        self._rundir = RunDirectory.of(logdir, checkpoint_basename) if logdir and is_chief else None
        loop = ProgramLoop(
            stop=self._coord.request_stop,
            should_stop=self._coord.should_stop,
            raise_requested=self._coord.raise_requested_exception,
            saving=lambda step: tf1.logging.info("Saving checkpoint to path %s", self.save_path),
            saves_at_end=bool(self._save_model_secs),
            metrics_secs=metrics_secs,
            metrics_steps=metrics_steps,
        )
        of_graphs: dict[str, Any] = {
            "graph": graph,
            "ready_op": ready_op,
            "ready_for_local_init_op": ready_for_local_init_op,
            "init_op": init_op,
            "init_feed_dict": init_feed_dict,
            "local_init_op": local_init_op,
            "summary_writer": summary_writer,
            "saver": saver,
            "session_manager": session_manager,
            "local_init_run_options": local_init_run_options,
        }
        of_both: dict[str, Any] = {
            "is_chief": is_chief,
            "global_step": global_step,
            "summary_op": summary_op,
            "init_fn": init_fn,
        }
        self._attached: SupervisedGraph | SupervisedFunctions
        if checkpoint is not None:
            self._attached = SupervisedFunctions(
                self._rundir, loop, host, checkpoint=checkpoint, others=of_graphs, **of_both
            )
        else:
            self._attached = SupervisedGraph(
                self._rundir, loop, host, recovery_wait_secs=recovery_wait_secs, **of_graphs, **of_both
            )
        self._error: BaseException | None = None

    # ------------------------------------------------------------------ what it was made with

    @property
    def is_chief(self) -> bool:
        """True if this process initializes, saves and writes summaries."""
        return self._is_chief

    @property
    def session_manager(self) -> tf.compat.v1.train.SessionManager:
        """The SessionManager that makes the session."""
        return self._attached.session_manager

    @property
    def coord(self) -> tf.train.Coordinator:
        """The Coordinator of the threads."""
        return self._coord

    @property
    def init_op(self) -> tf.Operation:
        """The op that initializes the model, or None."""
        return self._attached.init_op

    @property
    def init_feed_dict(self) -> Any:
        """The values that are fed to `init_op`."""
        return self._attached.init_feed_dict

    @property
    def ready_op(self) -> tf.Tensor:
        """The op that names what is not initialized, or None."""
        return self._attached.ready_op

    @property
    def ready_for_local_init_op(self) -> tf.Tensor:
        """The op that names what `local_init_op` still needs, or None."""
        return self._attached.ready_for_local_init_op

    @property
    def summary_writer(self) -> tf.compat.v1.summary.FileWriter:
        """The chief's FileWriter, or None."""
        return self._attached.summary_writer

    @property
    def summary_op(self) -> tf.Tensor:
        """The op or function that the summary service fetches, or None."""
        return self._attached.summary_op

    @property
    def save_summaries_secs(self) -> float | None:
        """Seconds between summaries; None if this is not the chief."""
        return self._save_summaries_secs

    @property
    def global_step(self) -> tf.Variable | tf.Tensor:
        """The tensor or variable that counts the steps, or None."""
        return self._attached.global_step

    @property
    def saver(self) -> tf.compat.v1.train.Saver:
        """The Saver that says what is saved, or None."""
        return self._attached.saver

    @property
    def save_model_secs(self) -> float | None:
        """Seconds between checkpoints; None if this is not the chief."""
        return self._save_model_secs

    @property
    def save_path(self) -> str | None:
        """The path that the checkpoints' names begin with; None if nothing is saved."""
        return None if self._rundir is None else self._rundir.save_path

    # ------------------------------------------------------------------ a session's life, top to bottom

    @contextlib.contextmanager
    def managed_session(
        self,
        master: str = "",
        config: tf.compat.v1.ConfigProto | None = None,
        start_standard_services: bool = True,
        close_summary_writer: bool = True,
    ) -> Iterator[Any]:
        """Hold a session that is restored or initialized and ready to run steps, while the block runs.

        What the block or a service raises is raised when the block ends, after everything was stopped and saved.
        `tf.errors.OutOfRangeError` says that the input has ended, and is not an error.

        Args:
          master: the TensorFlow master.
          config: a ConfigProto for the session.
          start_standard_services: whether checkpoints and summaries are made on their schedules.
          close_summary_writer: whether the summary writer is closed at the end.
        """
        session = None
        self._attached.be_within(True)
        try:
            session = self.prepare_or_wait_for_session(
                master, config=config, start_standard_services=start_standard_services
            )
            yield session
        except Exception as error:
            self._error = error
            self.request_stop(error)
            if self._attached.outcome is not None and not isinstance(error, _OF_QUEUES):
                raise  # a Coordinator takes no error of a loop that it was asked to end, as a pause has
        except BaseException as error:  # an exit, or Ctrl-C: it is raised whatever the threads say
            self._error = error
            raise
        finally:
            if not self._attached.has_outlived:  # where Python is taken down, threads are waited for in vain
                try:
                    self.stop(close_summary_writer=close_summary_writer)
                finally:
                    self._attached.be_within(False)
                    if session is not None:
                        with contextlib.suppress(Exception):  # what still blocks in it is cut off, which it may lament
                            session.close()

    def prepare_or_wait_for_session(
        self,
        master: str = "",
        config: tf.compat.v1.ConfigProto | None = None,
        wait_for_checkpoint: bool = False,
        max_wait_secs: float = 7200,
        start_standard_services: bool = True,
    ) -> Any:
        """Make a session, and restore or initialize the model in it; a process that is not the chief waits for the
        chief.

        Args:
          master, config: see `managed_session`.
          wait_for_checkpoint: whether to wait until there is a checkpoint.
          max_wait_secs: for how long to wait.
          start_standard_services: whether to start the services and the queue runners.

        Raises:
          DataError: there are checkpoints, and none verifies.
          InUseError: another process trains in `logdir`.
          Paused: a `SystemExit` with code 0: the program was asked to pause before, and begins another session.
        """
        if self._attached.is_active:  # a program may make a session again without having stopped
            self._attached.wait()
            self._attached.leave(None)
        self._coord.clear_stop()
        self._error = None
        if self.summary_writer:
            self.summary_writer.reopen()
        with self._attached.begun():
            if self._is_chief:
                self._attached.find(
                    wait_secs=max_wait_secs if wait_for_checkpoint else 0,
                    poll_secs=self._recovery_wait_secs,
                    waiting=self._coord.wait_for_stop,
                )
            session = self._attached.make_session(master, config, max_wait_secs)
        self._attached.take(session)
        if self._is_chief:
            self._write_graph()
            if start_standard_services:
                tf1.logging.info("Starting standard services.")
                self.start_standard_services(session)
        if start_standard_services:
            tf1.logging.info("Starting queue runners.")
            self.start_queue_runners(session)
        return session

    def start_standard_services(self, sess: tf.compat.v1.Session) -> list[threading.Thread] | None:
        """Make checkpoints and summaries on their schedules from now on.

        Returns:
          The threads that run them: none, they are run between two steps. None if there is no `logdir`.

        Raises:
          RuntimeError: this is not the chief.
        """
        if not self._is_chief:
            raise RuntimeError(
                "Only chief supervisor can start standard services. Because only chief supervisors can write events."
            )
        if self._rundir is None:
            tf1.logging.warning("Standard services need a 'logdir' passed to the SessionManager")
            return None
        if not self._attached.is_active:  # the program has made the session in a way of its own
            with self._attached.begun():
                self._attached.find()
                self._attached.require_restored(sess)
            self._attached.take(sess)
        self._attached.start_services(self._save_model_secs or 0, 0)
        if self._save_summaries_secs and self._attached.can_summarize:
            schedule = Schedule(secs=self._save_summaries_secs)
            has_queues = self._attached.has_queues  # which are filled later: a summary of them must wait
            if not has_queues:
                with self._coord.stop_on_exception():  # as any service that fails: the loop ends, and `stop` raises it
                    self._attached.summarize()
            self._attached.add_service("summaries", self._attached.summarize, schedule, at_next_step=has_queues)
            if self._attached.global_step is not None:
                for _ in range(2):  # the first point of the curve is that of no step, at once
                    self._attached.count_steps()
                self._attached.add_service("steps", self._attached.count_steps, schedule)
        return []

    def start_queue_runners(
        self, sess: tf.compat.v1.Session, queue_runners: Sequence[tf.compat.v1.train.QueueRunner] | None = None
    ) -> list[threading.Thread]:
        """Start the threads of queue runners. Default: the graph's."""
        if queue_runners is None:
            queue_runners = self._attached.queue_runners
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
        looper = Looper(self._coord, timer_interval_secs, self._attached.boundary, target, args, kwargs)
        looper.start()
        return looper

    def stop(
        self,
        threads: Sequence[threading.Thread] | None = None,
        close_summary_writer: bool = True,
        ignore_live_threads: bool = False,
    ) -> None:
        """Save, and stop the services and the threads. The session is not closed.

        Args:
          threads: further threads to wait for.
          close_summary_writer: whether to close the summary writer.
          ignore_live_threads: whether threads that do not stop in `stop_grace_secs` are not an error.

        Raises:
          Exception: what a service or a thread raised first.
        """
        self._coord.request_stop()
        error = self._error if is_failure(self._error) else self._attached.requested_error() or self._error
        try:
            try:
                self._attached.save(error)
            finally:
                self._coord.join(
                    threads, stop_grace_period_secs=self._stop_grace_secs, ignore_live_threads=ignore_live_threads
                )
        except BaseException as raised:
            error = raised
            raise
        finally:
            self._attached.leave(error)
            if close_summary_writer and self.summary_writer:
                self.summary_writer.add_session_log(SessionLog(status=SessionLog.STOP))
                self.summary_writer.close()
                self._graph_added_to_summary = False

    # ------------------------------------------------------------------ what a program asks for

    def request_stop(self, ex: Any = None) -> None:
        """Ask all threads to stop; see `tf.compat.v1.train.Coordinator.request_stop`."""
        if isinstance(ex, BaseException):  # TensorFlow's takes it from an `except` clause alone, and not as it is
            ex = (type(ex), ex, ex.__traceback__)
        self._coord.request_stop(ex=ex)

    def should_stop(self) -> bool:
        """Return whether the loop should end: it was asked to, a service failed, or the run is to be paused."""
        self._attached.serve()
        return bool(self._coord.should_stop())

    def stop_on_exception(self) -> Any:
        """Return a context that asks to stop if its block raises; see `tf.compat.v1.train.Coordinator`."""
        return self._coord.stop_on_exception()

    def wait_for_stop(self) -> None:
        """Wait until a stop is requested. Meanwhile due services run."""
        while not self.should_stop():
            self._coord.wait_for_stop(IDLE_SECS)

    def summary_computed(self, sess: tf.compat.v1.Session, summary: Any, global_step: int | None = None) -> None:
        """Write a Summary to the event file.

        Args:
          sess: the session.
          summary: a Summary, or a serialized one; of functions, scalars by their names.
          global_step: the step of the summary. Default: the present one.

        Raises:
          RuntimeError: there is no summary writer.
        """
        self._attached.summarized(sess, summary, global_step)

    # ------------------------------------------------------------------ its own

    def _write_graph(self) -> None:
        """Write `graph.pbtxt`, and the graph for TensorBoard."""
        if self._rundir is not None:
            self._attached.write_graph()
        if self.summary_writer and not self._graph_added_to_summary:
            self._attached.show_graph()
            self._graph_added_to_summary = True


def _require_metrics(secs: float, steps: int, *, is_graph: bool) -> None:
    """Require a schedule of the metrics' curves that can be followed.

    Raises:
      ValueError: it cannot.
    """
    for name, value in (("metrics_secs", secs), ("metrics_steps", steps)):
        if value < 0:
            raise ValueError(f"{name}: expected 0 or more, got {value!r}.")
        if value and is_graph:
            raise ValueError(
                f"{name}={value!r} is for functions, with `checkpoint`. The curves of a graph are its summaries: set "
                "`save_summaries_secs`, or pass `summary_op=None` and fetch them in the steps of your choice."
            )


# TensorFlow's names of before 2016, which its class still has.
for _name, _old in {
    "loop": "Loop",
    "prepare_or_wait_for_session": "PrepareSession",
    "request_stop": "RequestStop",
    "should_stop": "ShouldStop",
    "start_queue_runners": "StartQueueRunners",
    "start_standard_services": "StartStandardServices",
    "stop": "Stop",
    "stop_on_exception": "StopOnException",
    "summary_computed": "SummaryComputed",
    "wait_for_stop": "WaitForStop",
}.items():
    setattr(Supervisor, _old, getattr(Supervisor, _name))
