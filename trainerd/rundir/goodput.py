"""The goodput of a run: how its time was spent since its first start, and how much of it was training."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum


class Spent(StrEnum):
    """The kinds of time that a run spends."""

    TRAINING = "training"
    AGAIN = "trained again"
    SAVING = "saving"
    EVALUATING = "evaluating"
    STARTING = "starting"
    PAUSED = "paused"
    DOWN = "down"


@dataclass(frozen=True)
class Goodput:
    """The seconds that a run has spent, by kind.

    Attributes:
      seconds: for each kind that there was.
      steps_again: how many steps were trained again after a crash.
      known_until: the last step that an earlier process is known to have trained; what is trained up to there is
        trained again.
    """

    seconds: Mapping[str, float] = field(default_factory=dict)
    steps_again: int = 0
    known_until: int = 0

    def after(self, kind: Spent, seconds: float) -> Goodput:
        """Return the goodput so many seconds later, all spent on one kind."""
        if seconds <= 0:
            return self
        return replace(self, seconds={**self.seconds, kind: self.seconds.get(kind, 0.0) + seconds})

    def after_training(self, first: int, last: int, seconds: float) -> Goodput:
        """Return the goodput after some time of training.

        Args:
          first: the step at its beginning.
          last: the step at its end.
          seconds: how long it was.
        """
        share = self._again(first, last) / (last - first) if last > first else float(first < self.known_until)
        return self.after(Spent.AGAIN, seconds * share).after(Spent.TRAINING, seconds * (1 - share))

    def after_steps(self, first: int, last: int) -> Goodput:
        """Return the goodput after the steps from one boundary to another."""
        return replace(self, steps_again=self.steps_again + self._again(first, last))

    def _again(self, first: int, last: int) -> int:
        """Return the number of steps between two boundaries that an earlier process had trained."""
        return max(0, min(last, self.known_until) - first)

    def percent(self) -> dict[str, float]:
        """Return the share of each kind, with one decimal: they add up to 100.0. Empty before any time has passed."""
        total = sum(self.seconds.values())
        if total <= 0:
            return {}
        exact = {kind: self.seconds[kind] / total * 1000 for kind in Spent if kind in self.seconds}
        tenths = {kind: int(value) for kind, value in exact.items()}
        missing = 1000 - sum(tenths.values())
        for kind in sorted(exact, key=lambda kind: tenths[kind] - exact[kind])[:missing]:  # the largest remainders
            tenths[kind] += 1
        return {str(kind): value / 10 for kind, value in tenths.items()}
