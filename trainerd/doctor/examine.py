"""Examines everything, one subject after the other."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import psutil

from trainerd.doctor import (
    checkpoints,
    clock,
    disk,
    filesystem,
    fsync,
    gpu,
    memory,
    permissions,
    systemd,
    units,
    versions,
)
from trainerd.doctor.facts import Facts
from trainerd.doctor.finding import Finding, warning
from trainerd.errors import TrainerdError


def examine(facts: Facts) -> Iterator[Finding]:
    """Yield every finding about a run. Nothing is written; a subject that cannot be examined is a finding too."""
    properties = systemd.show(facts.service)
    checks: dict[str, Callable[[], Iterator[Finding]]] = {
        disk.SPACE: lambda: disk.check(facts),
        filesystem.SUBJECT: lambda: filesystem.check(facts),
        fsync.SUBJECT: lambda: fsync.check(facts),
        permissions.SUBJECT: lambda: permissions.check(facts, properties),
        checkpoints.SUBJECT: lambda: checkpoints.check(facts),
        clock.SUBJECT: lambda: clock.check(facts),
        units.SUBJECT: lambda: units.check(facts, properties),
        memory.SUBJECT: lambda: memory.check(facts, properties),
        versions.SUBJECT: lambda: versions.check(facts),
        gpu.SUBJECT: lambda: gpu.check(facts, properties),
    }
    for subject, check in checks.items():
        try:
            yield from check()
        except (OSError, psutil.Error, TrainerdError) as error:
            yield warning(subject, f"it cannot be looked at: {error}", "look as the user that trains, or as root.")
