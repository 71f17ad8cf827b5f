"""Checks whether a pid is still the same process, also after a reboot, and lowers the priority of this one."""

from __future__ import annotations

import contextlib
import os
import select
import weakref
from collections.abc import Iterator
from io import FileIO

import psutil

_TICKS_PER_SEC = os.sysconf("SC_CLK_TCK")
_NICE = 10
_MOST = 4096  # bytes; the kernel writes some hundred
_DEAD = "ZX"  # it has ended, and its parent has not asked for its exit status


def process_identity(pid: int) -> tuple[float, float]:
    """Return a process's create time and the machine's uptime at that moment, both in seconds.

    Raises:
      OSError, psutil.Error: there is no such process.
    """
    return psutil.Process(pid).create_time(), _look(pid)[1]


def is_process(pid: int, uptime_at_start: float) -> bool:
    """Return whether `pid` is alive and is the process that started at that uptime, in seconds."""
    try:
        state, started = _look(pid)
    except OSError:
        return False
    # Earlier versions computed the uptime from the boot time, which the kernel counts in whole seconds.
    return state not in _DEAD and abs(started - uptime_at_start) < 1.5


class LiveProcess:
    """A process that was alive, and notices that it has ended at the cost of one system call.

    Args:
      pid, uptime_at_start: the process; see `is_process`.
    """

    def __init__(self, pid: int, uptime_at_start: float) -> None:
        self._identity = pid, uptime_at_start
        self._file: int | None = None
        with contextlib.suppress(OSError):  # it has ended, or the kernel is older than 5.3
            self._file = os.pidfd_open(pid)
            self._close = weakref.finalize(self, os.close, self._file)
        # Asked after that: the file is of this process, and of no other that has its number.
        self._has_ended = not is_process(pid, uptime_at_start)
        if self._has_ended and self._file is not None:
            self._close()

    def is_alive(self) -> bool:
        """Return whether it is still running."""
        if self._has_ended:
            return False
        if self._file is None:
            return is_process(*self._identity)
        end = select.poll()  # one for each call: several threads may ask
        end.register(self._file, select.POLLIN)
        if end.poll(0):
            self._has_ended = True
            self._close()  # who asks of many processes remembers many that have ended
        return not self._has_ended


def lineage(pid: int) -> Iterator[int]:
    """Yield a process, the one that started it, and so on, as far as they are seen from here."""
    while pid:
        try:
            fields = _fields(pid)
        except OSError:
            return
        yield pid
        pid = int(fields[1])


def _look(pid: int) -> tuple[str, float]:
    """Return a process's state, as a letter, and the machine's uptime when it started, in seconds.

    Raises:
      OSError: there is no such process.
    """
    fields = _fields(pid)
    return fields[0].decode(), int(fields[19]) / _TICKS_PER_SEC


def _fields(pid: int) -> list[bytes]:
    """Return what the kernel says of a process, from its state on.

    One small file, since a watcher checks each run every second; see proc_pid_stat(5).

    Raises:
      OSError: there is no such process.
    """
    with FileIO(f"/proc/{pid}/stat") as file:  # Path.read_bytes() takes three times as long
        return file.read(_MOST).rpartition(b") ")[2].split()


def be_modest() -> None:
    """Lower the priority of this process, and of those that it starts: a run that trains comes first."""
    os.nice(_NICE)
    psutil.Process().ionice(psutil.IOPRIO_CLASS_IDLE)
