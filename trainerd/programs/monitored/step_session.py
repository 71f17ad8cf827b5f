"""A MonitoredSession of TensorFlow 2 functions: hooks around steps, and the loop in the graph if none is due."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import tensorflow as tf

from trainerd.loop.flag import Request
from trainerd.loop.schedule import Schedule
from trainerd.programs.monitored.hook_session import HookSession
from trainerd.programs.monitored.lifecycle import Lifecycle, SavingListeners, require_step_fn
from trainerd.programs.monitored.save_settings import StepSaveSettings, with_hook_that_saves
from trainerd.run.program_loop import ProgramLoop
from trainerd.rundir.paths import RunDirectory
from trainerd.sessions.tf2.job_run import JobRun
from trainerd.sessions.tf2.run import StepRun
from trainerd.sessions.tf2.session import Step, StepSession, as_steps
from trainerd.system.threads import called_every

tf1 = tf.compat.v1

CLOCK_SECS = 0.25


class MonitoredStepSession(Lifecycle):
    """The session of `trainerd.MonitoredTrainingSession(checkpoint=...)`; see there, and `trainerd.MonitoredSession`.

    Hooks are called in the order of a MonitoredSession. A hook that says with `due_at` at which step it is due is
    called for that step: `before_run` before the steps that lead to it, `after_run` after it. If the flag is raised in
    between, there may be another `before_run`.

    Args:
      make_run: makes the run of what trains, for a run directory and this loop.
      hooks: called in this order.
      settings: what is saved, and how often.
      stop_grace_secs: seconds that threads have to stop.

    Raises:
      ValueError: two hooks save, or a hook and the session save in different folders.
    """

    def __init__(
        self,
        make_run: Callable[[RunDirectory | None, ProgramLoop], StepRun | JobRun],
        hooks: Iterable[Any],
        settings: StepSaveSettings,
        stop_grace_secs: float = 120,
    ) -> None:
        self._hooks = list(hooks)
        self._settings = with_hook_that_saves(self._hooks, settings)
        self._grace_secs = stop_grace_secs
        self._coord = tf1.train.Coordinator(clean_stop_exception_types=[])
        self._listeners = SavingListeners(self._settings.listeners)
        self._checked = tuple(name for hook in self._hooks if (name := getattr(hook, "stops_at", None)))
        self._attached: StepRun | JobRun = make_run(
            self._settings.rundir,
            ProgramLoop(
                stop=self._coord.request_stop,
                should_stop=self._is_over,
                raise_requested=self._coord.raise_requested_exception,
                saving=self._listeners.saving,
                before_save=self._listeners.before_saves(lambda: self._for_hooks),
                metrics_secs=self._settings.show_secs,
                metrics_steps=self._settings.show_steps,
                loss=self._settings.loss,
            ),
        )
        for hook in self._hooks:
            hook.begin()
        self._listeners.begin()
        self._stack = contextlib.ExitStack()
        with self._attached.begun():
            self._attached.find()
            self._session: StepSession = self._attached.make_session()
        self._hook_session = HookSession(self._session, self._is_to_end)
        try:
            self._begin()
        except BaseException as error:
            self._save_and_join(error)
            raise

    def _begin(self) -> None:
        self._attached.take(self._session)
        for hook in self._hooks:
            hook.after_create_session(self._for_hooks, self._coord)
        settings = self._settings
        self._attached.start_services(settings.save_secs, settings.save_steps)
        if settings.count_steps:
            schedule = Schedule(steps=settings.count_steps, since_last=True)
            self._attached.add_service("steps", self._attached.count_steps, schedule, at_next_step=True)
        self._call_listeners()
        self._listeners.resumed(self._for_hooks, self._attached)
        if any(getattr(hook, "by_clock", False) for hook in self._hooks):
            flag = self._session.session_link.boundary.flag
            self._stack.enter_context(called_every(CLOCK_SECS, lambda: flag.raise_for(Request.TICK), name="hooks"))

    # ------------------------------------------------------------------ what a program calls

    @property
    def step(self) -> int:
        """The global step."""
        return self._session.step

    def run(
        self,
        step_fn: Step,
        feed_dict: Mapping[str, Any] | None = None,
        options: Any = None,
        run_metadata: Any = None,
        steps: int | None = None,
    ) -> Any:
        """Run a step function with the hooks, once or so many times; see `StepSession.run`.

        Args:
          step_fn, feed_dict, steps: see there.
          options, run_metadata: not used: they are for graphs.

        Raises:
          RuntimeError: it was asked to stop, or is closed.
          ValueError: `steps` is not positive, or goes with a `feed_dict`.
        """
        self._require_open()
        self._require_not_stopped()
        if steps is not None and (feed_dict or steps < 1):
            raise ValueError(f"steps must be 1 or more, without a feed_dict; they are {steps!r} and {feed_dict!r}.")
        boundary, result, before = self._session.session_link.boundary, None, self.step
        end = before + (steps or 1)
        with boundary.lock:
            while self.step < end and (self.step == before or not self._is_over()):
                limit = before + 1 if self._is_over() else end  # one step is made in any case
                with boundary.in_step:
                    last = self._some(step_fn, feed_dict, limit if steps is not None else None)
                result = last if last is not None else result
                if boundary.flag.is_raised or self.step >= self._session.session_link.next_step:
                    boundary.reached()
                    self._call_listeners()
                if steps is None:
                    break
        return result

    def run_step_fn(self, step_fn: Callable[..., Any]) -> Any:
        """Call a function with a StepContext, and return what it returns.

        Raises:
          ValueError: it does not take one argument, named `step_context`.
        """
        self._require_open()
        require_step_fn(step_fn)
        return step_fn(self.StepContext(self._for_hooks, self.run))

    @property
    def _for_hooks(self) -> HookSession:
        return self._hook_session

    # ------------------------------------------------------------------ steps

    def _is_over(self) -> bool:
        return bool(self._stops or self._coord.should_stop())

    def _is_to_end(self) -> bool:
        """Return whether the loop is to end now or at the next boundary.

        It is for a hook that waits in the middle of a run.
        """
        return self._is_over() or self._session.session_link.boundary.flag.wants(Request.PAUSE)

    def _some(self, step_fn: Step, feeds: Mapping[str, Any] | None, end: int | None) -> Any:
        """Run steps up to the next one that a hook or a service wants; one step if there is no end.

        Returns:
          What the last one returned; None if the flag was raised before the first.
        """
        before = self.step
        limit: float = before + 1
        if end is not None:
            limit = min(
                end, self._session.session_link.next_step, *(_due(hook, before, math.inf) for hook in self._hooks)
            )
        asked = [hook for hook in self._hooks if _due(hook, before) <= limit]
        context = tf1.train.SessionRunContext(
            original_args=tf1.train.SessionRunArgs(step_fn, feeds), session=self._for_hooks
        )
        wanted: dict[int, Any] = {}
        all_feeds = dict(feeds or {})
        for hook in asked:
            request = hook.before_run(context)
            if request is not None:
                wanted[id(hook)] = request.fetches
                if both := set(all_feeds) & set(request.feed_dict or {}):
                    raise RuntimeError(f"The same argument is fed twice. Conflict(s): {sorted(both)}")
                all_feeds |= request.feed_dict or {}
        last = self._steps(step_fn, all_feeds, before, None if end is None else int(limit))
        if self.step == before:
            return None
        self._for_hooks.ran(last)
        for hook in asked:
            if _due(hook, before) <= self.step:
                fetches = wanted.get(id(hook))
                results = None if fetches is None else self._for_hooks.run(fetches)
                values = tf1.train.SessionRunValues(results, options=tf1.RunOptions(), run_metadata=tf1.RunMetadata())
                hook.after_run(context, values)
        self._stops = self._stops or context.stop_requested
        return last

    def _steps(self, step_fn: Step, feeds: dict[str, Any], before: int, limit: int | None) -> Any:
        session = self._session
        if feeds or limit is None:
            last = session.run_step(step_fn, feeds)
            session.session_link.ran(as_steps(self.step, last))
            return last
        steps, last = session.run_steps(step_fn, limit, self._checked)
        session.session_link.ran(steps)
        return last

    # ------------------------------------------------------------------ the end

    def _save(self, error: BaseException | None) -> None:
        self._stack.close()
        super()._save(error)

    def _close_session(self) -> None:
        self._attached.part()
        self._coord.request_stop()
        self._coord.join(stop_grace_period_secs=self._grace_secs, ignore_live_threads=True)


def _due(hook: Any, step: int, whenever: float = -math.inf) -> float:
    """Return the step at which a hook is due next: the next step, if it does not say; `whenever` for any boundary."""
    if not hasattr(hook, "due_at"):
        return step + 1
    due = hook.due_at(step)
    return whenever if due is None else due
