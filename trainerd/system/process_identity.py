"""Tells whether a pid is still the same process, also after a reboot."""

from __future__ import annotations

import psutil


def process_identity(pid: int) -> tuple[float, float]:
    """A process's create time and the machine's uptime at that moment, both in seconds.

    Raises:
      psutil.Error: there is no such process.
    """
    return _identity(psutil.Process(pid))


def is_process(pid: int, uptime_at_start: float) -> bool:
    """Whether `pid` is alive and is the process that started at that uptime, in seconds."""
    try:
        process = psutil.Process(pid)
        # The kernel counts start times in hundredths, and the boot time in whole seconds.
        is_same = abs(_identity(process)[1] - uptime_at_start) < 1.5
        return is_same and process.status() != psutil.STATUS_ZOMBIE
    except (psutil.Error, ValueError):
        return False


def _identity(process: psutil.Process) -> tuple[float, float]:
    created = process.create_time()
    return created, created - psutil.boot_time()
