"""Disks that fill up, and runs whose memory grows: the notices that are due, from numbers that are passed in."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from trainerd.rundir.state import State
from trainerd.text import printable, seconds, size
from trainerd.watch.delivery.notice import Notice
from trainerd.watch.trend import Trend

SAMPLE_SECS = 60.0
# How long a trend must have lasted: a run that begins grows for a while, until the oldest checkpoints are deleted.
_LEAST_SECS, _MOST_SECS = 600.0, 7200.0
_GROWTH = 0.1  # of a run's memory, the least that is reported
_DAY = 86400.0


class Disks:
    """The disks of the runs.

    Args:
      hours: one that is full within so long is reported.
      free: the bytes that may be written on the disk of a folder.
      disk: which disk a folder is on.
    """

    def __init__(self, hours: float, free: Callable[[Path], int], disk: Callable[[Path], int]) -> None:
        self._hours, self._free, self._disk = hours, free, disk
        self._trends: dict[int, Trend] = {}

    def check(self, folders: Mapping[str, Path], timer: float, now: float) -> list[Notice]:
        """Look once; every `SAMPLE_SECS`.

        Args:
          folders: the run directory of each run that trains, by its name.
          timer: seconds on a clock that is never set.
          now: seconds since 1970 (UTC).
        """
        places: dict[int, tuple[str, Path, int]] = {}
        for name, path in folders.items():
            try:
                places.setdefault(self._disk(path), (name, path, self._free(path)))
            except OSError:
                continue  # it is gone
        self._trends = {disk: self._trends.get(disk, Trend()) for disk in places}
        return [notice for disk, place in places.items() for notice in self._look_at(disk, *place, timer, now)]

    def _look_at(self, disk: int, run: str, path: Path, free: int, timer: float, now: float) -> Iterator[Notice]:
        trend = self._trends[disk]
        trend.add(timer, free)
        rate = trend.per_sec()
        if rate is None or rate >= 0 or not _is_soon(free / -rate, self._hours, trend):
            return
        title = f"the disk of {run} is full in {seconds(free / -rate)} at the present rate"
        said = f"{size(free)} are free, and {size(-rate * 3600)} an hour are written: {path}"
        yield Notice("disk", run, f"disk {disk} {int(now // _DAY)}", now, printable(title), printable(said))


class Memory:
    """The memory of the runs.

    Args:
      hours: a run that fills the machine's within so long is reported.
      available: the bytes that the machine can still give.
    """

    def __init__(self, hours: float, available: Callable[[], int]) -> None:
        self._hours, self._available = hours, available
        self._trends: dict[tuple[str, float], Trend] = {}  # of each process

    def check(self, states: Mapping[str, State], timer: float, now: float) -> list[Notice]:
        """Look once; every `SAMPLE_SECS`.

        Args:
          states: the state of each run that trains, by its name.
          timer: seconds on a clock that is never set.
          now: seconds since 1970 (UTC).
        """
        runs = {(name, state.create_time): state for name, state in states.items()}
        self._trends = {process: self._trends.get(process, Trend()) for process in runs}
        return [notice for process, state in runs.items() for notice in self._look_at(process, state, timer, now)]

    def _look_at(self, process: tuple[str, float], state: State, timer: float, now: float) -> Iterator[Notice]:
        trend, run = self._trends[process], process[0]
        trend.add(timer, state.memory_bytes)
        rate = trend.per_sec()
        if rate is None or rate <= 0 or trend.growth() < _GROWTH:
            return
        left = self._available() / rate
        if not _is_soon(left, self._hours, trend):
            return
        title = f"{run}: its memory grows, and fills the machine's in {seconds(left)}"
        said = f"It has {size(state.memory_bytes)}, and {size(rate * 3600)} more each hour."
        key = f"memory {state.create_time} {int(now // _DAY)}"
        yield Notice("memory", run, key, now, printable(title), said)


def _is_soon(left: float, hours: float, trend: Trend) -> bool:
    """Return whether to report this: what comes soon is reported after a short trend, the rest after a long one.

    Args:
      left: seconds until there is nothing left.
      hours: within how many that is reported.
      trend: what it is concluded from.
    """
    return left <= hours * 3600 and trend.secs >= min(_MOST_SECS, max(_LEAST_SECS, left / 2))
