"""Deletes the checkpoints that retention gives up, manifest first, and moves pinned ones aside."""

from __future__ import annotations

import contextlib
import itertools
import logging
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from trainerd.checkpoints import evaluations, retention
from trainerd.checkpoints import manifest as manifests
from trainerd.checkpoints.manifest import DamagedError, Manifest
from trainerd.checkpoints.retention import Point, Policy
from trainerd.errors import DataError
from trainerd.rundir.paths import RunDirectory
from trainerd.system import safe_paths
from trainerd.system.durable_files import fsync_directory
from trainerd.system.safe_paths import require_no_link

_COPIES = 2  # of a file that checkpoints share
_FRESH_SECS = 86400.0  # after which another copy is written
log = logging.getLogger(__name__)


class CheckpointFiles:
    """Deletes checkpoints of one run directory, for the store.

    Args:
      rundir: where.
      policy: which checkpoints are kept at first; see `keep`.
      enter: called with the stage before a checkpoint is deleted.

    Attributes:
      looked_at: how many manifests were read and how many checkpoints deleted so far.
    """

    def __init__(self, rundir: RunDirectory, policy: Policy, enter: Callable[[str], None]) -> None:
        self.policy = policy
        self.looked_at = 0
        self._rundir = rundir
        self._enter = enter
        self._manifests: dict[int, Manifest] = {}
        self._has_links = True  # as far as is known: whether a file can have a second name
        self._stays: set[int] = set()  # steps that are not deleted for now, beside the pinned ones

    def keep(self, policy: Policy) -> None:
        """Keep checkpoints by this policy from now on."""
        self.policy = policy

    def keep_for_now(self, step: int | None) -> None:
        """Do not delete this checkpoint; see `CheckpointStore.keep_for_now`."""
        self._stays = set() if step is None else {step}

    def remember(self, manifest: Manifest) -> None:
        """Record that a checkpoint was published."""
        self._manifests[manifest.step] = manifest

    def shared_bytes(self, manifest: Manifest) -> int:
        """Return how many bytes of a checkpoint are in files of others too, which the next one can share."""
        if not self._has_links:
            return 0
        others = [each for step, each in self._readable(self._rundir.steps()).items() if step != manifest.step]
        theirs = {record.xxh128 for each in others for record in each.files.values()}
        return sum(record.bytes for record in manifest.files.values() if record.xxh128 in theirs)

    def link(self, digest: str, target: Path, *, any_copy: bool) -> bool:
        """Give a file of an earlier checkpoint a second name.

        Two copies of it exist at least, and one that is not older than a day, if there is room. So damage to one file
        does not take all checkpoints.

        Args:
          digest: the 128-bit XXH3 of its content.
          target: the second name, which is free.
          any_copy: whether one copy is enough, whatever its age, because the disk has no room for a second one.

        Returns:
          Whether there is such a file, and the file system has second names.
        """
        copies = dict[int, tuple[int, float, Path]]()  # by inode: its last step, when it was written, a name
        for step, known in sorted(self._readable(self._rundir.steps()).items()):
            for name, record in known.files.items():
                if record.xxh128 == digest and (found := safe_paths.lstat(self._rundir.path / name)) is not None:
                    copies[found.st_ino] = (step, found.st_mtime, self._rundir.path / name)
        is_due = len(copies) < _COPIES or time.time() - max(at for _, at, _ in copies.values()) > _FRESH_SECS
        if not copies or (is_due and not any_copy):
            return False
        # In turns, so that each stays with one of the newest.
        self._has_links = safe_paths.link(min(copies.values())[2], target)
        return self._has_links

    def finish_deletions(self) -> None:
        """Finish the deletions that were cut short. Called at a start."""
        for step in self._rundir.asides():
            self.restore_aside(step)
        for step in self._rundir.deletions():
            self._finish_deletion(step)

    def deletable(self, current: int, *, upcoming: Point | None = None, stays: Sequence[int] = ()) -> list[int]:
        """Return the steps that may be deleted.

        Args:
          current: the checkpoint that was just published, or is still to be.
          upcoming: the facts about it in the second case; its call is found here.
          stays: other steps that must stay.
        """
        steps, pinned = self._rundir.steps_and_pins()
        found = self._readable([step for step in steps if upcoming is None or step != current])
        metrics = self._metrics(found)
        points = retention.points_of(found.values(), metrics)
        pinned |= set(stays) | self._stays
        if upcoming is not None:
            points.append(replace(upcoming, call=max((each.call for each in points), default=0)))
        return retention.deletable(points, current=current, policy=self.policy, pinned=pinned)

    def metrics(self) -> dict[int, Mapping[str, float]]:
        """Return the metrics of each checkpoint; those of its evaluation if it was evaluated."""
        return self._metrics(self._readable(self._rundir.steps()))

    def _readable(self, steps: Sequence[int]) -> dict[int, Manifest]:
        return {step: manifest for step in steps if (manifest := self.manifest(step)) is not None}

    def _metrics(self, found: Mapping[int, Manifest]) -> dict[int, Mapping[str, float]]:
        evaluated = self._rundir.evaluated() if self.policy.best is not None else set()
        return {
            step: evaluations.figures(self._rundir, each) if step in evaluated else each.metrics
            for step, each in found.items()
        }

    def manifest(self, step: int) -> Manifest | None:
        """Return a manifest, read once; None if it is damaged: the next start moves it to quarantine."""
        if step not in self._manifests:
            self.looked_at += 1
            try:
                self._manifests[step] = manifests.read(self._rundir.manifest(step))
            except (DamagedError, DataError):
                return None
        return self._manifests[step]

    def delete(self, steps: Sequence[int]) -> bool:
        """Delete checkpoints, their manifests first, with one fsync for all of them.

        Returns:
          Whether all are gone: one may have been pinned meanwhile.
        """
        for step in steps:
            self._enter("retain")
            with contextlib.suppress(FileNotFoundError):  # somebody has deleted it by hand
                safe_paths.rename(self._rundir.manifest(step), self._rundir.deletion(step))
        fsync_directory(self._rundir.path)
        return not [step for step in steps if not self._finish_deletion(step)]

    def _finish_deletion(self, step: int) -> bool:
        """Delete the files of a checkpoint whose manifest was put aside, also of one whose deletion was cut short."""
        self.looked_at += 1
        self._manifests.pop(step, None)
        aside = self._rundir.deletion(step)
        if safe_paths.exists(self._rundir.pin(step)) and not safe_paths.exists(self._rundir.manifest(step)):
            safe_paths.rename(aside, self._rundir.manifest(step))
            fsync_directory(self._rundir.path)
            return False
        with contextlib.suppress(DamagedError, DataError):
            names = manifests.read(aside).files
            for name in () if safe_paths.exists(self._rundir.manifest(step)) else names:
                safe_paths.remove(self._rundir.path / name, missing_ok=True)
        if not safe_paths.exists(self._rundir.manifest(step)):
            safe_paths.remove(self._rundir.evaluations(step), missing_ok=True)
        safe_paths.remove(aside, missing_ok=True)
        log.debug("deleted the checkpoint of step %d", step, extra={"event": "delete", "step": step})
        return True

    def set_aside(self, step: int) -> None:
        """Put this checkpoint aside until `restore_aside`, since another one of its step is to be published."""
        self._enter("retract")
        self.restore_aside(step)
        aside = self._rundir.aside(step)
        safe_paths.make_folder(aside)
        self._enter("retract")
        self.move(step, aside)
        self._enter("retract")
        fsync_directory(aside)
        fsync_directory(self._rundir.path)

    def restore_aside(self, step: int) -> None:
        """Put the checkpoint that was set aside back, if no other one of its step was published.

        If another one was, delete it; move a pinned one to a folder of its own.
        """
        aside = self._rundir.aside(step)
        if step not in self._rundir.asides():
            return
        self._enter("retract")
        if not safe_paths.exists(self._rundir.manifest(step)):
            self._put_back(step, aside)
        elif safe_paths.exists(aside / self._rundir.pin(step).name):
            paths = safe_paths.starting_with(aside, "")
            folder = _free_folder(self._rundir.replaced, paths)
            self._move_into(paths, folder)
            log.warning("step %d was pinned and was trained again. The old checkpoint is in %s", step, folder)
        safe_paths.remove_tree(aside)

    def _put_back(self, step: int, aside: Path) -> None:
        """Put back its files, and then its manifest: from then on it exists again."""
        name, manifest = self._rundir.prefix(step).name, aside / self._rundir.manifest(step).name
        self._manifests.pop(step, None)
        with contextlib.suppress(DamagedError, DataError):
            if all(safe_paths.exists(aside / f) for f in manifests.read(manifest).files if manifests.is_needed(f)):
                for path in safe_paths.starting_with(self._rundir.path, f"{name}."):  # of the other one
                    safe_paths.remove(path)
        self._move_into([path for path in safe_paths.starting_with(aside, "") if path != manifest], self._rundir.path)
        fsync_directory(self._rundir.path)
        if safe_paths.exists(manifest):
            self._move_into([manifest], self._rundir.path)
            fsync_directory(self._rundir.path)

    def move(self, step: int, folder: Path) -> Path:
        """Move all files of a checkpoint into a folder, its manifest first. Returns the folder, which `_free_folder`
        may change."""
        manifest, name = self._rundir.manifest(step), self._rundir.prefix(step).name
        others = [path for path in safe_paths.starting_with(self._rundir.path, f"{name}.") if path != manifest]
        folder = _free_folder(folder, [manifest, *others])
        if safe_paths.exists(manifest):
            self._move_into([manifest], folder)
            fsync_directory(self._rundir.path)
        self._move_into(others, folder)
        return folder

    def move_between(self, step: int, source: Path, target: Path) -> None:
        """Move all files of a checkpoint from one folder into another; see `CheckpointStore.move`."""
        self._manifests.pop(step, None)
        self._move_into(safe_paths.starting_with(source, f"{self._rundir.prefix(step).name}."), target)
        fsync_directory(target)
        fsync_directory(source)

    def _move_into(self, paths: Sequence[Path], folder: Path) -> None:
        if folder != self._rundir.path:
            safe_paths.make_folder(folder, exist_ok=True)
        for path in paths:
            safe_paths.rename(path, folder / path.name)


def _free_folder(folder: Path, paths: Sequence[Path]) -> Path:
    """Return the folder, or one within it if it has files of these names already, from an earlier time."""
    require_no_link(folder)
    for found in itertools.chain([folder], (folder / str(number) for number in itertools.count(2))):
        if not any(safe_paths.exists(found / path.name) for path in paths):
            break
    return found
