"""Forks: a new run directory that begins at a checkpoint of another."""

from __future__ import annotations

import json
import os
import shutil
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path

from trainerd.checkpoints import manifest as manifests
from trainerd.checkpoints.checkpoint_state import StateFile
from trainerd.checkpoints.manifest import DamagedError, Manifest
from trainerd.errors import StorageError, UsageError
from trainerd.history.lines import checkpoints_of
from trainerd.history.rollback import RollbackTarget, require_target
from trainerd.rundir.paths import RunDirectory, logdir_mistake
from trainerd.system import safe_paths
from trainerd.system.durable_files import open_new, read_json, storage, write_durable
from trainerd.system.regular_files import open_to_read
from trainerd.system.staging import put_in_place, require_free, staged

_PIECE = 1 << 20  # bytes that are copied at a time


@dataclass(frozen=True)
class Origin:
    """The origin of a forked run; the content of `fork.json`.

    Attributes:
      logdir: the run directory that it was forked from.
      step: the step at which it begins.
      line: the earlier line of that run, if the checkpoint was of one; else None.
      at: when it was forked, in seconds since 1970 (UTC).
      changes: the keys of the config that were set, with their values in TOML.
    """

    logdir: str
    step: int
    line: int | None
    at: float
    changes: dict[str, str] = field(default_factory=dict)


def fork(
    rundir: RunDirectory,
    target: RollbackTarget,
    folder: Path,
    changes: Mapping[str, str],
    *,
    clock: Callable[[], float] = time.time,
) -> RunDirectory:
    """Make a run directory that begins at a checkpoint. It is put in place as a whole, or not at all.

    The files are hard links where the file system has them, since no checkpoint's file is ever written to again.

    Args:
      rundir: the run directory of the checkpoint.
      target: the checkpoint.
      folder: the new run directory, which must not exist or be empty.
      changes: see `Origin`.
      clock: seconds since 1970 (UTC).

    Raises:
      UsageError: there is no such checkpoint, or the folder is not empty.
      StorageError: it could not be made.
    """
    if mistake := logdir_mistake(folder):
        raise UsageError(mistake)
    require_free(folder)
    found = require_target(rundir, target)
    source = rundir if target.line is None else checkpoints_of(rundir, target.line)
    new = RunDirectory(folder, rundir.basename)
    origin = Origin(str(rundir.path), target.step, target.line, clock(), dict(changes))
    with storage(f"make {folder}"), staged(folder) as staging:
        _fill(RunDirectory(staging, rundir.basename), source, found, origin)
        put_in_place(staging, folder)
    return new


def origin_of(rundir: RunDirectory) -> Origin | None:
    """Return the origin of a forked run; None if the run was not forked."""
    return read_json(rundir.origin, Origin)


def _fill(staging: RunDirectory, source: RunDirectory, found: Manifest, origin: Origin) -> None:
    """Put the files of a checkpoint into a folder, its manifest and what it was forked from."""
    for name in found.files:
        if manifests.is_needed(name) or safe_paths.exists(source.path / name):
            _link(source.path / name, staging.path / name)
    own = replace(found, before=None)
    try:
        manifests.verify(own, staging.path)
    except DamagedError as error:  # retention has deleted it meanwhile
        raise StorageError(f"the checkpoint of step {found.step} cannot be forked: {error}") from error
    write_durable(staging.manifest(found.step), own.to_bytes())
    write_durable(staging.checkpoint_state, StateFile(found.step, (found.step,)).to_bytes(staging.basename))
    write_durable(staging.origin, json.dumps(asdict(origin), indent=1).encode() + b"\n")
    if "entry" in origin.changes:
        write_durable(staging.accept_job, b"")


def _link(source: Path, target: Path) -> None:
    """Have a file in two folders; copy it if it is another user's, who could change it later, or if links are not
    possible."""
    found = safe_paths.lstat(source)
    if found is not None and found.st_uid == os.geteuid() and safe_paths.link(source, target):
        return
    with open_to_read(source) as content, open_new(target) as file:
        shutil.copyfileobj(content, file, _PIECE)
