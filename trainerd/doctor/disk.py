"""Disk space and inodes for the checkpoints to come."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import replace

from trainerd import text
from trainerd.config.schema import CheckpointConfig
from trainerd.doctor.facts import Facts
from trainerd.doctor.finding import Finding, problem, warning, well
from trainerd.system.durable_files import free_bytes, total_bytes

_BESIDE = 3  # files beside those that a manifest names: itself, the results of evaluations, a pin
_SOON_SECS = 30 * 86400.0
_FREE_IT = "free some space there, or set a smaller `checkpoint.keep_last`, or another `logdir` on a larger disk."


def check(facts: Facts) -> Iterator[Finding]:
    """Check the file system of the run directory."""
    found = os.statvfs(facts.folder)
    free = free_bytes(facts.folder)
    newest = facts.newest
    if newest is None:
        yield well(f"{text.size(free)} are free; what a checkpoint needs is known after the first one")
        return
    config = facts.config.checkpoint
    fit = int(config.max_disk_share * total_bytes(facts.folder) / max(newest.size, 1))
    to_come = checkpoints_to_come(config, len(facts.rundir.steps()), len(facts.rundir.pinned()), fit)
    yield space(free, newest.size, to_come)
    yield from filling(config, free - to_come * newest.size, newest.size)
    of_inodes = inodes(found.f_favail if found.f_files else None, len(newest.files), to_come)
    yield replace(of_inodes, subject="inodes")


def checkpoints_to_come(config: CheckpointConfig, there: int, pinned: int, fit: int) -> int:
    """Return how many more checkpoints there will be at once than now, at most, with the one that is being written.

    Args:
      config: the rules of retention.
      there: how many there are.
      pinned: how many of those are pinned, and stay beside the others.
      fit: how many take `max_disk_share` of the disk.
    """
    kept = config.keep_last + pinned
    kept += config.keep_best if config.best is not None else 0
    kept += config.keep_minima if config.minima else 0
    kept += max(0, min(config.keep_hourly + config.keep_daily, fit - kept))
    return max(1, kept + 1 - there)


def space(free: int, size: int, to_come: int) -> Finding:
    """Return the finding on whether the checkpoints to come fit.

    Args:
      free: bytes.
      size: bytes of the newest checkpoint.
      to_come: how many more there will be.
    """
    needed = to_come * size
    room = f"{_count(to_come, f' of {text.size(size)}')} to come, and {text.size(free)} are free"
    if free < size:
        return problem(f"not even the next checkpoint fits: {room}", _FREE_IT)
    if free < needed:
        return problem(f"the disk is full after {free // max(size, 1)} more: {room}", _FREE_IT)
    return well(room)


def filling(config: CheckpointConfig, left: int, size: int) -> Iterator[Finding]:
    """Yield a finding if checkpoints that are kept permanently fill the disk soon; `left` and `size` are in bytes."""
    if not config.keep_every_hours or not size or left < 0:
        return
    seconds = (left // size) * config.keep_every_hours * 3600
    if seconds < _SOON_SECS:
        yield warning(
            f"checkpoint.keep_every_hours = {config.keep_every_hours:g} keeps one of {text.size(size)} each time for "
            f"good: the disk is full after {text.seconds(seconds)} of training",
            "set it higher, or free some space.",
        )


def inodes(available: int | None, files: int, to_come: int) -> Finding:
    """Return the finding on whether the file system has inodes for their files.

    Args:
      available: how many more files may be made; None if the file system does not count them.
      files: how many the newest checkpoint has.
      to_come: how many more checkpoints there will be.
    """
    if available is None:
        return well("the file system does not count them")
    needed = to_come * (files + _BESIDE)
    room = f"{available:,} are free, and {_count(to_come, f' with {needed:,} files')} to come"
    if available < needed:
        return problem(room, "delete files that nobody needs: `df -i` and `du --inodes` show where they are.")
    return well(room)


def _count(checkpoints: int, described: str) -> str:
    return f"1 checkpoint{described} is" if checkpoints == 1 else f"{checkpoints} checkpoints{described} are"
