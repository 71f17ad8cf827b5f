"""Creators of the session of a MonitoredSession."""

from __future__ import annotations

import time
from typing import Any

import tensorflow as tf

from trainerd.checkpoints import saver_checkpoints
from trainerd.checkpoints.format.reader import newest_checkpoint
from trainerd.loop.outcome import Paused
from trainerd.loop.signals.dispatch import is_pause_pending
from trainerd.rundir.paths import RunDirectory

tf1 = tf.compat.v1

_POLL_SECS = 0.5


class _Creator(tf.compat.v1.train.SessionCreator):  # type: ignore[misc]
    """The base of the creators, with TensorFlow's private names: programs that derive from them use those."""

    _session_manager: Any = None

    def __init__(self, scaffold: tf.compat.v1.train.Scaffold, master: str, config: tf.compat.v1.ConfigProto) -> None:
        self._scaffold = scaffold or tf1.train.Scaffold()
        self._master = master
        self._config = config

    def _get_session_manager(self) -> Any:
        """Return the SessionManager, which is made once, when the scaffold is finalized."""
        if self._session_manager is None:
            scaffold = self._scaffold
            self._session_manager = tf1.train.SessionManager(
                local_init_op=scaffold.local_init_op,
                local_init_feed_dict=scaffold.local_init_feed_dict,
                ready_op=scaffold.ready_op,
                ready_for_local_init_op=scaffold.ready_for_local_init_op,
                graph=tf1.get_default_graph(),
            )
        return self._session_manager


class ChiefSessionCreator(_Creator):
    """Makes a session, and restores or initializes the model in it.

    As `tf.compat.v1.train.ChiefSessionCreator`, but a checkpoint is verified before it is restored.

    Args:
      scaffold: the ops. Default: a new Scaffold.
      master: the TensorFlow master.
      config: a ConfigProto for the session.
      checkpoint_dir: the folder in which the newest checkpoint is looked for.
      checkpoint_filename_with_path: the prefix of the checkpoint to restore.
    """

    def __init__(
        self,
        scaffold: tf.compat.v1.train.Scaffold | None = None,
        master: str = "",
        config: tf.compat.v1.ConfigProto | None = None,
        checkpoint_dir: str | None = None,
        checkpoint_filename_with_path: str | None = None,
    ) -> None:
        super().__init__(scaffold, master, config)
        self._is_finalized = False
        self._checkpoint_dir = checkpoint_dir
        self._checkpoint_filename_with_path = checkpoint_filename_with_path

    def create_session(self) -> Any:
        """Make the session.

        Raises:
          DataError: there are checkpoints, and none can be read.
          ValueError: both `checkpoint_dir` and `checkpoint_filename_with_path` are given.
        """
        prefix = self._checkpoint_filename_with_path
        if prefix is not None and self._checkpoint_dir:
            raise ValueError("Can not provide both checkpoint_dir and checkpoint_filename_with_path.")
        if prefix is None and self._checkpoint_dir:
            prefix = newest_checkpoint(self._checkpoint_dir)
            # What a hook saves with it, it deletes the oldest of then: none of ours.
            listed = saver_checkpoints.listed(RunDirectory.of(self._checkpoint_dir))
            self.finalized_scaffold().saver.recover_last_checkpoints(listed)
        return self.create_session_from(prefix)

    def finalized_scaffold(self) -> Any:
        """Return the ops, all of them made."""
        if not self._is_finalized:
            self._scaffold.finalize()
            self._is_finalized = True
        return self._scaffold

    def create_session_from(self, prefix: str | None) -> Any:
        """Make the session, with the model restored from this checkpoint, or initialized without one."""
        scaffold = self.finalized_scaffold()
        return self._get_session_manager().prepare_session(
            self._master,
            saver=scaffold.saver,
            checkpoint_filename_with_path=prefix,
            config=self._config,
            init_op=scaffold.init_op,
            init_feed_dict=scaffold.init_feed_dict,
            init_fn=scaffold.init_fn,
        )


class WorkerSessionCreator(_Creator):
    """Makes a session when the chief has made the model ready; see `tf.compat.v1.train.WorkerSessionCreator`.

    Args:
      scaffold: the ops. Default: a new Scaffold.
      master: the TensorFlow master.
      config: a ConfigProto for the session.
      max_wait_secs: seconds to wait for the chief.
    """

    def __init__(
        self,
        scaffold: tf.compat.v1.train.Scaffold | None = None,
        master: str = "",
        config: tf.compat.v1.ConfigProto | None = None,
        max_wait_secs: float = 30 * 60,
    ) -> None:
        super().__init__(scaffold, master, config)
        self._max_wait_secs = max_wait_secs

    def create_session(self) -> Any:
        """Make the session.

        Raises:
          Paused: a pause was asked for while the chief was awaited.
          tf.errors.DeadlineExceededError: the chief has not made the model ready in time.
        """
        self._scaffold.finalize()
        manager, deadline = self._get_session_manager(), time.monotonic() + self._max_wait_secs
        while True:
            try:  # TensorFlow's waiting looks twice a minute, and hears no signal
                return manager.wait_for_session(self._master, config=self._config, max_wait_secs=0)
            except tf.errors.DeadlineExceededError:
                if is_pause_pending():
                    raise Paused from None
                if time.monotonic() >= deadline:
                    raise
            time.sleep(_POLL_SECS)
