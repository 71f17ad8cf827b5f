"""The store: makes durable checkpoints of snapshots, and deletes those that retention gives up.

The order of a publish is DESIGN's: data, index, manifest, `checkpoint`. No manifest, no checkpoint.
"""

from __future__ import annotations

import contextlib
import errno
import logging
import time
from collections.abc import Callable, Collection
from dataclasses import replace
from pathlib import Path
from typing import Any

from trainerd import text
from trainerd.checkpoints import catalogue, checkpoint_state
from trainerd.checkpoints import manifest as manifests
from trainerd.checkpoints.checkpoint_files import CheckpointFiles
from trainerd.checkpoints.checkpoint_state import StateFile
from trainerd.checkpoints.disk_space import DiskSpace, NoRoomError
from trainerd.checkpoints.manifest import LOWEST, MINIMUM, About, FileRecord, Manifest
from trainerd.checkpoints.memory_tier import MemoryTier
from trainerd.checkpoints.retention import Policy
from trainerd.checkpoints.save_progress import SaveProgress
from trainerd.checkpoints.snapshot import Snapshot, Writable
from trainerd.errors import StorageError
from trainerd.rundir import lock, run_events
from trainerd.rundir.paths import RunDirectory
from trainerd.rundir.run_events import EventKind
from trainerd.rundir.state import LastCheckpoint
from trainerd.system import safe_paths
from trainerd.system.durable_files import (
    free_bytes,
    fsync_directory,
    fsync_file,
    remove_temporaries,
    storage,
    write_atomic,
    write_durable,
)

log = logging.getLogger(__name__)

BATCH = 32  # checkpoints that are deleted in one go: a save that is asked for meanwhile waits for so many


