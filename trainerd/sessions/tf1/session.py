"""The session that a program gets: TensorFlow's own, but its `run` is faster and ends at a boundary."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import tensorflow as tf

from trainerd.sessions.tf1.session_link import GraphSessionLink

tf1 = tf.compat.v1


class ManagedSession(tf.compat.v1.Session):  # type: ignore[misc]
    """A `tf.compat.v1.Session` of an attached run.

    It is not made, but one that a SessionManager made becomes it: see `adopt`.
    """

    session_link: GraphSessionLink

    def run(self, fetches: Any, feed_dict: Any = None, options: Any = None, run_metadata: Any = None) -> Any:
        """See `tf.compat.v1.Session.run`. On the loop's thread the end of a run is a boundary."""
        boundary = self.session_link.boundary
        if not boundary.is_mine:
            result = super().run(fetches, feed_dict, options, run_metadata)
            self.session_link.ran(self, fetches, feed_dict, is_step=False)
            return result
        with boundary.lock:
            result = self.run_step(fetches, feed_dict, options, run_metadata)
            if boundary.flag.is_raised:
                boundary.reached()
        return result

    def run_step(self, fetches: Any, feed_dict: Any = None, options: Any = None, run_metadata: Any = None) -> Any:
        """Run the fetches like `run`, for callers that reach the boundary themselves."""
        session_link = self.session_link
        try:
            if not feed_dict and options is None and run_metadata is None and session_link.callables is not None:
                return session_link.callables.run(fetches)
            result = super().run(fetches, feed_dict, options, run_metadata)
        except BaseException as error:
            session_link.failed_to_run(self, error)
            raise
        session_link.ran(self, fetches, feed_dict)
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
        boundary = self.session_link.boundary
        if not boundary.is_mine:
            result = run()
            self.session_link.ran(self, fetches, feeds, is_step=False)
            return result
        with boundary.lock:
            try:
                result = run()
            except BaseException as error:
                self.session_link.failed_to_run(self, error)
                raise
            self.session_link.ran(self, fetches, feeds)
            if boundary.flag.is_raised:
                boundary.reached()
        return result

    def __enter__(self) -> Any:
        """See `tf.compat.v1.Session`."""
        self.session_link.be_within()
        return super().__enter__()

    def __exit__(self, kind: Any, error: Any, traceback: Any) -> Any:
        """See `tf.compat.v1.Session`. What is to be saved is saved before."""
        self.session_link.close(error)
        return super().__exit__(kind, error, traceback)

    def close(self) -> None:
        """See `tf.compat.v1.Session.close`. What is to be saved is saved before.

        From then on it is as any other session: another one may be managed when Python collects this one.
        """
        self.session_link.close(None)
        self.__class__ = tf1.Session
        self.close()


ManagedSession.__name__ = "Session"  # it is what programs compare with when they look for the session within another


def adopt(session: Any, session_link: GraphSessionLink) -> None:
    """Make this `tf.compat.v1.Session` a managed one. It stays the same object, so all references see the change."""
    if isinstance(session, ManagedSession):
        session.__class__ = tf1.Session
    session.session_link = session_link
    session.__class__ = ManagedSession
    session_link.manage(session)
