"""What makes the session of a MonitoredSession."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import tensorflow as tf

from trainerd.checkpoints import foreign, statefile
from trainerd.rundir import RunDirectory
from trainerd.sessions.graph import read_whole

tf1 = tf.compat.v1


class ChiefSessionCreator(tf.compat.v1.train.SessionCreator):  # type: ignore[misc]
    """Makes a session, and restores or initializes the model in it.

    As `tf.compat.v1.train.ChiefSessionCreator`, but a checkpoint is verified before it is restored.

    Args:
      scaffold: the ops; a default one where none is given.
      master: the TensorFlow master.
      config: a ConfigProto for the session.
      checkpoint_dir: where to look for the newest checkpoint.
      checkpoint_filename_with_path: the prefix of the checkpoint to restore.
    """

    def __init__(
        self,
        scaffold: Any = None,
        master: str = "",
        config: Any = None,
        checkpoint_dir: str | None = None,
        checkpoint_filename_with_path: str | None = None,
    ) -> None:
        self._scaffold = scaffold or tf1.train.Scaffold()
        self._is_finalized = False
        self._checkpoint_dir = checkpoint_dir
        self._prefix = checkpoint_filename_with_path
        self._master = master
        self._config = config

    def create_session(self) -> Any:
        """Make it.

        Raises:
          DataError: there are checkpoints, and none can be read.
          ValueError: there are two ways to say which.
        """
        prefix = self._prefix
        if prefix is not None and self._checkpoint_dir:
            raise ValueError("Can not provide both checkpoint_dir and checkpoint_filename_with_path.")
        if prefix is None and self._checkpoint_dir:
            found = foreign.newest_readable(RunDirectory(Path(self._checkpoint_dir).absolute()), read_whole)
            prefix = None if found is None else str(found)
            self._recover(Path(self._checkpoint_dir).absolute())
        return self.create_session_from(prefix)

    def _recover(self, folder: Path) -> None:
        """Tell the Saver what it has saved before: a hook that saves with it deletes the oldest then. None of ours."""
        its_own = [
            str(folder / name)
            for name in statefile.listed(folder / "checkpoint")
            if not (folder / f"{name}.json").exists()
        ]
        self.finalized_scaffold().saver.recover_last_checkpoints(its_own)

    def finalized_scaffold(self) -> Any:
        """The ops, all of them made."""
        if not self._is_finalized:
            self._scaffold.finalize()
            self._is_finalized = True
        return self._scaffold

    def create_session_from(self, prefix: str | None) -> Any:
        """Make it, with the model restored from this checkpoint; initialized where there is none."""
        scaffold = self.finalized_scaffold()
        return _manager(scaffold).prepare_session(
            self._master,
            saver=scaffold.saver,
            checkpoint_filename_with_path=prefix,
            config=self._config,
            init_op=scaffold.init_op,
            init_feed_dict=scaffold.init_feed_dict,
            init_fn=scaffold.init_fn,
        )


class WorkerSessionCreator(tf.compat.v1.train.SessionCreator):  # type: ignore[misc]
    """Makes a session when the chief has made the model ready; see `tf.compat.v1.train.WorkerSessionCreator`.

    Args:
      scaffold: the ops; a default one where none is given.
      master: the TensorFlow master.
      config: a ConfigProto for the session.
      max_wait_secs: for how long to wait.
    """

    def __init__(
        self, scaffold: Any = None, master: str = "", config: Any = None, max_wait_secs: float = 30 * 60
    ) -> None:
        self._scaffold = scaffold or tf1.train.Scaffold()
        self._master = master
        self._config = config
        self._max_wait_secs = max_wait_secs

    def create_session(self) -> Any:
        """Make it."""
        self._scaffold.finalize()
        return _manager(self._scaffold).wait_for_session(
            self._master, config=self._config, max_wait_secs=self._max_wait_secs
        )


def _manager(scaffold: Any) -> Any:
    return tf1.train.SessionManager(
        local_init_op=scaffold.local_init_op,
        local_init_feed_dict=scaffold.local_init_feed_dict,
        ready_op=scaffold.ready_op,
        ready_for_local_init_op=scaffold.ready_for_local_init_op,
        graph=tf1.get_default_graph(),
    )
