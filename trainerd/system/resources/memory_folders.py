"""Folders in memory, whose files outlive the process and not the machine."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import psutil

from trainerd.errors import StorageError
from trainerd.system.durable_files import free_bytes, storage
from trainerd.system.resources import control_groups, mounts
from trainerd.text import size

VARIABLE = "TRAINERD_MEMORY_DIR"
_KINDS = ("tmpfs", "ramfs")
_SHARE = 0.5  # of what is free, which may be taken
_LEFT = 0.1  # of the limit of a control group, which is left


def candidates() -> list[Path]:
    """Return the folders that this process may use, the preferred one first. They need not exist.

    That is one in the folder that the environment names, in the runtime directory of the unit, or those of the user.
    Shared memory is not for a unit: that of trainerd's own goes with each start.
    """
    if (given := os.environ.get(VARIABLE)) is not None:
        return [Path(given) / f"trainerd-{os.geteuid()}"] if given else []
    if of_unit := os.environ.get("RUNTIME_DIRECTORY"):  # systemd removes it at the unit's stop
        return [Path(of_unit.split(":")[0]) / "trainerd-memory"]
    of_user = os.environ.get("XDG_RUNTIME_DIR")
    return [*([Path(of_user) / "trainerd-memory"] if of_user else []), Path("/dev/shm") / f"trainerd-{os.geteuid()}"]


def made(folder: Path) -> Path:
    """Make one of these folders, if it is missing. Returns its path without links.

    Raises:
      StorageError: it is not in memory, cannot be made, or may be used by others.
    """
    with storage(f"make {folder}"):
        parent = _safe_parent(folder)
        (parent / folder.name).mkdir(mode=0o700, exist_ok=True)
    return required(folder)


def required(folder: Path) -> Path:
    """Require that one of these folders is there, and is of this user alone. Returns its path without links.

    Raises:
      StorageError: it is not.
    """
    with storage(f"read {folder}"):
        folder = _safe_parent(folder) / folder.name
        found = folder.lstat()
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.geteuid() or found.st_mode & 0o077:
        raise StorageError(f"{folder} is not a folder of this user alone. Remove it, or set {VARIABLE}.")
    mount = mounts.holding(folder)
    if mount is None or mount.kind not in _KINDS:
        kind = mount.kind if mount is not None else "an unknown file system"
        raise StorageError(f"{folder} is not in memory: it is on {kind}. Set {VARIABLE} to a folder of a tmpfs.")
    return folder


def _safe_parent(folder: Path) -> Path:
    """Return the folder that one of these is in, if nobody else can exchange its entries.

    Raises:
      StorageError: somebody can.
    """
    parent = folder.parent.resolve()
    found = parent.stat()
    is_shared = found.st_mode & 0o022 and not found.st_mode & stat.S_ISVTX
    if found.st_uid not in (0, os.geteuid()) or is_shared:
        raise StorageError(f"other users may change what is in {parent}. Set {VARIABLE} to a folder of your own.")
    return parent


def require_room(folder: Path, needed: int, *, used: int) -> None:
    """Require that files in a folder may take memory: half of what is free at most.

    Args:
      folder: the folder.
      needed: how many bytes they are to have.
      used: how many of those they have already.

    Raises:
      StorageError: they may not.
    """
    with storage(f"read {folder}"):
        free = min(free_bytes(folder), psutil.virtual_memory().available) + used
    need = f"two copies of the state need {size(needed)}"
    if needed > _SHARE * free:
        raise StorageError(f"{need}, and no more than half of the {size(free)} that are free in {folder} may be used.")
    headroom, limit = control_groups.memory_headroom()
    if headroom < limit and headroom - (needed - used) < _LEFT * limit:
        raise StorageError(f"{need}, and of the memory limit of {size(limit)} only {size(headroom)} are left.")
