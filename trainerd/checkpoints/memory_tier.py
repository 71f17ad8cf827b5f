"""The memory tier: the newest state of a run in memory, from which a start resumes after the process was killed.

It is written as a checkpoint is, without an fsync, to a tmpfs. It outlives the process, and not the machine. There are
two slots: one is whole while the other is written. A slot is whole if its manifest and its files verify.

Saves to memory between those on disk are the idea of Gemini (SOSP 2023): https://doi.org/10.1145/3600006.3613145
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import shutil
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from functools import partial
from pathlib import Path

import xxhash

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
from trainerd.system.threads import Background

log = logging.getLogger(__name__)

_BOOT = Path("/proc/sys/kernel/random/boot_id")
_SLOTS = ("0", "1")
_ABOUT = "run.json"
ORPHANS_SECS = 5.0  # to read the directories of other runs: the file system of one may hang
_NAME = "state"  # what the names of its files begin with, whatever the step


@dataclass(frozen=True)
class _Owner:
    """The run whose state is in a folder: in one boot of the machine, and in one run directory.

    Attributes:
      run_id: its identifier.
      boot_id: that of the boot.
      logdir: the real path of the run directory.
      device: the number of the file system that holds it.
    """

    run_id: str
    boot_id: str
    logdir: str
    device: int = field(default=0, compare=False)

    @property
    def folder(self) -> str:
        """The name of its folder. A copy of a run directory has the identifier of the original, and another path."""
        return f"{self.run_id}-{xxhash.xxh3_64_hexdigest(os.fsencode(self.logdir))}"


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
          StorageError: no folder has room for it. The state that is in memory already stays.
          UnsoundError: the snapshot must not be saved.
        """
        try:
            return self._save(snapshot, about, before, moved)
        except StorageError:
            if self._folder is not None and not self._folder.is_dir():  # somebody has removed it
                self._folder = None
            raise

    def _save(self, snapshot: Snapshot, about: About, before: int | None, moved: Callable[[int], None]) -> Manifest:
        at, name = time.time(), _SLOTS[self._count % len(_SLOTS)]
        if self._folder is None:
            self._folder = self._make(len(_SLOTS) * snapshot.size)
        slot, needed = self._folder / name, len(_SLOTS) * max(snapshot.size, *self._sizes.values())
        memory_folders.require_room(self._folder, needed, used=sum(self._sizes.values()))
        with storage(f"write the state of step {snapshot.step} to {slot}"):
            safe_paths.make_folder(slot, exist_ok=True)
            for path in safe_paths.starting_with(slot, ""):  # from here on the slot is not whole
                if not path.name.startswith(f"{_NAME}."):  # its manifest, and what a save that failed has left
                    safe_paths.remove_tree(path)
            known, self._files = self._files, {path: each for path, each in self._files.items() if path.parent != slot}
            digests = snapshot.write(
                slot / _NAME, moved, lambda digest, path: known.get(path) == digest and safe_paths.is_file(path)
            )
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

    def _make(self, needed: int) -> Path:
        """Make the folder of this run in the first candidate that has room for so many bytes."""
        if (owner := self._owner()) is None:
            raise StorageError("the run has no identifier yet.")
        error = StorageError(f"{memory_folders.VARIABLE} is empty.")
        for candidate in self._candidates():
            try:
                base = memory_folders.made(candidate)
                removal = Background("trainerd-orphans")
                removal.submit(partial(_remove_orphans, base))
                removal.close(ORPHANS_SECS)
                memory_folders.require_room(base, needed, used=0)
            except StorageError as found:
                error = found
                continue
            self._sizes, self._files = dict.fromkeys(_SLOTS, 0), {}
            folder = base / owner.folder
            with storage(f"make {folder}"):
                if safe_paths.exists(folder):
                    safe_paths.remove_tree(folder)
                safe_paths.make_folder(folder)
                with open_new(folder / _ABOUT) as file:
                    file.write(json.dumps(vars(owner)).encode())
            return folder
        raise error

    def _owner(self) -> _Owner | None:
        """Return this run, as it is known in this boot; None if it was not started yet."""
        state = read_state(self._rundir.state)
        if state is None or not state.run_id.isalnum():
            return None
        path = os.path.realpath(self._rundir.path)
        with storage(f"read {path}"):
            return _Owner(state.run_id, _boot_id(), path, Path(path).stat().st_dev)

    def _folders(self) -> list[Path]:
        """Return the folders that an earlier process of this run may have left. What others may have made is none."""
        found = list[Path]()
        if (owner := self._owner()) is not None:
            for candidate in self._candidates():
                with contextlib.suppress(StorageError):
                    folder = memory_folders.required(candidate) / owner.folder
                    found += [folder] if read_json(folder / _ABOUT, _Owner) == owner else []
        return found

    def newest(self) -> StoredState | None:
        """Return the newest state in memory that verifies, of this run, in this boot; None if there is none."""
        slots = [folder / name for folder in self._folders() for name in _SLOTS]
        found = [each for slot in slots if (each := _read(slot)) is not None]
        for stored in sorted(found, key=lambda each: -each.step):  # the clock may have been set in between
            with contextlib.suppress(DamagedError):
                manifests.verify(stored.manifest, stored.folder)
                return stored
        return None

    def clear(self) -> None:
        """Remove it: the disk has what it had, or the run has gone back before it."""
        for folder in self._folders():
            try:
                safe_paths.remove_tree(folder)
            except OSError as error:
                log.warning("cannot remove %s: %s", folder, error, extra={"event": "memory"})
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
    """Remove the states of runs whose directory was removed, or made again, or that are from before a reboot.

    What cannot be read stays: its disk may be away for now.
    """
    for folder in safe_paths.starting_with(base, ""):
        with contextlib.suppress(StorageError, OSError):
            owner = read_json(folder / _ABOUT, _Owner)
            if owner is not None and (owner.boot_id != _boot_id() or _is_gone(owner)):
                safe_paths.remove_tree(folder)


def _is_gone(owner: _Owner) -> bool:
    """Return whether a run directory was removed or made again. A file system that is not mounted may come back."""
    state = read_state(RunDirectory(Path(owner.logdir)).state)
    if state is not None:
        return state.run_id != owner.run_id
    logdir = Path(owner.logdir)
    nearest = next(each for each in (logdir, *logdir.parents) if each.exists())
    return nearest != logdir and nearest.stat().st_dev == owner.device


def _boot_id() -> str:
    with contextlib.suppress(OSError):
        return _BOOT.read_text().strip()
    return ""