class CheckpointStore:
    """Writes the checkpoints of one run directory. One process at a time may hold one: the daemon's lock says so.

    One class, since what is published, named, moved and deleted is decided from the same files.

    Args:
      rundir: where.
      policy: which checkpoints are kept at first; see `keep`.
      timer: seconds on a clock that is never set, for durations.
      free: how many bytes may be written in a folder.
      at: called with the stage before each operation of a publish; the tests fail every one of them in turn.

    Attributes:
      space: what a checkpoint needs on the file system.
      memory: the newest state in memory.
      written: the bytes that the last checkpoint has written to the disk: it may share files with those before.
    """

    def __init__(
        self,
        rundir: RunDirectory,
        *,
        policy: Policy | None = None,
        timer: Callable[[], float] = time.monotonic,
        free: Callable[[Path], int] = free_bytes,
        at: Callable[[str], None] = lambda stage: None,
    ) -> None:
        self._rundir = rundir
        self._timer = timer
        self._before: int | None = None
        self._given_up: list[int] = []  # by retention, oldest first, and not deleted yet
        self._has_policy = policy is not None
        self._progress = SaveProgress(at)
        self._enter = self._progress.enter
        self._files = CheckpointFiles(rundir, policy or Policy(), self._enter)
        self.space = DiskSpace(rundir, self._files, free)
        self.memory = MemoryTier(rundir)
        self.written = 0

    def progress(self) -> object:
        """Return a value that changes while the save under way makes progress; see `SaveProgress.value`."""
        return self._progress.value(self._rundir, self._files.looked_at)

    @property
    def policy(self) -> Policy:
        """The rules that decide which checkpoints are kept."""
        return self._files.policy

    def keep(self, policy: Policy) -> None:
        """Keep checkpoints by this policy from now on."""
        self._has_policy = True
        if policy != self._files.policy:
            self._given_up = []  # the next save decides again
        self._files.keep(policy)

    def resumed(self, step: int) -> None:
        """Record that the run resumes from the checkpoint of this step.

        Later checkpoints are left behind as training passes their steps. What is in memory is older, or of what the run
        has left.
        """
        self._before = step
        self.memory.clear()

    def publish(
        self, snapshot: Snapshot, about: About, announce: Callable[[LastCheckpoint], None] = lambda saved: None
    ) -> LastCheckpoint:
        """Make a checkpoint of a snapshot, and delete some of those that retention gives up: `tidy` deletes the rest.

        A snapshot may be older than the last checkpoint: the run resumes from the latter all the same.

        Args:
          snapshot: the state.
          about: the other fields of its manifest.
          announce: called as soon as it is on disk, before others are deleted.

        Raises:
          NoRoomError: there is too little space for it.
          StorageError: it could not be written; the existing checkpoints are intact.
          UnsoundError: the snapshot must not be saved.
        """
        step, started, at = snapshot.step, self._timer(), time.time()
        lock.require_in_place(self._rundir)
        with storage(f"write the checkpoint of step {step} in {self._rundir.path}"):
            manifest = self._write_with_room(snapshot, at, about)
            newest = self._before if self._before is not None and step < self._before else step
            self._given_up = self._name(newest)
        self._before = newest
        saved = LastCheckpoint(
            step=step,
            path=str(self._rundir.prefix(step)),
            reason=about.reason,
            seconds=self._timer() - started,
            bytes=manifest.size,
            at=time.time(),
        )
        announce(saved)
        self._note_best(manifest)
        self._finish_publish(step)
        self.tidy()
        return saved

    def _write_with_room(self, snapshot: Writable, at: float, about: About) -> Manifest:
        """Make room for a checkpoint, and write it.

        Room for what no other checkpoint has may be too little: what was the same may have changed.
        """
        stays = [] if self._has_policy else self._rundir.steps()
        facts: Any = {"before": self._step_before(snapshot.step), "trained_secs": about.trained_secs, "stays": stays}
        self._enter("room")
        has_room = self.space.make(snapshot, **facts)
        try:
            return self._write(snapshot, at, about, has_room=has_room)
        except OSError as error:
            if has_room or error.errno not in (errno.ENOSPC, errno.EDQUOT):
                raise
        self.space.make(snapshot, **facts, is_whole=True)
        return self._write(snapshot, at, about, has_room=True)

    def _write(self, snapshot: Writable, at: float, about: About, *, has_room: bool) -> Manifest:
        """Write all files of a checkpoint and publish it, or leave nothing of it.

        Args:
          snapshot, at, about: the state.
          has_room: whether there is room for all of its files; else it shares what it can.
        """
        staging = self._progress.begin(self._rundir.staging(snapshot.step))
        try:
            manifest = self._stage(snapshot, staging, at, about, has_room=has_room)
            lock.require_in_place(self._rundir)  # it may have taken long
            self._publish(manifest, staging)
        except OSError:
            if lock.is_in_place(self._rundir):
                self._files.restore_aside(snapshot.step)
                self._forget_half_published(staging)
            raise
        finally:
            if lock.is_in_place(self._rundir):  # otherwise the folder belongs to another run
                _remove_staging(staging)
        return manifest

    def write_to_memory(self, snapshot: Snapshot, about: About, moved: Callable[[int], None]) -> Manifest:
        """Write a snapshot to memory, between two checkpoints; see `MemoryTier.save`.

        Args:
          snapshot: the state.
          about: the facts about its boundary.
          moved: called with the number of bytes done. What it raises ends the save, and this raises.
        """

        def both(size: int) -> None:
            self._progress.moved(size)
            moved(size)

        return self.memory.save(snapshot, about, self._before, both)

    def _take_from_memory(self) -> None:
        """Make a checkpoint of what a killed process had in memory, if it is the continuation of the newest one.

        Others are deleted for it as for a save, if the policy is known. A rollback that is under way has left it
        behind, and so has a program that has saved with a Saver of its own.
        """
        rundir, found = self._rundir, self.memory.newest()
        left_behind = (rundir.rollback_moves, rundir.rollback_returns)
        if found is None or any(map(safe_paths.exists, left_behind)) or self._names_programs_own():
            return
        self._before = next(iter(catalogue.resume_order(rundir)), None)
        if not self._has_only_minima_since(found.manifest.before) or (self._before or 0) >= found.step:
            return
        with storage(f"write the checkpoint of step {found.step} in {rundir.path}"):
            try:
                self._write_with_room(found, found.manifest.at, found.about)
            except NoRoomError as error:
                raise StorageError(
                    f"step {found.step} is in memory, where the process that was killed left it, and {rundir.path} has "
                    f"no room for its {text.size(error.needed)}. Free some space on that file system; or remove "
                    f"{found.folder.parent} to resume from the last checkpoint."
                ) from None
            self._write_state_file(found.step)
        self._finish_publish(found.step)
        self.memory.clear()
        log.info(
            "step %d was in memory when the process was killed, and is a checkpoint now",
            found.step,
            extra={"event": "checkpoint", "step": found.step, "reason": found.about.reason},
        )

    def _has_only_minima_since(self, before: int | None) -> bool:
        """Return whether all checkpoints since that of a step are minima, which are known and saved later."""
        step = self._before
        while step != before:
            found = self._files.manifest(step) if step is not None else None
            if found is None or found.reason not in (MINIMUM, LOWEST):
                return False
            step = found.before
        return True

    def _note_best(self, new: Manifest) -> None:
        """Note a checkpoint that is better than all that there are."""
        best = self.policy.best
        if best is None or (badness := best.badness(new.metrics)) is None:
            return
        others = [best.badness(metrics) for step, metrics in self._files.metrics().items() if step != new.step]
        known = [other for other in others if other is not None]
        if known and badness < min(known):
            run_events.add(
                self._rundir, EventKind.BEST, f"{best.metric} {new.metrics[best.metric]:.4g}", step=new.step, at=new.at
            )

    def tidy(self) -> bool:
        """Delete a bounded number of the checkpoints that retention gave up after the last save.

        Returns:
          Whether there are more.
        """
        batch, self._given_up = self._given_up[:BATCH], self._given_up[BATCH:]
        try:
            if batch and lock.is_in_place(self._rundir) and not self._files.delete(batch):
                assert self._before is not None
                self._write_state_file(self._before)
        except (OSError, StorageError) as error:
            self._given_up = []
            self._warn_untidy(error)
        return bool(self._given_up)

    def clean(self) -> None:
        """Remove what a killed save or deletion left behind, and put back what it had set aside.

        What was in memory becomes a checkpoint.

        Raises:
          StorageError: a file cannot be written or removed.
        """
        lock.require_in_place(self._rundir)
        with storage(f"clean {self._rundir.path}"):
            self._files.finish_deletions()
        for staging in self._rundir.stagings():
            log.info("removing what an interrupted save left: %s", staging.name, extra={"event": "clean"})
            with storage(f"clean {staging}"):
                self._forget_half_published(staging)
                safe_paths.remove_tree(staging)
        with storage(f"clean {self._rundir.path}"):
            lines = self._rundir.lines
            of_lines = safe_paths.starting_with(lines, "") if safe_paths.is_folder(lines) else []
            for folder in (self._rundir.path, *filter(safe_paths.is_folder, of_lines)):
                remove_temporaries(folder)
        self._take_from_memory()

    # ------------------------------------------------------------------ a publish

    def _stage(self, snapshot: Writable, staging: Path, at: float, about: About, *, has_room: bool) -> Manifest:
        """Write all files of a checkpoint, its manifest among them, and put them on disk."""
        self._enter("stage")
        _remove_staging(staging)
        safe_paths.make_folder(staging)
        self._enter("write")
        prefix = staging / self._rundir.prefix(snapshot.step).name
        linked = list[str]()

        def earlier(digest: str, path: Path) -> bool:
            is_linked = self._files.link(digest, path, any_copy=not has_room)
            linked.extend([path.name] if is_linked else [])
            return is_linked

        digests = snapshot.write(prefix, self._progress.moved, earlier)
        files = [path for path in safe_paths.starting_with(staging, "") if safe_paths.is_file(path)]
        for path in files:
            self._enter("fsync")
            fsync_file(path)
        records = manifests.records(staging, digests, self._progress.moved, lambda: self._enter("record"))
        self.written = sum(record.bytes for name, record in records.items() if name not in linked)
        before = self._step_before(snapshot.step)
        manifest = Manifest(**vars(about), step=snapshot.step, at=at, files=records, before=before)
        self._enter("describe")
        write_durable(staging / self._rundir.manifest(snapshot.step).name, manifest.to_bytes())
        return manifest

    def _step_before(self, step: int) -> int | None:
        """Return the step of the checkpoint before one of this step; unchanged if that step is saved again."""
        if self._before == step:
            again = self._files.manifest(step)
            return again.before if again is not None else None
        return self._before if self._before is not None and self._before < step else None

    def _publish(self, manifest: Manifest, staging: Path) -> None:
        """Rename a staged checkpoint into the run directory: its files, then its manifest, then `checkpoint`."""
        folder = self._rundir.path
        final = self._rundir.manifest(manifest.step)
        if safe_paths.exists(final):  # the run went back, or what it saves changed without a step
            self._files.set_aside(manifest.step)
        for name in manifest.files:
            self._enter("rename")
            safe_paths.rename(staging / name, folder / name)
        fsync_directory(folder)
        self._enter("publish")
        safe_paths.rename(staging / final.name, final)
        fsync_directory(folder)
        self._files.remember(manifest)

    def _write_state_file(self, named: int, without: Collection[int] = ()) -> None:
        """Write `checkpoint`, without the checkpoints that are kept for another reason than being new.

        A program that uses TensorFlow alone deletes those that it lists, beyond what its own Saver keeps.
        """
        self._enter("name")
        steps = sorted(set(self._rundir.steps()).difference(without) | self._programs_own())
        older = [step for step in steps if step <= named]
        listed = older[-self.policy.keep_last :] + [step for step in steps if step > named]
        write_atomic(self._rundir.checkpoint_state, StateFile(named, tuple(listed)).to_bytes(self._rundir.basename))

    def _names_programs_own(self) -> bool:
        """Return whether `checkpoint` names one that a program saved itself."""
        name = checkpoint_state.named(self._rundir.checkpoint_state)
        if name is None or safe_paths.exists(self._rundir.path / f"{name}.json"):
            return False
        return any(safe_paths.exists(self._rundir.path / each) for each in (name, f"{name}.index"))

    def _programs_own(self) -> set[int]:
        """Return the steps that a program saved with a Saver of its own, which has listed them, and will delete
        them."""
        run = self._rundir
        listed = [run.step_of(name) for name in checkpoint_state.listed(run.checkpoint_state)]
        there = [step for step in listed if step is not None and safe_paths.exists(run.index(step))]
        return {step for step in there if not safe_paths.exists(run.manifest(step))}

    def name(self, step: int) -> None:
        """Name a checkpoint in `checkpoint`, from which the next start resumes.

        Raises:
          StorageError: it cannot be written.
        """
        with storage(f"write {self._rundir.checkpoint_state}"):
            self._write_state_file(step)

    def _name(self, current: int) -> list[int]:
        """Name the checkpoint that exists now in `checkpoint`. Returns those that retention gives up.

        Those are not listed there any more: writing that file once instead of twice saves two fsyncs. If the file
        cannot be written, and the next start finds this checkpoint all the same, that is logged, and the next save
        writes the file. If the next start would not find it, since the run had gone back or the save before could not
        write the file either, the save has failed, and leaves nothing.
        """
        try:
            given_up = self._files.deletable(current)
            self._write_state_file(current, without=given_up)
        except (OSError, StorageError) as error:
            if catalogue.resume_order(self._rundir)[:1] != [current]:
                self._files.delete([current])
                self._files.restore_aside(current)
                raise
            log.warning("%s does not name step %d yet: %s", self._rundir.checkpoint_state, current, error)
            return []
        return given_up

    def _finish_publish(self, current: int) -> None:
        """Delete the checkpoint of the same step that this one replaced."""
        try:
            self._files.restore_aside(current)
        except (OSError, StorageError) as error:
            self._warn_untidy(error)

    def _warn_untidy(self, error: Exception) -> None:
        log.warning(
            "cannot delete old files in the run directory %s: %s",
            self._rundir.path,
            error,
            extra={"event": "retention"},
        )

    def adopt(self, step: int) -> None:
        """Give a manifest to a checkpoint that has none, or that differs from its manifest.

        Raises:
          StorageError: the manifest cannot be written.
        """
        prefix = self._rundir.prefix(step)
        ours = (self._rundir.manifest(step).name, self._rundir.pin(step).name)
        found = safe_paths.starting_with(self._rundir.path, f"{prefix.name}.")
        files = [path for path in found if path.name not in ours and safe_paths.is_file(path)]
        with storage(f"adopt {prefix}"):
            for path in files:
                fsync_file(path)
            records = {path.name: FileRecord.of(path) for path in files}
            at = max(each.st_mtime for path in files if (each := safe_paths.lstat(path)) is not None)
            manifest = Manifest("adopted", step=step, at=at, files=records)
            index = self._rundir.index(step).name
            before = self._files.manifest(step) if safe_paths.exists(self._rundir.manifest(step)) else None
            if before is not None and before.files.get(index) == records.get(index):  # its values are the same
                manifest = replace(before, files=records)
            write_atomic(self._rundir.manifest(step), manifest.to_bytes())
        self._files.remember(manifest)
        log.info("adopted %s, which a program saved itself", prefix, extra={"event": "adopt", "step": step})

    def keep_for_now(self, step: int | None) -> None:
        """Do not delete this checkpoint, until this is called with another one or with None."""
        self._files.keep_for_now(step)
        self._given_up = [each for each in self._given_up if each != step]

    def move(self, step: int, source: Path, target: Path) -> None:
        """Move a checkpoint, whose manifest is set aside, between the run directory and another folder.

        A call that a kill has cut short may be repeated.

        Raises:
          OSError: it cannot be moved.
        """
        self._given_up = []
        self._files.move_between(step, source, target)

    def quarantine(self, step: int, why: str) -> None:
        """Move a checkpoint that does not verify out of the way, and say why.

        Raises:
          StorageError: it cannot be moved.
        """
        folder = self._rundir.quarantine
        with storage(f"move the checkpoint of step {step} to {folder}"):
            folder = self._files.move(step, folder)
        log.warning(
            "the checkpoint of step %d does not verify and is now in %s: %s",
            step,
            folder,
            why,
            extra={"event": "quarantine", "step": step},
        )
        run_events.add(self._rundir, EventKind.QUARANTINE, why, step=step)

    def _forget_half_published(self, staging: Path) -> None:
        """Remove the data, if the process died between renaming the data and renaming the manifest.

        The staged manifest names the files, so that nothing is ever deleted that this store did not write.
        """
        for path in safe_paths.starting_with(staging, f"{self._rundir.basename}-"):
            if path.suffix != ".json" or safe_paths.exists(self._rundir.path / path.name):
                continue
            found = manifests.sound(path)
            for name in found.files if found is not None else ():
                safe_paths.remove(self._rundir.path / name, missing_ok=True)


def _remove_staging(staging: Path) -> None:
    """Remove a staging folder as far as possible: a save creates it again, and a start removes the rest."""
    with contextlib.suppress(OSError):
        safe_paths.remove_tree(staging)
