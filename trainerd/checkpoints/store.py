"""The store: makes a snapshot durable and a checkpoint of it, and deletes the ones that may go.

The order of a publish is DESIGN's: data, index, manifest, `checkpoint`. No manifest, no checkpoint.
"""

from __future__ import annotations

import contextlib
import logging
import os
import shutil
import time
from collections.abc import Callable
from pathlib import Path

from trainerd.checkpoints import manifest as manifests
from trainerd.checkpoints import retention
from trainerd.checkpoints.manifest import DamagedError, FileRecord, Manifest
from trainerd.checkpoints.snapshot import Snapshot
from trainerd.checkpoints.statefile import StateFile
from trainerd.errors import StorageError
from trainerd.files import fsync_directory, fsync_file, storage, write_atomic, written_back
from trainerd.rundir import RunDirectory
from trainerd.state import LastCheckpoint

log = logging.getLogger(__name__)


class CheckpointStore:
    """Writes the checkpoints of one run directory. One process at a time may hold one: the daemon's lock says so.

    Args:
      rundir: where.
      keep_last: how many of the newest checkpoints are kept; may be set again at any time.
      clock: seconds since 1970 (UTC), for the manifest.
      timer: seconds on a clock that is never set, for durations.
    """

    def __init__(
        self,
        rundir: RunDirectory,
        *,
        keep_last: int = 5,
        clock: Callable[[], float] = time.time,
        timer: Callable[[], float] = time.monotonic,
    ) -> None:
        self.keep_last = keep_last
        self._rundir = rundir
        self._clock = clock
        self._stage_name = ""
        self._moved = 0
        self._timer = timer

    def publish(self, snapshot: Snapshot, *, reason: str, metrics: dict[str, float]) -> LastCheckpoint:
        """Make a checkpoint of a snapshot. When this returns it is on disk.

        Raises:
          StorageError: it could not be written; every checkpoint that was there is as it was.
          UnsoundError: the snapshot must not be saved.
        """
        step, started, at = snapshot.step, self._timer(), self._clock()
        staging = self._rundir.staging(step)
        with storage(f"write the checkpoint of step {step} in {self._rundir.path}"):
            try:
                manifest = self._stage(snapshot, staging, at, reason, metrics)
                self._publish(manifest, staging)
            except OSError:
                self._forget_half_published(staging)
                raise
            finally:
                shutil.rmtree(staging, ignore_errors=True)
            self._follow_up(step)
        return LastCheckpoint(
            step=step,
            path=str(self._rundir.prefix(step)),
            reason=reason,
            seconds=self._timer() - started,
            bytes=manifest.size,
            at=self._clock(),
        )

    def progress(self) -> object:
        """A value that changes while the save under way makes progress: what tells a slow disk from a hung one.

        It is made of the files' size, the bytes that were checked or hashed, and, while the files are put on disk, what
        the kernel has written there.
        """
        written = on_disk = 0
        for staging in self._rundir.stagings():
            # The save may end at any moment, and its folder with it.
            with contextlib.suppress(OSError), os.scandir(staging) as entries:
                written += sum(entry.stat().st_size for entry in entries)
        if self._stage_name == "fsync":
            with contextlib.suppress(OSError):
                on_disk = written_back(self._rundir.path)
        return self._stage_name, written, self._moved, on_disk

    def _count(self, size: int) -> None:
        self._moved += size

    def clean(self) -> None:
        """Remove what a save that was killed left behind: its staging folder, and files it had renamed already."""
        for staging in self._rundir.stagings():
            log.info("removing what an interrupted save left: %s", staging.name, extra={"event": "clean"})
            with storage(f"clean {staging}"):
                self._forget_half_published(staging)
                shutil.rmtree(staging)
        with storage(f"clean {self._rundir.path}"):
            for temporary in self._rundir.path.glob(".*.tmp"):
                if temporary.is_file() and not temporary.is_symlink():
                    temporary.unlink()

    def _stage(self, snapshot: Snapshot, staging: Path, at: float, reason: str, metrics: dict[str, float]) -> Manifest:
        """Write all files of a checkpoint, its manifest among them, and put them on disk."""
        shutil.rmtree(staging, ignore_errors=True)
        staging.mkdir()
        self._stage_name = "write"
        snapshot.write(staging / self._rundir.prefix(snapshot.step).name, self._count)
        files = sorted(path for path in staging.iterdir() if path.is_file())
        self._stage_name = "fsync"
        for path in files:
            fsync_file(path)
        self._stage_name = "record"
        records = {path.name: FileRecord.of(path, self._count) for path in files}
        manifest = Manifest(snapshot.step, at, reason, dict(metrics), records)
        write_atomic(staging / self._rundir.manifest(snapshot.step).name, manifest.to_bytes())
        fsync_directory(staging)
        return manifest

    def _publish(self, manifest: Manifest, staging: Path) -> None:
        """Rename a staged checkpoint into the run directory: its files, then its manifest, then `checkpoint`."""
        folder = self._rundir.path
        final = self._rundir.manifest(manifest.step)
        if final.exists():
            # Training went back and passed this step again: the old checkpoint ceases to exist first.
            final.unlink()
            fsync_directory(folder)
        for name in manifest.files:
            (staging / name).replace(folder / name)
        fsync_directory(folder)
        (staging / final.name).replace(final)
        fsync_directory(folder)

    def _write_state_file(self, named: int) -> None:
        content = StateFile(named, tuple(sorted(self._rundir.steps()))).to_bytes(self._rundir.basename)
        write_atomic(self._rundir.checkpoint_state, content)

    def _follow_up(self, current: int) -> None:
        """Name the checkpoint that exists now in `checkpoint`, and delete those that retention gives up.

        Where that fails the newest checkpoint is as durable as before: it is logged, and done after the next save.
        One that has newer ones beside it is not found without being named: for that the failure is the save's.
        """
        steps = self._rundir.steps()
        gone = retention.deletable(steps, current=current, keep_last=self.keep_last)
        try:
            self._write_state_file(current)
            for step in gone:
                self._delete(step)
            if gone:
                self._write_state_file(current)
        except (OSError, StorageError) as error:
            if current != steps[0]:
                raise
            log.warning("cannot tidy up after step %d: %s", current, error, extra={"event": "retention"})

    def _delete(self, step: int) -> None:
        path = self._rundir.manifest(step)
        try:
            names = list(manifests.read(path).files)
        except DamagedError:
            return  # What is in it is unknown; the next start moves it to quarantine.
        path.unlink()
        fsync_directory(self._rundir.path)
        for name in names:
            (self._rundir.path / name).unlink(missing_ok=True)
        log.debug("deleted the checkpoint of step %d", step, extra={"event": "delete", "step": step})

    def quarantine(self, step: int, why: str) -> None:
        """Move a checkpoint that does not verify out of the way, and say why.

        Raises:
          StorageError: it cannot be moved.
        """
        folder = self._rundir.quarantine
        with storage(f"move the checkpoint of step {step} to {folder}"):
            folder.mkdir(exist_ok=True)
            name = self._rundir.prefix(step).name
            for path in sorted(self._rundir.path.glob(f"{name}.*")):
                path.rename(folder / path.name)
        log.warning(
            "the checkpoint of step %d does not verify and is now in %s: %s",
            step,
            folder,
            why,
            extra={"event": "quarantine", "step": step},
        )

    def _forget_half_published(self, staging: Path) -> None:
        """Where the process died between renaming the data and renaming the manifest, remove the data.

        The staged manifest names the files, so that nothing is ever deleted that this store did not write.
        """
        for path in staging.glob(f"{self._rundir.basename}-*.json"):
            if (self._rundir.path / path.name).exists():
                continue
            try:
                names = list(manifests.read(path).files)
            except DamagedError:
                continue
            for name in names:
                (self._rundir.path / name).unlink(missing_ok=True)
