"""The Saver that a Supervisor makes: what a program saves with it into `logdir` is a checkpoint like any other."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import tensorflow as tf

from trainerd.system.absolute import absolute


class Saver(tf.compat.v1.train.Saver):  # type: ignore[misc]
    """A `tf.compat.v1.train.Saver` of all variables.

    If it saves a managed session under the Supervisor's own name, the Supervisor saves, and the call returns when the
    checkpoint is durable. Anything else is saved as TensorFlow does.
    """

    _published: Sequence[str] = ()  # the checkpoints that the Supervisor keeps
    _seen: Sequence[str] = ()  # what was published when this saved last

    def publish(self, paths: Sequence[str]) -> None:
        """Record the checkpoints that the Supervisor keeps now, the newest last."""
        self._published = paths

    @property
    def last_checkpoints(self) -> list[str]:
        """The newest checkpoints, the newest last: those that the Supervisor keeps, and those that this Saver saved by
        other names."""
        others = [path for path in super().last_checkpoints if path not in self._published]
        return [*self._published, *others] if self._published == self._seen else [*others, *self._published]

    def save(self, sess: Any, save_path: str, global_step: Any = None, *args: Any, **options: Any) -> str:
        """See `tf.compat.v1.train.Saver.save`.

        Raises:
          StorageError: it cannot be written.
        """
        guard = getattr(sess, "session_link", None)
        is_plain = global_step is not None and not args and not options
        if is_plain and guard is not None and guard.save is not None and absolute(Path(save_path)) == guard.save_path:
            # Not `tf.compat.v1.train.global_step`: on a service's thread it takes the graph's tensor for an eager one.
            step = global_step if isinstance(global_step, int) else int(sess.run(global_step))
            if guard.model is not None and step == guard.model.step:
                guard.save()
                return f"{save_path}-{step}"
        self._seen = self._published
        written: str = super().save(sess, save_path, global_step, *args, **options)
        return written
