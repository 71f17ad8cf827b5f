"""A service: something that is done at boundaries, on a schedule."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from trainerd.supervisor.schedule import Mark, Schedule


@dataclass
class Service:
    """What is done, when, and when it was done last.

    Attributes:
      name: for messages.
      action: called on the loop's thread, at a boundary. Returns after how many seconds it is to be tried again,
        where it could not be done, and None where it was.
      schedule: may be set again at any time.
      last: the boundary at which it was called last; at first, the one at which training began.
      retry_at: when it is to be tried again, on the clock of the marks.
    """

    name: str
    action: Callable[[], float | None]
    schedule: Schedule
    last: Mark
    retry_at: float = math.inf

    @property
    def next_time(self) -> float:
        """When the clock makes it due; infinity for never."""
        return min(self.schedule.next_time(self.last), self.retry_at)

    @property
    def next_step(self) -> float:
        """At which step it is due; infinity for none."""
        return self.schedule.next_step(self.last)

    def is_due(self, mark: Mark) -> bool:
        """Whether it is due at a boundary."""
        return mark.now >= self.next_time or mark.step >= self.next_step

    def run(self, mark: Mark) -> None:
        """Do it."""
        retry = self.action()
        self.last = mark
        self.retry_at = math.inf if retry is None else mark.now + retry
