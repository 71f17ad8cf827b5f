"""The manifest: what makes a checkpoint exist, and what its files are checked against."""

from __future__ import annotations

import errno
import hashlib
import json
import logging
import math
import os
import stat
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import msgspec

from trainerd.checkpoints.lineage import Change
from trainerd.config.fingerprint import Fingerprint
from trainerd.errors import DataError, StorageError
from trainerd.system import safe_paths
from trainerd.system.durable_files import is_damage, storage_error, xxh128
from trainerd.system.regular_files import MIB, read_regular

log = logging.getLogger(__name__)

FORMAT = 3
LIMIT = 16 * MIB  # a manifest has a line for each file and for each metric
MINIMUM = "minimum"  # the reason of a checkpoint of a minimum of the loss
LOWEST = "lowest"  # and of the lowest boundary of a valley from which the loss has not turned up yet
MEMORY = "memory"  # the reason of a state that was in memory when its process was killed
FINISH = "finish"  # the reason of a checkpoint with which a session has come to its own end


@dataclass(frozen=True)
class FileRecord:
    """One file of a checkpoint: its size in bytes and its 128-bit XXH3, as `xxhsum -H2` prints it."""

    bytes: int
    xxh128: str

    @classmethod
    def of(cls, path: Path, moved: Callable[[int], None] = lambda size: None) -> FileRecord:
        """Read a file and record it; `moved` is called with the number of bytes after each read."""
        return cls(safe_paths.size(path), xxh128(path, moved))


@dataclass(frozen=True)
class Minimum:
    """The minimum of the loss at the boundary of a checkpoint.

    Attributes:
      loss: the smoothed loss at that boundary.
      valley: the number of the valley in the run's life. Only the lowest checkpoint of a valley counts.
    """

    loss: float
    valley: int


@dataclass(frozen=True)
class About:
    """The facts about a boundary that are known when its snapshot is taken.

    Attributes:
      reason: why it is saved.
      metrics: the last value of each metric at that boundary.
      trained_secs: the seconds that the run had trained by then, in all its starts.
      fingerprint: what it was trained with; see `trainerd.config.fingerprint`.
      unfinished: the services that were due at that boundary, and that the next start does first.
      minimum: the smoothed loss, if no boundary of its valley that was checked before was lower; else None.
      valleys: what was known of the valleys of the loss; see `trainerd.loop.minima.valleys`.
      lineage: what was done to the run until then, and what is to be done to it later.
      measured: the step at which each metric was measured, of those that a step does not return.
    """

    reason: str
    metrics: dict[str, float] = field(default_factory=dict)
    trained_secs: float = 0.0
    fingerprint: Fingerprint = field(default_factory=dict)
    unfinished: tuple[str, ...] = ()
    minimum: Minimum | None = None
    valleys: Mapping[str, Any] = field(default_factory=dict)
    lineage: tuple[Change, ...] = ()
    measured: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Manifest(About):
    """One checkpoint: the facts about its boundary, and its files.

    Attributes:
      step: its global step.
      at: when its snapshot was taken, in seconds since 1970 (UTC).
      files: each file's name, in the run directory, to its record.
      before: the step of the checkpoint before it; None if there was none, or that is not known. What lies between
        the two was left behind when the run went back.
    """

    step: int
    at: float
    files: dict[str, FileRecord]
    before: int | None = None

    @property
    def size(self) -> int:
        """The size of all its files, in bytes."""
        return sum(record.bytes for record in self.files.values())

    def to_bytes(self) -> bytes:
        """Return the content of the manifest's file: JSON, with its own checksum as the last field."""
        content = {"format": FORMAT, "step": self.step, "at": self.at} | asdict(self)
        content["metrics"] = {k: v if math.isfinite(v) else None for k, v in self.metrics.items()}
        content["checksum"] = _checksum(content)
        return json.dumps(content, indent=1, allow_nan=False).encode() + b"\n"


class DamagedError(Exception):
    """A checkpoint does not verify. The message names the file and says why."""


def _checksum(content: dict[str, Any]) -> str:
    return hashlib.sha256(json.dumps(content, sort_keys=True, allow_nan=False).encode()).hexdigest()


