"""A MonitoredSession without recovery."""

from __future__ import annotations

from collections.abc import Iterable

import tensorflow as tf

from trainerd.programs.monitored.graph_session import MonitoredSession
from trainerd.programs.monitored.session_creators import ChiefSessionCreator
from trainerd.sessions.tf1.session import ManagedSession


class SingularMonitoredSession(MonitoredSession, tf.compat.v1.train.SingularMonitoredSession):  # type: ignore[misc]
    """A MonitoredSession that does not recover from a preemption, and shows its session.

    See `tf.compat.v1.train.SingularMonitoredSession` for the arguments.
    """

    _recovers = False

    def __init__(
        self,
        hooks: Iterable[tf.compat.v1.train.SessionRunHook] | None = None,
        scaffold: tf.compat.v1.train.Scaffold | None = None,
        master: str = "",
        config: tf.compat.v1.ConfigProto | None = None,
        checkpoint_dir: str | None = None,
        stop_grace_period_secs: float = 120,
        checkpoint_filename_with_path: str | None = None,
    ) -> None:
        creator = ChiefSessionCreator(
            scaffold=scaffold,
            master=master,
            config=config,
            checkpoint_dir=checkpoint_dir,
            checkpoint_filename_with_path=checkpoint_filename_with_path,
        )
        super().__init__(creator, hooks, stop_grace_period_secs)

    def raw_session(self) -> ManagedSession | None:
        """Return the `tf.compat.v1.Session` itself."""
        return self._tf_sess()
