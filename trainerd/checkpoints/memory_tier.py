"""The memory tier: the newest state of a run in memory, from which a start resumes after the process was killed.

It is written as a checkpoint is, without an fsync, to a tmpfs. It outlives the process, and not the machine. There are
two slots: one is whole while the other is written. A slot is whole if its manifest and its files verify.

Saves to memory between those on disk are the idea of Gemini (SOSP 2023): https://doi.org/10.1145/3600006.3613145
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from pathlib import Path

from trainerd.checkpoints import manifest as manifests
from trainerd.checkpoints.manifest import About, DamagedError, Manifest
from trainerd.checkpoints.snapshot import Earlier, Snapshot, no_earlier
from trainerd.errors import DataError, StorageError
from trainerd.rundir.paths import RunDirectory
from trainerd.rundir.state import read_state
from trainerd.system import safe_paths
from trainerd.system.durable_files import open_new, read_json, storage
from trainerd.system.regular_files import open_to_read
from trainerd.system.resources import memory_folders

_BOOT = Path("/proc/sys/kernel/random/boot_id")
_SLOTS = ("0", "1")
_NAME = "state"  # what the names of its files begin with, whatever the step


@dataclass(frozen=True)
class _Owner:
    """The run whose state is in a folder: in one boot of the machine, and in one run directory."""

    run_id: str
    boot_id: str
    logdir: str


class MemoryTier:
    """The memory tier of one run.

    Args:
      rundir: the run directory.
      candidates: the folders that it may be in; see `memory_folders.candidates`.
    """

    def __init__(self, rundir: RunDirectory, candidates: Callable[[], list[Path]] = memory_folders.candidates) -> None:
        self._rundir = rundir
        self._candidates = candidates
        self._folder: Path | None = None
        self._sizes = dict.fromkeys(_SLOTS, 0)  # bytes
        self._files: dict[Path, str] = {}  # the checksum of each data file that is whole
        self._count = 0

    @property
    def is_possible(self) -> bool:
        """True if there may be one: the environment does not turn it off."""
        return bool(self._candidates())

    def save(self, snapshot: Snapshot, about: About, before: int | None, moved: Callable[[int], None]) -> Manifest:
        """Write a snapshot to memory.

        Args:
          snapshot: the state.
          about: the facts about its boundary.
          before: the step of the newest checkpoint on disk; None if there is none.
          moved: called with the number of bytes done. What it raises ends the save, and this raises.

        Raises:
          StorageError: there is no folder or no room for it. What is in memory already stays.
          UnsoundError: the snapshot must not be saved.
        """
        try:
            return self._save(snapshot, about, before, moved)
        except StorageError:
            self._folder = None  # it may have been removed: the next save makes it again
            raise

    def _save(self, snapshot: Snapshot, about: About, before: int | None, moved: Callable[[int], None]) -> Manifest:
        at, name = time.time(), _SLOTS[self._count % len(_SLOTS)]
        folder = self._folder or self._make()
        needed = len(_SLOTS) * max(snapshot.size, *self._sizes.values())
        memory_folders.require_room(folder, needed, used=sum(self._sizes.values()))
        slot = folder / name
        with storage(f"write the state of step {snapshot.step} to {slot}"):
            safe_paths.make_folder(slot, exist_ok=True)
            for path in safe_paths.starting_with(slot, f"{_NAME}-"):  # from here on the slot is not whole
                safe_paths.remove(path)
            known, self._files = self._files, {path: each for path, each in self._files.items() if path.parent != slot}
            digests = snapshot.write(slot / _NAME, moved, lambda digest, path: known.get(path) == digest)
            self._files |= {slot / name: digest for name, digest in digests.items()}
            files = manifests.records(slot, digests, moved)
            saved = Manifest(**vars(about), step=snapshot.step, at=at, files=files, before=before)
            with open_new(slot / f"{_NAME}-{snapshot.step}.json") as file:
                file.write(saved.to_bytes())
        self._sizes[name], self._count = saved.size, self._count + 1
        return saved

    @property
    def folder(self) -> Path | None:
        """The folder that it is written to; None before the first save."""
        return self._folder

    def _make(self) -> Path:
        """Make the folder of this run, in the candidate with the most room."""
        owner, errors = self._owner(), list[StorageError]()
        found = list[tuple[int, Path]]()
        for candidate in self._candidates():
            try:
                made = memory_folders.made(candidate)
                found.append((os.statvfs(made).f_bavail, made))
            except (StorageError, OSError) as error:
                errors.append(StorageError(str(error)))
        if owner is None or not found:
            raise errors[0] if errors else StorageError("the run has no identifier yet.")
        base = max(found)[1]
        _remove_orphans(base)
        folder = base / owner.run_id
        self._sizes, self._files = dict.fromkeys(_SLOTS, 0), {}
        with storage(f"make {folder}"):
            if safe_paths.exists(folder):
                safe_paths.remove_tree(folder)
            safe_paths.make_folder(folder)
            with open_new(folder / "run.json") as file:
                file.write(json.dumps(vars(owner)).encode())
        self._folder = folder
        return folder

    def _owner(self) -> _Owner | None:
        """Return this run, as it is known in this boot; None if it was not started yet."""
        state = read_state(self._rundir.state)
        if state is None or not state.run_id.isalnum():
            return None
        return _Owner(state.run_id, _boot_id(), os.path.realpath(self._rundir.path))

    def _folders(self) -> list[Path]:
        """Return the folders that an earlier process of this run may have left."""
        if (owner := self._owner()) is None:
            return []
        folders = [each / owner.run_id for each in self._candidates()]
        return [each for each in folders if read_json(each / "run.json", _Owner) == owner]

    def newest(self) -> StoredState | None:
        """Return the newest state in memory that verifies, of this run, in this boot; None if there is none."""
        for folder in self._folders():
            found = [each for name in _SLOTS if (each := _read(folder / name)) is not None]
            for stored in sorted(found, key=lambda each: -each.manifest.at):
                with contextlib.suppress(DamagedError):
                    manifests.verify(stored.manifest, stored.folder)
                    return stored
        return None

    def clear(self) -> None:
        """Remove it: the disk has what it had, or the run has gone back before it."""
        for folder in self._folders():
            with storage(f"remove {folder}"):
                safe_paths.remove_tree(folder)
        self._folder = None


@dataclass(frozen=True)
class StoredState:
    """A state in memory, as the snapshot that a checkpoint is made of.

    Attributes:
      folder: where its files are.
      manifest: what they are.
    """

    folder: Path
    manifest: Manifest

    @property
    def step(self) -> int:
        """Its global step."""
        return self.manifest.step

    @property
    def size(self) -> int:
        """The bytes of its files."""
        return self.manifest.size

    @property
    def about(self) -> About:
        """The facts about its boundary."""
        return About(**{each.name: getattr(self.manifest, each.name) for each in fields(About)})

    def write(self, prefix: Path, moved: Callable[[int], None], earlier: Earlier = no_earlier) -> Mapping[str, str]:
        """Copy its files; see `Snapshot`."""
        digests = {}
        for name, record in self.manifest.files.items():
            target = prefix.with_name(prefix.name + name.removeprefix(_NAME))
            if not earlier(record.xxh128, target):
                with open_to_read(self.folder / name) as source, open_new(target) as copy:
                    shutil.copyfileobj(source, copy)
            digests[target.name] = record.xxh128
            moved(record.bytes)
        return digests


def _read(slot: Path) -> StoredState | None:
    """Return the state of a slot; None if it has no manifest that can be read."""
    for path in reversed(safe_paths.starting_with(slot, f"{_NAME}-")):
        with contextlib.suppress(DamagedError, DataError):
            return StoredState(slot, manifests.read(path))
    return None


def _remove_orphans(base: Path) -> None:
    """Remove the states of runs whose directory is gone, or that are from before a restart of the machine."""
    for folder in safe_paths.starting_with(base, ""):
        owner = read_json(folder / "run.json", _Owner)
        if owner is None:
            continue
        state = read_state(RunDirectory(Path(owner.logdir)).state)
        if owner.boot_id != _boot_id() or state is None or state.run_id != owner.run_id:
            with storage(f"remove {folder}"):
                safe_paths.remove_tree(folder)


def _boot_id() -> str:
    with contextlib.suppress(OSError):
        return _BOOT.read_text().strip()
    return ""