def read(path: Path, *, checked: bool = True) -> Manifest:
    """Read a manifest.

    Args:
      path: the file.
      checked: whether its checksum is compared, which takes half of the time.

    Raises:
      DamagedError: it is not one.
      DataError: it is one of another version.
      StorageError: it cannot be read now.
    """
    try:
        content = read_regular(path, LIMIT)
    except OSError as error:
        raise _damage_or_trouble(error, path) from error
    return parse(content, path, checked=checked)


def parse(said: bytes, path: Path, *, checked: bool = True) -> Manifest:
    """Read the content of a manifest's file; see `read`.

    Args:
      said: the content.
      path: the file, whose name has the step.
      checked: see `read`.

    Raises:
      DamagedError, DataError: see `read`.
    """
    try:
        content = msgspec.json.decode(said)
        stated = content.pop("checksum")
        if checked and _checksum(content) != stated:
            raise DamagedError(f"{path.name}: its checksum does not match")
        if (written := content["format"]) == FORMAT:
            content["metrics"] = {k: math.nan if v is None else v for k, v in content["metrics"].items()}
            manifest = msgspec.convert(content, Manifest)
    except (msgspec.DecodeError, ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        raise DamagedError(f"{path.name}: not a manifest ({type(error).__name__})") from error
    if written != FORMAT:
        raise DataError(
            f"{path} has format {written}, and this trainerd reads format {FORMAT}: it was written by another version. "
            "Use that one, or choose another `logdir`."
        )
    if not path.name.endswith(f"-{manifest.step}.json"):
        raise DamagedError(f"{path.name}: it is the manifest of step {manifest.step}")
    if any("/" in name or "\0" in name or name in ("", ".", "..") for name in manifest.files):
        raise DamagedError(f"{path.name}: names a file outside the run directory")
    return manifest


def sound(path: Path, *, checked: bool = True) -> Manifest | None:
    """Read a manifest; see `read`. Returns None for one that is damaged, of another version, or deleted meanwhile."""
    try:
        return read(path, checked=checked)
    except (DamagedError, DataError):
        return None


def records(
    folder: Path,
    digests: Mapping[str, str],
    moved: Callable[[int], None],
    before_each: Callable[[], None] = lambda: None,
) -> dict[str, FileRecord]:
    """Return the records of all files in a folder.

    Args:
      folder: the folder.
      digests: the checksums that are known already, by the files' names.
      moved: called with the number of bytes that are read.
      before_each: called before each file.

    Raises:
      OSError: one cannot be read, or one that has a checksum is not there.
    """
    found = {}
    for path in [path for path in safe_paths.starting_with(folder, "") if safe_paths.is_file(path)]:
        before_each()
        known = digests.get(path.name)
        found[path.name] = FileRecord(safe_paths.size(path), known) if known else FileRecord.of(path, moved)
    if missing := sorted(digests.keys() - found.keys()):
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(folder / missing[0]))
    return found


def is_needed(name: str) -> bool:
    """Return whether a restore needs a file of a checkpoint: it does not need the graph of TensorFlow 1."""
    return not name.endswith(".meta")


def verify(manifest: Manifest, folder: Path) -> None:
    """Compare every file of a checkpoint with its record. The graph of TensorFlow 1, `.meta`, may have been deleted.

    Raises:
      DamagedError: the first file that is missing or differs.
      StorageError: a file cannot be read now.
    """
    for name, record in manifest.files.items():
        path = folder / name
        try:
            found = safe_paths.lstat(path)
            if found is None and not is_needed(name):
                log.warning("%s is missing; the checkpoint does not need it", path)
                continue
            if found is None or not stat.S_ISREG(found.st_mode):
                raise DamagedError(f"{name}: missing")
            if found.st_size != record.bytes:
                raise DamagedError(f"{name}: {found.st_size} bytes where {record.bytes} were written")
            if xxh128(path) != record.xxh128:
                raise DamagedError(f"{name}: its content is not what was written (XXH3)")
        except OSError as error:
            raise _damage_or_trouble(error, path) from error


def _damage_or_trouble(error: OSError, path: Path) -> DamagedError | StorageError:
    if is_damage(error):
        return DamagedError(f"{path.name}: {error.strerror}")
    return storage_error(error, f"read {path}")
