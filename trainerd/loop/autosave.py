"""The interval between saves: the shortest that keeps their cost under a share of the time. Pure: time is given."""

from __future__ import annotations

from dataclasses import dataclass

from trainerd.loop.schedule import ScheduleMark

FIRST_SECS = 10.0  # before anything was measured
MIN_SECS = 1.0
MAX_SECS = 3600.0
_WEIGHT = 0.5  # of the newest measurement


@dataclass
class Cadence:
    """Measures what a checkpoint costs the loop, and says how many seconds are to lie between two.

    The cost is what the loop lost: the time from the boundary at which a save began to the first one after it ended,
    less what the steps done meanwhile take while nothing is saved.

    Args:
      max_overhead: the share of the time that saving may cost, such as 0.01.
      quiet_since: the boundary since which nothing has been saved.

    Attributes:
      cost: seconds that one checkpoint costs, smoothed; None before the first.
    """

    max_overhead: float
    quiet_since: ScheduleMark
    cost: float | None = None
    _began: ScheduleMark | None = None
    _per_step: float | None = None

    def allow(self, max_overhead: float) -> None:
        """Let saving cost this share of the time from now on."""
        self.max_overhead = max_overhead

    def begin(self, mark: ScheduleMark) -> None:
        """Record that training begins at this boundary, and that nothing is being saved."""
        self.quiet_since = mark

    def begins(self, mark: ScheduleMark) -> None:
        """Record that a save begins at this boundary."""
        steps = mark.step - self.quiet_since.step
        if steps > 0 and mark.now > self.quiet_since.now:
            self._per_step = (mark.now - self.quiet_since.now) / steps
        self._began = mark

    def ended(self, mark: ScheduleMark) -> None:
        """Record the first boundary after the end of the save that began last."""
        began, self._began, self.quiet_since = self._began, None, mark
        if began is None or self._per_step is None:
            return
        lost = max(0.0, mark.now - began.now - (mark.step - began.step) * self._per_step)
        self.cost = lost if self.cost is None else (1 - _WEIGHT) * self.cost + _WEIGHT * lost

    def failed(self, mark: ScheduleMark) -> None:
        """Record that the last save ended without a checkpoint: it does not show what a checkpoint costs."""
        self._began, self.quiet_since = None, mark

    @property
    def secs(self) -> float:
        """The interval."""
        return FIRST_SECS if self.cost is None else min(MAX_SECS, max(MIN_SECS, self.cost / self.max_overhead))

    @property
    def is_saving(self) -> bool:
        """True if a save has begun and not ended."""
        return self._began is not None
