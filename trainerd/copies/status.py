"""The file copy.json: what the process says of itself that copies a run elsewhere."""

from __future__ import annotations

import contextlib
import json
from dataclasses import asdict, dataclass, field

from trainerd.checkpoints import manifest as manifests
from trainerd.errors import TrainerdError
from trainerd.rundir.paths import RunDirectory
from trainerd.rundir.state import LARGEST, LastCheckpoint
from trainerd.system.durable_files import read_json, storage, write_atomic
from trainerd.text import seconds


@dataclass(frozen=True)
class CopyStatus:
    """The state of a run's copy.

    Attributes:
      to: the URL of the destination.
      step: the newest checkpoint that is copied and verified; None if none is.
      copied: all of them: each step to when its snapshot was taken, in seconds since 1970 (UTC).
      copied_at: when the last one was copied.
      files_at: when events and the other files were copied last.
      sending: the step whose checkpoint is being sent; None if none is.
      sent_bytes, total_bytes: how much of its files has been sent, and their size.
      error: why the last try failed; None if it did not.
      pid: the process.
      at: when this was written.
    """

    to: str = ""
    step: int | None = None
    copied: dict[int, float] = field(default_factory=dict)
    copied_at: float | None = None
    files_at: float | None = None
    sending: int | None = None
    sent_bytes: int = 0
    total_bytes: int = 0
    error: str | None = None
    pid: int = 0
    at: float = 0.0

    @property
    def steps(self) -> list[int]:
        """The steps whose checkpoints are copied."""
        return sorted(self.copied)

    def is_behind(self, saved: LastCheckpoint | None, saved_at: float | None = None) -> bool:
        """Return whether the newest checkpoint of the run is not copied.

        Args:
          saved: that checkpoint.
          saved_at: when its snapshot was taken; see `snapshot_at`. A step that was trained again has another time. None
            if that is unknown: then the step alone is compared.
        """
        if saved is None:
            return False
        copied_at = self.copied.get(saved.step)
        return copied_at is None or (saved_at is not None and copied_at != saved_at)

    def line(self, saved: LastCheckpoint | None, now: float, saved_at: float | None = None) -> str:
        """Return the state in one line.

        Args:
          saved: the newest checkpoint of the run.
          now: seconds since 1970 (UTC).
          saved_at: see `is_behind`.
        """
        parts = ["no checkpoint yet"]
        if self.step is not None:
            parts = [f"step {self.step:,}, {seconds(max(0.0, now - self.copied[self.step]))} old"]
        if self.sending is not None and self.total_bytes:
            parts.append(f"sending step {self.sending:,} ({100 * self.sent_bytes // self.total_bytes} %)")
        elif saved is not None and self.is_behind(saved, saved_at):
            parts.append(f"step {saved.step:,} is not copied yet")
        return f"{'; '.join(parts)}; to {self.to}"

    def write(self, rundir: RunDirectory) -> None:
        """Replace the file.

        Raises:
          StorageError: it cannot be written.
        """
        with storage(f"write {rundir.copy}"):
            write_atomic(rundir.copy, json.dumps(asdict(self)).encode() + b"\n", durable=False)


def snapshot_at(rundir: RunDirectory, saved: LastCheckpoint | None) -> float | None:
    """Return when the snapshot of a checkpoint was taken, by its manifest; None if that cannot be read.

    state.json has another time: when the checkpoint was durable.
    """
    with contextlib.suppress(TrainerdError):
        found = manifests.sound(rundir.manifest(saved.step)) if saved is not None else None
        return found.at if found is not None else None
    return None


def read_copy_status(rundir: RunDirectory) -> CopyStatus | None:
    """Return the state of a run's copy; None if it is not copied, or the file is damaged.

    Raises:
      StorageError: the file cannot be read.
    """
    found = read_json(rundir.copy, CopyStatus)
    return found if found is not None and _is_possible(found) else None


def _is_possible(found: CopyStatus) -> bool:
    """Return whether a copier may have written this: anybody can write into a run directory."""
    numbers = (found.copied_at, found.files_at, found.sending, found.sent_bytes, found.total_bytes, found.pid, found.at)
    times = (*found.copied, *found.copied.values(), *(each for each in numbers if each is not None))
    return all(abs(each) <= LARGEST for each in times) and found.step == max(found.copied, default=None)
