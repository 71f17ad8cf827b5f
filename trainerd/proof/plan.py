"""The plan of interruptions. Pure."""

from __future__ import annotations

import enum
import random
from collections.abc import Sequence
from dataclasses import dataclass


class InterruptionKind(enum.StrEnum):
    """The ways in which a run is interrupted."""

    PAUSE = "pause"
    KILL = "SIGKILL"


@dataclass(frozen=True)
class Marks:
    """The steps at which a run without a stop evaluates or ends an epoch, before its last one.

    Attributes:
      evaluations: the steps at which it evaluates.
      epochs: the steps at which an epoch ends.
    """

    evaluations: Sequence[int] = ()
    epochs: Sequence[int] = ()


@dataclass(frozen=True)
class Interruption:
    """One interruption.

    Attributes:
      step: the boundary of the request.
      kind: how.
      delay: the time from that boundary to a kill, in steps: it comes in the middle of something.
      in_evaluation: whether it comes in the evaluation at that step.
      latest: the step at which a kill comes if it has not come before: the run is over there.
    """

    step: int
    kind: InterruptionKind
    delay: float = 0.0
    in_evaluation: bool = False
    latest: int = 0


def plan(steps: int, count: int, seed: int, marks: Marks = Marks()) -> list[Interruption]:
    """Return interruptions at random boundaries of a run of so many steps, in order; pauses and kills alternate.

    One of them comes in an evaluation, and one is a pause past the end of an epoch. This holds if the run has these and
    the count allows it.

    Args:
      steps: how long the run is.
      count: the number of interruptions; at most the number of boundaries before the last step.
      seed: the same seed gives the same plan.
      marks: where the run evaluates, and where its epochs end.
    """
    rng = random.Random(seed)
    boundaries = range(1, steps)
    evaluated = rng.choice(inside) if (inside := [each for each in marks.evaluations if each in boundaries]) else None
    past = [each for each in boundaries if marks.epochs and each > marks.epochs[0] and each != evaluated]
    later = rng.choice(past) if past else None
    wanted = [each for each in (evaluated, later) if each is not None][:count]
    others = [each for each in boundaries if each not in wanted]
    at = sorted([*wanted, *rng.sample(others, min(count - len(wanted), len(others)))])
    # A kill goes back to the checkpoint before it, which may be of before the end of the epoch.
    shift = 1 if later in wanted and at.index(later) % 2 else 0
    kinds = [InterruptionKind.PAUSE, InterruptionKind.KILL]
    return [
        Interruption(
            step,
            kind := kinds[(index + shift) % 2],
            rng.random() * 10 if kind is InterruptionKind.KILL else 0.0,
            in_evaluation=step == evaluated,
            latest=steps,
        )
        for index, step in enumerate(at)
    ]
