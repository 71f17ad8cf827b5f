"""A program under TensorFlow's distribute coordinator: which of its workers save, write summaries, and where.

The coordinator is private to TensorFlow: tests/tensorflow/test_internals.py names the versions for which this holds.
What it says is heeded as `tf.compat.v1.train.MonitoredTrainingSession` does.
"""

from __future__ import annotations

import copy
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import tensorflow as tf
from tensorflow.python.distribute import distribute_coordinator_context

from trainerd.monitored.session_creators import ChiefSessionCreator, WorkerSessionCreator

tf1 = tf.compat.v1

# Strategies whose workers save together: each runs the ops of a save, and all but the chief into a folder of its own.
_COLLECTIVE = ("CollectiveAllReduceStrategy", "CollectiveAllReduceStrategyV1", "MultiWorkerMirroredStrategy")
_COLLECTIVE_STEPS = 1000


@dataclass(frozen=True)
class WorkerContext:
    """What the coordinator says of this worker.

    Attributes:
      master: the TensorFlow master.
      is_chief: whether the hooks of the chief alone are called.
      initializes: whether it initializes or restores the model, and does not wait for the chief to.
      saves, shows: whether it writes checkpoints and summaries for all.
      own_folder: the name of the folder for what it writes beside them; empty for no folder, and nothing written.
    """

    master: str
    is_chief: bool
    initializes: bool
    saves: bool
    shows: bool
    own_folder: str
    _config: Any

    @classmethod
    def current(cls) -> Self | None:
        """That of the program, if it runs under the coordinator."""
        found = distribute_coordinator_context.get_current_worker_context()
        if not found:
            return None
        folder = ""
        if type(found._strategy).__name__ in _COLLECTIVE:
            folder = f"tmp_{found.task_type}_{found.task_id}" if found.task_type else "tmp"
        return cls(
            master=found.master_target,
            is_chief=found.is_chief,
            initializes=found.experimental_should_init,
            saves=bool(found.should_checkpoint),
            shows=bool(found.should_save_summary),
            own_folder=folder,
            _config=found.session_config,
        )

    def session_config(self, config: Any) -> Any:
        """The coordinator's settings of a session, over those of the program."""
        if config is None or self._config is None:
            return config or self._config
        merged = copy.deepcopy(config)
        merged.MergeFrom(self._config)
        return merged

    def checkpoint_folder(self, folder: str | None) -> str | None:
        """Where this worker saves; None for nowhere."""
        return self._folder(folder, self.saves)

    def summary_folder(self, folder: str | None) -> str | None:
        """Where this worker writes summaries; None for nowhere."""
        return self._folder(folder, self.shows)

    def save_schedule(self, secs: Any, steps: Any) -> tuple[Any, Any]:
        """When to save. Workers that save together do so after the same step, and not when a clock says so."""
        if not (self.own_folder and secs):
            return secs, steps
        tf1.logging.warning(
            "Collective ops may deadlock with `save_checkpoints_secs` please use `save_checkpoint_steps` instead. "
            "Clearing `save_checkpoint_secs` and setting `save_checkpoint_steps` to 1000 now."
        )
        return None, _COLLECTIVE_STEPS

    def _folder(self, folder: str | None, is_for_all: bool) -> str | None:
        if not folder or is_for_all:
            return folder
        return str(Path(folder, self.own_folder)) if self.own_folder else None


def default_creator() -> Any:
    """Makes the session of a program that does not say how."""
    context = WorkerContext.current()
    if context is None:
        return ChiefSessionCreator()
    kind = ChiefSessionCreator if context.initializes else WorkerSessionCreator
    return kind(None, context.master, context.session_config(None))
