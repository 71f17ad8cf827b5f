"""The state of one boundary, in memory, from which a checkpoint may be made later."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field

from trainerd.checkpoints.manifest import About
from trainerd.checkpoints.snapshot import Kept, Snapshot
from trainerd.errors import StorageError


@dataclass
class BoundaryState:
    """The state of one boundary, in memory. At most one checkpoint is made from it.

    The loop's thread drops it, and the thread that writes may have its snapshot meanwhile.

    Attributes:
      step, changes, has_all_variables: those of the model; see `Savable`.
      about: what is known of that boundary.
      held: the snapshot, while it is here; None if a checkpoint was made of it, or it was dropped.
      what: what the loop does meanwhile, for a person; "" if it trains.
      patience: how many seconds a pause waits for the loop's next boundary. 0: it does not wait.
      paused_at: when a pause was served that the loop has not ended for yet, in seconds of the guard's timer; or None.
      is_dropped: whether it is of no use any more.
    """

    step: int
    changes: int
    has_all_variables: bool
    about: About
    held: Snapshot | None
    what: str = ""
    patience: float = 0.0
    paused_at: float | None = None
    is_dropped: bool = False
    _lock: threading.Lock = field(default_factory=threading.Lock)

    @property
    def size(self) -> int:
        """The approximate size of its snapshot, in bytes; 0 if it has none any more."""
        held = self.held
        return held.size if held is not None else 0

    def take(self) -> Snapshot | None:
        """Return the snapshot, for the one who writes it and releases it; None if it was taken or dropped."""
        with self._lock:
            taken, self.held = self.held, None
            return taken

    def snapshot(self, kept: Kept = "host") -> Snapshot:
        """Return the snapshot, as `take` does, for a checkpoint that somebody waits for. It is kept as it is.

        Raises:
          StorageError: a checkpoint that was made of it has failed.
        """
        if (taken := self.take()) is None:
            raise StorageError(f"step {self.step} could not be saved while {self.what} was under way")
        return taken

    def give_back(self, snapshot: Snapshot) -> None:
        """Put back a snapshot that was not written."""
        with self._lock:
            self.held = snapshot
        if self.is_dropped:
            self.drop()

    def drop(self) -> None:
        """Release its snapshot, unless a checkpoint is made of it."""
        self.is_dropped = True
        if (taken := self.take()) is not None:
            taken.release()
