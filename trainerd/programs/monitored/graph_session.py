"""Sessions with hooks, as `tf.compat.v1.train.MonitoredSession` is, with the signals and checkpoints of a Supervisor.

The names, the defaults, their meanings and the order of what is called are those of TensorFlow's classes. TensorFlow's
own hooks, and those of a program, work unchanged.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Iterable
from typing import Any

import tensorflow as tf

from trainerd.programs.hooks.base import require_graph_hooks
from trainerd.programs.monitored.hooked_run import CALLER, LOSS, STEP, run_with_hooks
from trainerd.programs.monitored.lifecycle import Lifecycle, SavingListeners, require_step_fn
from trainerd.programs.monitored.recovery import CLOSING, CONSIDERING, CREATING, PREEMPTION, RUNNING
from trainerd.programs.monitored.save_settings import SaveSettings
from trainerd.programs.monitored.session_creators import ChiefSessionCreator
from trainerd.run.program_loop import ProgramLoop
from trainerd.sessions.tf1 import defaults
from trainerd.sessions.tf1.events import GraphEvents
from trainerd.sessions.tf1.run import GraphRun
from trainerd.sessions.tf1.session import ManagedSession
from trainerd.sessions.tf1.unfinalized import open_again, unfinalized

tf1 = tf.compat.v1

_WARNINGS, _SAME = 5, 3
_STALE = (
    "It seems that global step (tf.train.get_global_step) has not been increased. Current value (could be stable): %s "
    "vs previous value: %s. You could increase the global step by passing tf.train.get_global_step() to "
    "Optimizer.apply_gradients or Optimizer.minimize."
)


class MonitoredSession(Lifecycle, tf.compat.v1.train.MonitoredSession):  # type: ignore[misc]  # for `isinstance` alone
    """A session that initializes and restores the model, and calls hooks.

    At its making: each hook's `begin`; the scaffold is finalized; the session is made, and the model restored or
    initialized; queue runners are started; each hook's `after_create_session`. At each `run`: every `before_run`, one
    run of all that was asked for, every `after_run`, and then, where something is due, the boundary: checkpoints,
    summaries. At `close`: a checkpoint where checkpoints are made, each hook's `end`, and the threads are joined.

    What a hook raises ends the run: no hook after it is called, nor any `end`.

    One class, since TensorFlow's is one: programs reach into it by its private names, and after a preemption the
    session that all of its methods use is made again.

    Args:
      session_creator: makes the session. Default: a ChiefSessionCreator.
      hooks: called in this order.
      stop_grace_period_secs: seconds that threads have to stop.

    Raises:
      TypeError: a hook is one of `trainerd.hooks`.
    """

    _recovers = True

    def __init__(
        self,
        session_creator: tf.compat.v1.train.SessionCreator | None = None,
        hooks: Iterable[tf.compat.v1.train.SessionRunHook] | None = None,
        stop_grace_period_secs: float = 120,
        *,
        settings: SaveSettings | None = None,
    ) -> None:
        self._graph = tf1.get_default_graph()
        self._was_finalized = self._graph.finalized
        self._hooks = list(hooks or [])
        require_graph_hooks(self._hooks)
        self._grace_secs = stop_grace_period_secs
        self._settings = settings
        self._coord = tf1.train.Coordinator(clean_stop_exception_types=[])
        self._session: Any = None
        self._is_started = False
        # The global step beside the last run, how often it was the same, and how often that was warned of.
        self._seen, self._same, self._warned = -1, 0, 0
        self._global_step: Any = None
        if settings is not None:
            self._global_step = settings.require_global_step()
        elif not self._was_finalized:
            defaults.global_step()  # hooks ask the collections for it
        for hook in self._hooks:
            hook.begin()
        self._listeners = settings.listeners if settings is not None else SavingListeners(())
        self._listeners.begin()
        beside = {STEP: self._global_step, LOSS: settings.loss if settings is not None else None}
        self._beside = {name: part for name, part in beside.items() if part is not None}
        self._creator = session_creator or ChiefSessionCreator()
        self._attached: GraphRun = self._make_run()
        with self._attached.begun():
            self._create()
        try:
            self._begin()
        except BaseException as error:
            self._save_and_join(error)
            raise

    # ------------------------------------------------------------------ making it

    def _make_run(self) -> GraphRun:
        """Return the attached run of the session. It saves nothing without a folder."""
        settings = self._settings
        loop = ProgramLoop(
            stop=lambda error: self._coord.request_stop(error),
            raise_requested=lambda: self._coord.raise_requested_exception(),
            saving=settings.on_saving if settings is not None else lambda step: None,
            before_save=self._listeners.before_saves(lambda: self._session),
            saved=settings.on_saved if settings is not None else lambda step: None,
        )
        if settings is None:
            return GraphRun(self._graph, None, None, None, None, loop)
        scaffold = self._creator.finalized_scaffold()
        self._events = GraphEvents(settings.writer, rates_logged=math.inf)
        with unfinalized(self._graph):
            return GraphRun(
                self._graph,
                settings.rundir,
                scaffold.saver,
                self._global_step,
                self._events,
                loop,
            )

    def _create(self) -> None:
        """Make the session; again, if its cluster is preempted meanwhile."""
        while True:
            try:
                if self._settings is not None:
                    session = self._creator.create_session_from(self._attached.find())
                else:
                    session = self._creator.create_session()
                break
            except PREEMPTION as error:
                self._recover(CREATING, error)
        self._session = self._attached.take(session)

    def _begin(self) -> None:
        """Start the threads of a new session; of another one, if its cluster is preempted meanwhile."""
        while True:
            try:
                self._after_create()
                return
            except PREEMPTION as error:
                self._recover(CREATING, error)
                self._close_session()
                self._create_another()

    def _renew(self) -> None:
        """Take another session, begun as the first was."""
        self._create_another()
        self._begin()

    def _create_another(self) -> None:
        """Make a session after another one. It goes back to a checkpoint: a hook that had wanted to stop may not."""
        self._coord = tf1.train.Coordinator(clean_stop_exception_types=[])
        self._stops = False
        tf1.logging.info("Graph was finalized.")  # as TensorFlow says of each
        self._create()

    def _recover(self, what: str, error: BaseException) -> None:
        """Announce that the session is made again.

        Raises:
          the error, if the session is not to be made again.
        """
        if not self._recovers:
            raise error
        tf1.logging.info(what, error)

    def _after_create(self) -> None:
        if tf1.get_collection(tf1.GraphKeys.QUEUE_RUNNERS):
            tf1.train.start_queue_runners(sess=self._session, coord=self._coord)
        for hook in self._hooks:
            hook.after_create_session(self._session, self._coord)
        if self._settings is not None and not self._is_started:
            self._is_started = True
            self._settings.start(self._attached, self._graph)
            self._call_listeners()
            self._listeners.resumed(self._session, self._attached)

    # ------------------------------------------------------------------ what a program calls

    @property
    def step_beside_last_run(self) -> int:
        """The global step that was read beside the last run: the one before it, or the one after it."""
        return self._seen

    @property
    def graph(self) -> tf.Graph:
        """The graph; None once the session is closed."""
        return None if self._session is None else self._session.graph

    def _tf_sess(self) -> ManagedSession | None:
        """Return the `tf.compat.v1.Session` itself: TensorFlow has no public way to it, so programs call this one."""
        session: ManagedSession | None = self._session
        return session

    def _is_closed(self) -> bool:
        """Return whether it is closed. As TensorFlow's: for tests."""
        return self._has_ended

    def _is_over(self) -> bool:
        """Return whether a hook or a thread wants to stop. A thread's error ends the loop, unless it is a
        preemption's."""
        try:
            self._coord.raise_requested_exception()
        except PREEMPTION as error:
            self._recover(CONSIDERING, error)
            self._close_session()
            self._renew()
            return False
        except Exception:
            if not self._recovers:
                raise
            return True
        return bool(self._stops or self._coord.should_stop())

    def run(
        self,
        fetches: Any,
        feed_dict: Any = None,
        options: tf.compat.v1.RunOptions | None = None,
        run_metadata: tf.compat.v1.RunMetadata | None = None,
    ) -> Any:
        """Run the fetches like `tf.compat.v1.Session.run`, with the hooks.

        Raises:
          RuntimeError: it was asked to stop, or is closed.
        """
        result = self._recovering(lambda: self._run(fetches, feed_dict, options, run_metadata))
        self._call_listeners()
        return result

    def run_step_fn(self, step_fn: Callable[..., Any]) -> Any:
        """Call a function with a StepContext, and return what it returns.

        Raises:
          ValueError: it does not take one argument, named `step_context`.
        """
        require_step_fn(step_fn)
        return self._recovering(lambda: step_fn(self.StepContext(self._session, self._run)))

    # ------------------------------------------------------------------ a step

    def _recovering(self, run: Callable[[], Any]) -> Any:
        """Run. If the cluster is preempted, make the session again from the newest checkpoint and run again."""
        while True:
            self._require_open()
            try:
                if self._session is None:
                    self._renew()
                return run()
            except PREEMPTION as error:
                self._recover(RUNNING, error)
                self._close_session()

    def _run(self, fetches: Any, feed_dict: Any = None, options: Any = None, run_metadata: Any = None) -> Any:
        self._require_not_stopped()
        boundary = self._attached.boundary
        assert boundary is not None
        if not boundary.is_mine:  # another thread's, which may wait for the loop's
            return self._hooked_or_first(fetches, feed_dict, options, run_metadata)[CALLER]
        with boundary.lock:
            with boundary.in_step:
                found = self._hooked_or_first(fetches, feed_dict, options, run_metadata)
            step = found.get(STEP)
            if step is not None:
                self._watch(step)
            if LOSS in found:
                self._attached.follow(float(found[LOSS]))
            if boundary.flag.is_raised or (step is not None and step + 1 >= self._attached.next_step):
                boundary.reached()
        return found[CALLER]

    def _watch(self, step: int) -> None:
        """Warn a few times if nothing counts the steps, in the words of TensorFlow's StepCounterHook."""
        # What is read beside a step may be the one before it or that one: twice the same says nothing yet.
        self._same = self._same + 1 if step == self._seen else 0
        if (
            self._same >= _SAME
            and self._warned < _WARNINGS
            and self._settings is not None
            and self._settings.count_steps
        ):
            self._warned += 1
            tf1.logging.warning(_STALE, step, self._seen)
        self._seen = step

    def _hooked_or_first(self, fetches: Any, feeds: Any, options: Any, metadata: Any) -> dict[Any, Any]:
        """Run with hooks. Where a thread has failed before, a step's error is its consequence: raise the thread's."""
        try:
            asked = {CALLER: fetches, **self._beside}
            found, stops = run_with_hooks(self._session, self._hooks, asked, feeds, options, metadata)
            self._stops = self._stops or stops
            return found
        except PREEMPTION:
            raise
        except Exception as error:
            self._raise_first(error)
            raise

    def _raise_first(self, error: BaseException) -> None:
        try:
            self._coord.raise_requested_exception()
        except PREEMPTION:
            raise
        except Exception:
            raise error from None

    # ------------------------------------------------------------------ the end

    def _close(self, error: BaseException | None) -> None:
        self._require_open()
        try:
            super()._close(error)
        finally:
            if not self._was_finalized:
                open_again(self._graph)

    def _save(self, error: BaseException | None) -> None:
        if self._session is not None:
            super()._save(error)
        if self._settings is not None:
            self._events.flush()

    def _close_session(self) -> None:
        """Stop the threads and close the session.

        Raises:
          what a thread raised first, unless it is a preemption, after which a session is made again or none needed.
        """
        session, self._session = self._session, None
        self._attached.part()
        self._coord.request_stop()
        try:
            self._coord.join(stop_grace_period_secs=self._grace_secs, ignore_live_threads=True)
        except PREEMPTION as error:
            if not self._recovers:
                raise
            tf1.logging.error(CLOSING, error)
        finally:
            if session is not None:
                with contextlib.suppress(Exception):  # what still blocks in it is cut off, which it may lament
                    session.close()
