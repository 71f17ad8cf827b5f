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
    looks: dict[str, Callable[[], Iterator[Finding]]] = {
        disk.SPACE: lambda: disk.look(facts),
        filesystem.SUBJECT: lambda: filesystem.look(facts),
        fsync.SUBJECT: lambda: fsync.look(facts),
        permissions.SUBJECT: lambda: permissions.look(facts, properties),
        checkpoints.SUBJECT: lambda: checkpoints.look(facts),
        clock.SUBJECT: lambda: clock.look(facts),
        units.SUBJECT: lambda: units.look(facts, properties),
        memory.SUBJECT: lambda: memory.look(facts, properties),
        versions.SUBJECT: lambda: versions.look(facts),
        gpu.SUBJECT: lambda: gpu.look(facts, properties),
    }
    for subject, look in looks.items():
        try:
            yield from look()
        except (OSError, psutil.Error, TrainerdError) as error:
            yield warning(subject, f"it cannot be looked at: {error}", "look as the user that trains, or as root.")
