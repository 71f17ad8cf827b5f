"""The interval between saves: the shortest that keeps their cost under a share of the time. Pure: time is given."""

from __future__ import annotations

from dataclasses import dataclass, field

from trainerd.loop.schedule import ScheduleMark

MAX_SECS = 3600.0
_WEIGHT = 0.5  # of the newest measurement
_MOST = 4.0  # times the expected cost, which one measurement may be
_LEAST_COST = 0.01  # seconds


@dataclass
class SaveBudget:
    """The cost of saves of one kind, and the seconds between two that it allows.

    Args:
      max_overhead: the share of the time that they may cost, such as 0.01. 0: none are made.
      first_secs: the seconds before the first one, whose cost is not known.
      min_secs: the least seconds between two.

    Attributes:
      cost: seconds that one costs, smoothed; None before the first.
    """

    max_overhead: float
    first_secs: float
    min_secs: float
    cost: float | None = None

    def allow(self, max_overhead: float) -> None:
        """Let saves cost this share of the time from now on."""
        self.max_overhead = max_overhead

    def learn(self, lost: float) -> None:
        """Take note of the seconds that the loop has lost by one.

        What else has stopped the loop meanwhile counts too, and the first saves take longer than those after them: no
        measurement counts for more than a few times of what was expected.
        """
        expected = self.first_secs * self.max_overhead if self.cost is None else self.cost
        self.cost = (1 - _WEIGHT) * expected + _WEIGHT * min(lost, _MOST * max(expected, _LEAST_COST))

    @property
    def secs(self) -> float:
        """The interval; 0 if none are made."""
        if not self.max_overhead:
            return 0.0
        return (
            self.first_secs if self.cost is None else min(MAX_SECS, max(self.min_secs, self.cost / self.max_overhead))
        )


@dataclass
class Cadence:
    """Measures what each save costs the loop.

    The cost is what the loop lost: the time from the boundary at which a save began to the first one after it ended,
    less what the steps done meanwhile take while nothing is saved.

    Args:
      quiet_since: the boundary since which nothing has been saved.

    Attributes:
      disk: the budget of checkpoints.
      memory: the budget of saves to memory.
    """

    quiet_since: ScheduleMark
    disk: SaveBudget = field(default_factory=lambda: SaveBudget(0.01, first_secs=10.0, min_secs=60.0))
    memory: SaveBudget = field(default_factory=lambda: SaveBudget(0.01, first_secs=2.0, min_secs=1.0))
    _began: tuple[SaveBudget, ScheduleMark] | None = None
    _per_step: float | None = None

    def begin(self, mark: ScheduleMark) -> None:
        """Record that training begins at this boundary, and that nothing is being saved."""
        self.quiet_since = mark

    def begins(self, budget: SaveBudget, mark: ScheduleMark) -> None:
        """Record that a save of this budget begins at this boundary."""
        steps = mark.step - self.quiet_since.step
        if steps > 0 and mark.now > self.quiet_since.now:
            self._per_step = (mark.now - self.quiet_since.now) / steps
        self._began = budget, mark

    def ended(self, mark: ScheduleMark, *, is_made: bool) -> None:
        """Record the first boundary after the end of the save that began last.

        Args:
          mark: the boundary.
          is_made: whether it was made. One that was not does not show what a save costs.
        """
        began, self._began, self.quiet_since = self._began, None, mark
        if began is None or self._per_step is None or not is_made:
            return
        budget, start = began
        budget.learn(max(0.0, mark.now - start.now - (mark.step - start.step) * self._per_step))

    @property
    def is_saving(self) -> bool:
        """True if a save has begun and not ended."""
        return self._began is not None
