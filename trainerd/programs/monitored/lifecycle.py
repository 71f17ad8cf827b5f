"""The lifecycle of sessions with hooks, which those of graphs and those of functions have in common.

It calls the listeners of checkpoints, and ends the hooks and the session.
"""

from __future__ import annotations

import contextlib
import inspect
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any, Self

import tensorflow as tf

from trainerd.run.attached import AttachedRun
from trainerd.run.failures import is_clean
from trainerd.rundir.state import EvaluationSummary


class SavingListeners:
    """Calls `before_save` before the state is taken, and `after_save` when it is on disk, before the next step.

    After a pause they are not called: the next start resumes from that checkpoint, and calls `resumed`, if they have
    it.

    Args:
      listeners: `CheckpointSaverListener`s, called in this order.
    """

    def __init__(self, listeners: Sequence[Any]) -> None:
        self._listeners = listeners
        self._begun: int | None = None  # the step of a checkpoint that they were not called for yet

    def begin(self) -> None:
        """Call `begin` of each: the session is about to be made."""
        for listener in self._listeners:
            listener.begin()

    def before_saves(self, session: Callable[[], Any]) -> Callable[[int], None] | None:
        """Return what calls `before_save` of each with a step whose state is about to be taken; None if there are none.

        Args:
          session: returns the session that they get.
        """

        def before_save(step: int) -> None:
            for listener in self._listeners:
                listener.before_save(session(), step)

        return before_save if self._listeners else None

    def saving(self, step: int) -> None:
        """Record that a checkpoint of this step is begun."""
        self._begun = step

    def after_save(self, session: Any, attached: AttachedRun) -> bool:
        """Call them for a checkpoint of this boundary, when it is on disk. Returns whether one wants to stop."""
        step, self._begun = self._begun, None
        if step is None or not self._listeners or attached.is_paused:
            return False
        attached.wait()
        if not attached.saved_step == step == attached.step:
            return False
        wishes = [listener.after_save(session, step) for listener in self._listeners]  # all of them are called
        return any(wishes)

    def resumed(self, session: Any, attached: AttachedRun) -> None:
        """Call `resumed` of each that has it, if the session was restored."""
        for listener in self._listeners:
            if hasattr(listener, "resumed") and attached.resumed_step is not None:
                listener.resumed(session, attached.resumed_step)

    def end(self, session: Any, attached: AttachedRun) -> bool:
        """Call them for the last checkpoint, and then `end` of each. Returns whether one wants to stop."""
        wishes = self.after_save(session, attached)
        for listener in self._listeners:
            listener.end(session, attached.step)
        return wishes


class Lifecycle(ABC):
    """A session with hooks that a `with` statement closes. The end of the input is a clean end.

    At its end: the checkpoint, each hook's `end`, the threads, and the run directory is given back. What is first
    raised is how the run has ended; what comes after it is done all the same.
    """

    StepContext = tf.compat.v1.train.MonitoredSession.StepContext  # the argument of a `step_fn`
    _attached: AttachedRun
    _hooks: list[Any]
    _listeners: SavingListeners
    _session: Any
    _has_ended = _stops = _has_called_end = _has_reported_end = False

    def close(self) -> None:
        """End each hook, save, and close the session.

        Raises:
          RuntimeError: it is closed already.
        """
        self._close(None)

    @property
    def is_paused(self) -> bool:
        """True if it was asked to stop for a pause."""
        return self._attached.is_paused

    def should_stop(self) -> bool:
        """Return whether the loop should end."""
        if self._has_ended or self._session is None:
            return True
        self._attached.serve()
        self._has_reported_end = self._is_over()
        return self._has_reported_end

    def evaluating(self) -> contextlib.AbstractContextManager[None]:
        """Show that the loop waits for an evaluation while the block runs."""
        return self._attached.evaluating()

    def show_evaluated(self, evaluations: EvaluationSummary) -> None:
        """Show what was evaluated so far."""
        self._attached.show_evaluated(evaluations)

    def save_now(self, reason: str) -> None:
        """Make a checkpoint of this step, and wait until it is on disk; nothing if the session saves nothing.

        Args:
          reason: why, for its manifest.
        """
        if self._attached.is_active:
            self._attached.save_now(reason)
            self._call_listeners()

    def __enter__(self) -> Self:
        self._attached.be_within(True)
        return self

    def __exit__(self, kind: Any, error: BaseException | None, traceback: Any) -> bool:
        if error is not None and is_clean(error):
            error = None
        self._close(error)
        return error is None

    def _require_open(self) -> None:
        if self._has_ended:
            raise RuntimeError("Session is already closed.")

    def _require_not_stopped(self) -> None:
        # A pause may come between the program's look and its run: then the run is done, and the next look reports it.
        if self._stops or (self._has_reported_end and self._attached.outcome is not None):
            raise RuntimeError("Run called even after should_stop requested.")

    def _call_listeners(self) -> None:
        """Call the listeners for a checkpoint of this boundary, when it is on disk."""
        self._stops = self._listeners.after_save(self._for_hooks, self._attached) or self._stops

    @property
    def _for_hooks(self) -> Any:
        """The session, as hooks and listeners get it."""
        return self._session

    def _close(self, error: BaseException | None) -> None:
        """Close the session, for this error if there was one."""
        self._require_open()
        ending = error
        try:
            if error is None:
                self._save(None)  # before the hooks: one may evaluate the last checkpoint, or copy it
                for hook in self._hooks if self._session is not None else ():
                    hook.end(self._for_hooks)
        except BaseException as raised:
            ending = raised
            raise
        finally:
            self._has_ended = True
            self._save_and_join(ending)

    def _save(self, error: BaseException | None) -> None:
        """Save what is sound. The listeners are called once, after the first save without an error."""
        self._attached.save(error)
        if error is None and not self._has_called_end:
            self._has_called_end = True
            self._stops = self._listeners.end(self._for_hooks, self._attached) or self._stops

    def _save_and_join(self, error: BaseException | None) -> None:
        try:
            self._save(error)  # again, if a hook's `end` has changed something
        except BaseException as raised:
            error = raised
            raise
        finally:
            try:
                self._close_session()
            except BaseException as raised:
                error = error or raised
                raise
            finally:
                self._attached.leave(error)

    @abstractmethod
    def _is_over(self) -> bool:
        """Return whether a hook or a thread wants to stop."""

    @abstractmethod
    def _close_session(self) -> None:
        """Stop the threads, join them, and close the session."""


def require_step_fn(step_fn: Callable[..., Any]) -> None:
    """Refuse a function that `run_step_fn` cannot call.

    Raises:
      ValueError: it does not take one argument, named `step_context`.
    """
    arguments = tuple(inspect.signature(inspect.unwrap(step_fn)).parameters)
    if arguments not in (("step_context",), ("self", "step_context")):
        raise ValueError(
            "`step_fn` may either have one `step_context` argument, or `self` and `step_context` arguments if it's "
            f"an instance method. Got {arguments} instead."
        )
