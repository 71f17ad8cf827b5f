"""The schedule of a service: a pure function of step and time, apart from what the service does.

The separation is that of `periodic_actions` in Common Loop Utils (google/CLU).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True)
class ScheduleMark:
    """A boundary: its global step, and its time in seconds on a clock that is never set."""

    step: int
    now: float


@dataclass(frozen=True)
class Schedule:
    """Every so many seconds or every so many steps, whichever comes first. 0: never.

    Steps count from 0, not from the last time: what is due every 100 steps is due at 100, 200, 300, also after
    a pause at 150; unless `since_last` says that they count from the last time.
    """

    secs: float = 0.0
    steps: int = 0
    since_last: bool = False


@dataclass
class Service:
    """A service: its action, its schedule, and when it ran last.

    Attributes:
      name: for messages.
      action: called on the loop's thread, at a boundary.
      schedule: when it is due.
      last: the boundary at which it was called last; at first, the one at which training began.
      from_step: before this step it is not due.
      is_overdue: whether an earlier process left it undone at the restored step, and it is not done yet.
      is_programs: whether a program added it.
    """

    name: str
    action: Callable[[], None]
    schedule: Schedule
    last: ScheduleMark
    from_step: int = 0
    is_overdue: bool = False
    is_programs: bool = False

    @property
    def next_time(self) -> float:
        """The time at which it is due by the clock; infinity for never."""
        return self.last.now + self.schedule.secs if self.schedule.secs > 0 else math.inf

    @property
    def next_step(self) -> float:
        """The step at which it is due; infinity for none."""
        steps, last = self.schedule.steps, self.last.step
        if steps <= 0:
            return math.inf
        return last + steps if self.schedule.since_last else (last // steps + 1) * steps

    def is_due(self, mark: ScheduleMark) -> bool:
        """Return whether it is due at a boundary."""
        is_time = mark.now >= self.next_time or mark.step >= self.next_step
        return self.is_overdue or (mark.step >= self.from_step and is_time)

    def reschedule(self, schedule: Schedule) -> None:
        """Have it due by another schedule from now on."""
        self.schedule = schedule

    def run(self, mark: ScheduleMark) -> None:
        """Run it."""
        self.action()
        self.last, self.is_overdue = mark, False
