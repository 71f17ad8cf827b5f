"""Finds the step at which a run went wrong: a loss that is not a number, or that is far above what it was. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from trainerd.config.schema import TroubleConfig
from trainerd.loop.contract import Steps
from trainerd.loop.minima.valleys import WARM_UP, Valleys

LOSS = "loss"


@dataclass(frozen=True)
class BadTurn:
    """A run that went wrong.

    Attributes:
      first: the first bad step.
      last: the last bad step.
      what: what was seen, for a message.
      action: what is to be done: "stop", "rollback" or "skip".
    """

    first: int
    last: int
    what: str
    action: str


def bad_turn(
    steps: Steps, before: Valleys, config: TroubleConfig, smoothing: int, *, stops_on_nan: bool
) -> BadTurn | None:
    """Return the bad turn in these steps; None if nothing went wrong.

    Args:
      steps: what was run since the boundary before.
      before: what was known of the loss there.
      config: what counts as a spike, and what is to be done.
      smoothing: the time constant with which the loss is smoothed, in steps.
      stops_on_nan: whether a loss that is not a number is trouble.
    """
    if LOSS not in steps.names or not len(steps.rows):
        return None
    import numpy as np  # which the daemon's parent does without

    losses = steps.rows[:, list(steps.names).index(LOSS)]
    is_finite = np.isfinite(losses)
    if stops_on_nan and not is_finite.all():
        index = int(np.argmin(is_finite))
        first = steps.first + index
        return BadTurn(first, steps.last_step, f"the loss became {losses[index]} in step {first}", config.on_nan)
    if config.on_spike == "ignore" or before.count < WARM_UP * smoothing:
        return None
    high = before.average + config.spike_deviations * before.deviation + 1e-12 * abs(before.average)
    bad = np.flatnonzero(losses > high)
    if not len(bad):
        return None
    first, last = steps.first + int(bad[0]), steps.first + int(bad[-1])
    what = f"the loss jumped to {losses[bad[0]]:.4g} in step {first}, and was {before.average:.4g} before, smoothed"
    return BadTurn(first, last, what, config.on_spike)
