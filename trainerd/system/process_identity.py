"""Tells whether a pid is still the same process, also after a reboot."""

from __future__ import annotations

import psutil


def process_identity(pid: int) -> tuple[float, float]:
    """A process's create time and the machine's uptime at that moment, both in seconds.

    Raises:
      psutil.Error: there is no such process.
    """
    created = psutil.Process(pid).create_time()
    return created, created - psutil.boot_time()


def is_process(pid: int, uptime_at_start: float) -> bool:
    """Whether `pid` is alive and is the process that started at that uptime, in seconds."""
    try:
        if psutil.Process(pid).status() == psutil.STATUS_ZOMBIE:
            return False
        # The kernel counts start times in hundredths, and the boot time in whole seconds.
        return abs(process_identity(pid)[1] - uptime_at_start) < 1.5
    except (psutil.Error, ValueError):
        return False
