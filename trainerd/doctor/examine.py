"""Examines everything, one subject after the other."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import psutil

from trainerd.doctor import checkpoints, clock, disk, filesystem, fsync, gpu, memory, permissions, units, versions
from trainerd.doctor.facts import Facts
from trainerd.doctor.finding import Finding, warning
from trainerd.errors import TrainerdError

_CHECKS = {
    "disk space": disk.check,
    "file system": filesystem.check,
    "fsync": fsync.check,
    "permissions": permissions.check,
    "checkpoints": checkpoints.check,
    "clock": clock.check,
    "unit": units.check,
    "memory": memory.check,
    "versions": versions.check,
    "GPU": gpu.check,
}


def examine(facts: Facts) -> Iterator[Finding]:
    """Yield every finding about a run. Nothing is written; a subject that cannot be examined is a finding too."""
    for subject, check in _CHECKS.items():
        try:
            for found in check(facts):
                yield replace(found, subject=found.subject or subject)
        except (OSError, psutil.Error, TrainerdError) as error:
            found = warning(f"it cannot be checked: {error}", "check as the user that trains, or as root.")
            yield replace(found, subject=subject)
