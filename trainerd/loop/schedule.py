"""When something is to be done, apart from what: a pure function of step and time.

The separation is that of `periodic_actions` in Common Loop Utils (google/CLU).
"""

from __future__ import annotations

import math
from dataclasses import dataclass


@dataclass(frozen=True)
class Mark:
    """A boundary: its global step, and its time in seconds on a clock that is never set."""

    step: int
    now: float


@dataclass(frozen=True)
class Schedule:
    """Every so many seconds, every so many steps, whichever comes first. 0 stands for never.

    Steps count from 0, not from the last time: what is due every 100 steps is due at 100, 200, 300, also after
    a pause at 150; unless `since_last` says that they count from the last time.
    """

    secs: float = 0.0
    steps: int = 0

    since_last: bool = False

    def next_time(self, last: Mark) -> float:
        """When it is due by the clock; infinity where the clock does not matter."""
        return last.now + self.secs if self.secs > 0 else math.inf

    def next_step(self, last: Mark) -> float:
        """At which step it is due; infinity where steps do not matter."""
        if self.steps <= 0:
            return math.inf
        return last.step + self.steps if self.since_last else (last.step // self.steps + 1) * self.steps
