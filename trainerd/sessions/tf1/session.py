"""The session that a program gets: TensorFlow's own, but its `run` is faster and ends at a boundary."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import tensorflow as tf

from trainerd.sessions.tf1.callables import Callables
from trainerd.sessions.tf1.step_guard import GraphStepGuard

tf1 = tf.compat.v1


class ManagedSession(tf.compat.v1.Session):  # type: ignore[misc]
    """A `tf.compat.v1.Session` of a managed run.

    It is not made, but one that a SessionManager made becomes it: see `adopt`.
    """

    step_guard: GraphStepGuard

    def run(self, fetches: Any, feed_dict: Any = None, options: Any = None, run_metadata: Any = None) -> Any:
        """See `tf.compat.v1.Session.run`. On the loop's thread the end of a run is a boundary."""
        boundary = self.step_guard.boundary
        if not boundary.is_mine:
            result = super().run(fetches, feed_dict, options, run_metadata)
            self.step_guard.ran(self, fetches, feed_dict, is_step=False)
            return result
        with boundary.lock:
            result = self.run_step(fetches, feed_dict, options, run_metadata)
            if boundary.flag.is_raised:
                boundary.reached()
        return result

    def run_step(self, fetches: Any, feed_dict: Any = None, options: Any = None, run_metadata: Any = None) -> Any:
        """As `run`, for callers that reach the boundary themselves."""
        step_guard = self.step_guard
        try:
            if not feed_dict and options is None and run_metadata is None and step_guard.callables is not None:
                return step_guard.callables.run(fetches)
            result = super().run(fetches, feed_dict, options, run_metadata)
        except BaseException as error:
            step_guard.failed_to_run(self, error)
            raise
        step_guard.ran(self, fetches, feed_dict)
        return result

    def make_callable(self, fetches: Any, feed_list: Any = None, accept_options: bool = False) -> Callable[..., Any]:
        """See `tf.compat.v1.Session.make_callable`. A call of it is a step too."""
        call: Callable[..., Any] = super().make_callable(fetches, feed_list, accept_options)
        if feed_list is not None:  # that calls `run`
            return call

        def step(*args: Any, **options: Any) -> Any:
            return self._as_step(fetches, lambda: call(*args, **options), None)

        return step

    def partial_run(self, handle: Any, fetches: Any, feed_dict: Any = None) -> Any:
        """See `tf.compat.v1.Session.partial_run`."""
        run = super().partial_run
        return self._as_step(fetches, lambda: run(handle, fetches, feed_dict), feed_dict)

    def _as_step(self, fetches: Any, run: Callable[[], Any], feeds: Any) -> Any:
        boundary = self.step_guard.boundary
        if not boundary.is_mine:
            result = run()
            self.step_guard.ran(self, fetches, feeds, is_step=False)
            return result
        with boundary.lock:
            try:
                result = run()
            except BaseException as error:
                self.step_guard.failed_to_run(self, error)
                raise
            self.step_guard.ran(self, fetches, feeds)
            if boundary.flag.is_raised:
                boundary.reached()
        return result

    def __enter__(self) -> Any:
        """See `tf.compat.v1.Session`."""
        self.step_guard.is_within = True
        return super().__enter__()

    def __exit__(self, kind: Any, error: Any, traceback: Any) -> Any:
        """See `tf.compat.v1.Session`. What is to be saved is saved before."""
        self.step_guard.close(error)
        return super().__exit__(kind, error, traceback)

    def close(self) -> None:
        """See `tf.compat.v1.Session.close`. What is to be saved is saved before.

        From then on it is as any other session: another one may be managed when Python collects this one.
        """
        self.step_guard.close(None)
        self.__class__ = tf1.Session
        self.close()


ManagedSession.__name__ = "Session"  # it is what programs compare with when they look for the session within another


def adopt(session: Any, step_guard: GraphStepGuard) -> Any:
    """Make this `tf.compat.v1.Session` a managed one. It stays the same object, so all references see the change."""
    if isinstance(session, ManagedSession):
        session.__class__ = tf1.Session
    session.step_guard = step_guard
    session.__class__ = ManagedSession
    step_guard.callables = Callables(session, step_guard.wrapped(session))
    return session
