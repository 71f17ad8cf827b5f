"""One save, from the snapshot to its end."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import dataclass, field

from trainerd.checkpoints.snapshot import UnsoundError
from trainerd.errors import StorageError


@dataclass
class Save:
    """One snapshot on its way to the disk.

    Attributes:
      step, reason, ids: of which step, why, and who waits for it.
      changes: of the session, when its snapshot was taken.
      unfinished: the services that are still to be done at its boundary.
      error: why it could not be made; None while it is under way, and where it was.
      done: set when it is over.
      progress, moved_at: what the store last said of it, and when that changed.
    """

    step: int
    reason: str
    ids: list[str]
    changes: int = 0
    unfinished: Sequence[str] = ()
    error: StorageError | UnsoundError | None = None
    done: threading.Event = field(default_factory=threading.Event)
    progress: object = None
    moved_at: float = 0.0
