"""A service: something that is done at boundaries, on a schedule."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from trainerd.loop.schedule import Mark, Schedule


@dataclass
class Service:
    """What is done, when, and when it was done last.

    Attributes:
      name: for messages.
      action: called on the loop's thread, at a boundary.
      schedule: may be set again at any time.
      last: the boundary at which it was called last; at first, the one at which training began.
      from_step: before this step it is not due.
      is_owed: whether it was due where this process began, and is not done yet.
    """

    name: str
    action: Callable[[], None]
    schedule: Schedule
    last: Mark
    from_step: int = 0
    is_owed: bool = False

    @property
    def next_time(self) -> float:
        """When the clock makes it due; infinity for never."""
        return self.schedule.next_time(self.last)

    @property
    def next_step(self) -> float:
        """At which step it is due; infinity for none."""
        return self.schedule.next_step(self.last)

    def is_due(self, mark: Mark) -> bool:
        """Whether it is due at a boundary."""
        is_time = mark.now >= self.next_time or mark.step >= self.next_step
        return self.is_owed or (mark.step >= self.from_step and is_time)

    def run(self, mark: Mark) -> None:
        """Do it."""
        self.action()
        self.last, self.is_owed = mark, False
