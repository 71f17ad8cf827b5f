"""Finds the minima of a noisy loss. Pure: losses go in, verdicts come out, and the state is a handful of numbers.

The loss is smoothed exponentially. A valley's minimum is confirmed when the smoothed loss has risen above it by a
threshold. The next valley begins when the loss has fallen by as much from its highest point since. The threshold is a
share of the loss, or several times the noise that is left in the smoothed loss, whichever is more. So noise alone is
not a valley.
"""

from __future__ import annotations

import enum
import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

WARM_UP = 3  # times the smoothing steps, before the smoothed loss says anything
NOISE = 10.0  # standard deviations of the smoothed loss, from its lowest to its highest in millions of steps
_TAIL = 40  # times the smoothing steps: what is older weighs less than the last bit of a float


class Verdict(enum.Enum):
    """The result of a check of the loss."""

    NOTHING = "nothing"
    LOWEST = "lowest"  # this is the lowest boundary of the valley so far
    CONFIRMED = "confirmed"  # the lowest boundary of the valley was its minimum


@dataclass(frozen=True)
class Valleys:
    """Follows one loss.

    Attributes:
      count: how many finite losses were seen.
      average: the smoothed loss.
      square: the smoothed square of the loss.
      valley: the number of the present valley, or of the one that comes next.
      lowest: the smoothed loss at the lowest boundary of the valley; None before the first, and while the loss is high
        after a minimum.
      lowest_step: its step.
      highest: the highest smoothed loss since the last minimum, while the next valley has not begun; else None.
    """

    count: int = 0
    average: float = 0.0
    square: float = 0.0
    valley: int = 1
    lowest: float | None = None
    lowest_step: int = 0
    highest: float | None = None

    def seen(self, losses: NDArray[np.float64], smoothing: int) -> Valleys:
        """Return the state after these losses, one a step. Losses that are not finite are skipped.

        Args:
          losses: float64, shape [steps].
          smoothing: the time constant of the smoothing, in steps.
        """
        import numpy as np  # which the daemon's parent does without

        losses = losses[np.isfinite(losses)]
        if not len(losses):
            return self
        count, average, square = self.count, self.average, self.square
        if not count:
            average, square = float(losses[0]), float(losses[0] ** 2)
        tail = losses[-_TAIL * smoothing :]
        keep = 1.0 - 1.0 / smoothing
        weights = keep ** np.arange(len(tail) - 1, -1, -1, dtype=np.float64) / smoothing
        rest = keep ** len(losses)
        return replace(
            self,
            count=count + len(losses),
            average=rest * average + float(weights @ tail),
            square=rest * square + float(weights @ tail**2),
        )

    def looked_at(self, step: int, *, smoothing: int, prominence: float) -> tuple[Valleys, Verdict]:
        """Check the smoothed loss at a boundary.

        Args:
          step: of the boundary.
          smoothing: see `seen`.
          prominence: the least rise and fall that count, as a share of the loss.
        """
        if self.count < WARM_UP * smoothing:
            return self, Verdict.NOTHING
        now = self.average
        if self.highest is not None:  # above a minimum
            highest = max(self.highest, now)
            if now > highest - self._threshold(highest, smoothing, prominence):
                return replace(self, highest=highest), Verdict.NOTHING
            return replace(self, highest=None, lowest=now, lowest_step=step), Verdict.LOWEST
        if self.lowest is None or now < self.lowest:
            return replace(self, lowest=now, lowest_step=step), Verdict.LOWEST
        if now > self.lowest + self._threshold(self.lowest, smoothing, prominence):
            return replace(self, highest=now, lowest=None, valley=self.valley + 1), Verdict.CONFIRMED
        return self, Verdict.NOTHING

    @property
    def deviation(self) -> float:
        """The standard deviation of the loss around the smoothed loss."""
        return math.sqrt(max(0.0, self.square - self.average**2))

    def _threshold(self, loss: float, smoothing: int, prominence: float) -> float:
        noise = self.deviation / math.sqrt(2 * smoothing - 1)  # of an exponential average of independent numbers
        return max(prominence * abs(loss), NOISE * noise)
