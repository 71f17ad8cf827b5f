"""The plan of interruptions. Pure."""

from __future__ import annotations

import enum
import random
from dataclasses import dataclass


class Kind(enum.StrEnum):
    """How a run is interrupted."""

    PAUSE = "pause"
    KILL = "SIGKILL"


@dataclass(frozen=True)
class Interruption:
    """One interruption.

    Attributes:
      step: the boundary of the request.
      kind: how.
      delay: the time from that boundary to a kill, in steps: it comes in the middle of something.
    """

    step: int
    kind: Kind
    delay: float = 0.0


def plan(steps: int, count: int, seed: int) -> list[Interruption]:
    """Interruptions at random boundaries of a run of so many steps, pauses and kills by turns, in their order.

    Args:
      steps: how long the run is.
      count: the number of interruptions; at most the number of boundaries before the last step.
      seed: the same seed gives the same plan.
    """
    rng = random.Random(seed)
    at = sorted(rng.sample(range(1, steps), min(count, steps - 1)))
    kinds = [Kind.PAUSE, Kind.KILL]
    return [
        Interruption(step, kinds[index % 2], rng.random() * 10 if kinds[index % 2] is Kind.KILL else 0.0)
        for index, step in enumerate(at)
    ]
