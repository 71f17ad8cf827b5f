"""The lowest boundary of a valley of the loss, in memory."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from trainerd.checkpoints.lineage import Change
from trainerd.checkpoints.manifest import Minimum
from trainerd.checkpoints.snapshot import Snapshot


@dataclass
class Candidate:
    """The state of the lowest boundary of a valley. One checkpoint at most is made of it.

    The loop's thread drops it, and the thread that writes may have its snapshot meanwhile.

    Attributes:
      step, changes: those of the model.
      minimum: the smoothed loss there.
      metrics: the figures of that boundary.
      trained_secs: for how long the run had trained.
      valleys: what was known of the loss.
      lineage: what had been done to the run.
    """

    step: int
    changes: int
    minimum: Minimum
    metrics: Mapping[str, float]
    trained_secs: float
    valleys: Mapping[str, Any]
    lineage: Sequence[Change]
    _taken: Snapshot | None
    _is_dropped: bool = False
    _lock: threading.Lock = field(default_factory=threading.Lock)

    @property
    def size(self) -> int:
        """About how many bytes its snapshot takes; 0 if it has none any more."""
        taken = self._taken
        return taken.size if taken is not None else 0

    @property
    def is_in_memory(self) -> bool:
        """Whether it has its snapshot: no checkpoint was made of it."""
        return self._taken is not None

    def take(self) -> Snapshot | None:
        """The snapshot, for the one who writes it and releases it; None if it was taken or dropped."""
        with self._lock:
            taken, self._taken = self._taken, None
            return taken

    def give_back(self, snapshot: Snapshot) -> None:
        """The snapshot was not written."""
        with self._lock:
            self._taken = snapshot
        if self._is_dropped:
            self.drop()

    def drop(self) -> None:
        """It is of no use any more. Its snapshot is released, unless it is being written."""
        self._is_dropped = True
        if (taken := self.take()) is not None:
            taken.release()
