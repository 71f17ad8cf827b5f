"""The file copy.json: what the process says of itself that copies a run elsewhere."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field

from trainerd.rundir.paths import RunDirectory
from trainerd.rundir.state import LastCheckpoint
from trainerd.system.durable_files import read_json, storage, write_atomic


@dataclass(frozen=True)
class CopyStatus:
    """The state of a run's copy.

    Attributes:
      to: the URL of the destination.
      step: the newest checkpoint that is copied and verified; None if none is.
      steps: all of them.
      copied_at: when the newest was, in seconds since 1970 (UTC).
      files_at: when events and the other files were copied last.
      sending: the step whose checkpoint is being sent; None if none is.
      sent_bytes, total_bytes: how much of its files has been sent, and their size.
      error: why the last try failed; None if it did not.
      pid: the process.
      at: when this was written.
    """

    to: str = ""
    step: int | None = None
    steps: list[int] = field(default_factory=list)
    copied_at: float | None = None
    files_at: float | None = None
    sending: int | None = None
    sent_bytes: int = 0
    total_bytes: int = 0
    error: str | None = None
    pid: int = 0
    at: float = 0.0

    def lag_secs(self, saved: LastCheckpoint | None, now: float) -> float:
        """Return for how long the newest checkpoint of the run has not been copied; 0 if it is.

        Args:
          saved: the newest checkpoint of the run.
          now: seconds since 1970 (UTC).
        """
        if saved is None or (self.step is not None and saved.step in self.steps):
            return 0.0
        return max(0.0, now - saved.at)

    def write(self, rundir: RunDirectory) -> None:
        """Replace the file.

        Raises:
          StorageError: it cannot be written.
        """
        with storage(f"write {rundir.copy}"):
            write_atomic(rundir.copy, json.dumps(asdict(self)).encode() + b"\n", durable=False)


def read_copy_status(rundir: RunDirectory) -> CopyStatus | None:
    """Return the state of a run's copy; None if it is not copied.

    Raises:
      StorageError: the file cannot be read.
    """
    return read_json(rundir.copy, CopyStatus)
