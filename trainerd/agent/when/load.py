"""Measures how many processor cores are kept busy by others than the agent's runs."""

from __future__ import annotations

import os
import time
from collections import deque
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from pathlib import Path

WINDOW_SECS = 60.0
_TICKS_PER_SEC = os.sysconf("SC_CLK_TCK")
_IDLE, _IOWAIT, _STEAL = 3, 4, 7  # of the fields in /proc/stat; nobody of this machine computes in these
_GUESTS = 8  # the fields from here on are contained in others


@dataclass(frozen=True)
class _Process:
    """One process: its parent, when it started, and its processor time with that of its children that have ended.

    All times are in ticks.
    """

    parent: int
    started: int
    ticks: int


class OthersLoad:
    """Measures the load of others: the processor time of the machine less that of the runs' processes.

    The kernel's load average contains the runs themselves, so by it a run would pause because it trains.

    Args:
      proc: the folder /proc.
      timer: seconds on a clock that is never set.
      average: the kernel's load average of the last minute.
    """

    def __init__(
        self,
        proc: Path = Path("/proc"),
        timer: Callable[[], float] = time.monotonic,
        average: Callable[[], float] = lambda: os.getloadavg()[0],
    ) -> None:
        self._proc, self._timer, self._average = proc, timer, average
        self._samples: deque[tuple[float, float]] = deque()  # when, and the others' ticks since the first
        self._busy = 0
        self._own: dict[tuple[int, int], int] = {}
        self._newest_start = 0

    def read(self, own: Collection[int]) -> float | None:
        """Return how many cores others kept busy, on average since the last minute or the first call.

        The first call returns the load average if no run trains, since that is then the others', or else None.

        Args:
          own: the processes of the runs; their children count as theirs.

        Raises:
          OSError, ValueError: the kernel does not say it.
        """
        now = self._timer()
        busy, processes = self._busy_ticks(), self._processes()
        used = own_ticks(processes, own)
        if self._samples and now - self._samples[-1][0] > WINDOW_SECS:
            self._samples.clear()
        total = 0.0
        if self._samples:
            ours = sum(max(0, ticks - self._before(root)) for root, ticks in used.items())
            total = self._samples[-1][1] + max(0, busy - self._busy - ours)
        self._samples.append((now, total))
        self._busy, self._own = busy, used
        self._newest_start = max((each.started for each in processes.values()), default=0)
        while len(self._samples) > 2 and now - self._samples[1][0] >= WINDOW_SECS:
            self._samples.popleft()
        began, before = self._samples[0]
        if now > began:
            return (total - before) / _TICKS_PER_SEC / (now - began)
        return None if used else self._average()

    def _before(self, root: tuple[int, int]) -> float:
        """Return the ticks of a run at the last call: none of one that has started since."""
        _, started = root
        return self._own.get(root, 0.0 if started > self._newest_start else float("inf"))

    def _busy_ticks(self) -> int:
        fields = [int(each) for each in (self._proc / "stat").read_text().partition("\n")[0].split()[1:]]
        return sum(fields[:_GUESTS]) - sum(fields[each] for each in (_IDLE, _IOWAIT, _STEAL))

    def _processes(self) -> dict[int, _Process]:
        """Return every process; see proc_pid_stat(5)."""
        found = dict[int, _Process]()
        for name in os.listdir(self._proc):
            if not name.isdecimal():
                continue
            try:
                fields = (self._proc / name / "stat").read_bytes().rpartition(b") ")[2].split()
            except OSError:  # it has ended
                continue
            if len(fields) > 19:
                ticks = sum(map(int, fields[11:15]))
                found[int(name)] = _Process(int(fields[1]), int(fields[19]), ticks)
        return found


def own_ticks(processes: Mapping[int, _Process], own: Collection[int]) -> dict[tuple[int, int], int]:
    """Return the processor time of each run with that of its children, by its pid and its start."""
    roots = {pid: pid for pid in own if pid in processes}

    def root_of(pid: int) -> int:
        """Return the run that a process is of; 0 if none."""
        if pid not in roots:
            roots[pid] = root_of(processes[pid].parent) if pid in processes else 0
        return roots[pid]

    found = {(pid, processes[pid].started): 0 for pid in roots}
    for pid, process in processes.items():
        if root := root_of(pid):
            found[root, processes[root].started] += process.ticks
    return found
