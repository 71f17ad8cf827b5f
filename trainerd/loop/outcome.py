"""How training ends."""

from __future__ import annotations

from dataclasses import dataclass

from trainerd.config.schema import Config
from trainerd.rundir.state import Phase


@dataclass(frozen=True)
class Outcome:
    """How training ended.

    Attributes:
      phase: what it left the run in.
      why: for a person.
      by_job: whether the job itself ended it, with its data or its epochs: then no option has it train for longer.
    """

    phase: Phase
    why: str
    by_job: bool = False


class Paused(SystemExit):
    """A program was asked to pause, and its last step is on disk: it ends with code 0, unless it catches this.

    Raised by `fit`, since what comes after it in a program takes the model for trained; and where a program that was
    asked to pause begins another session in the same run directory.
    """

    def __init__(self) -> None:
        super().__init__(0)


def reached(config: Config, step: int, metrics: dict[str, float]) -> Outcome | None:
    """Whether a run with these figures is at the end that its config sets."""
    target = config.parsed_target()
    if target is not None and target.is_met_by(metrics):
        return Outcome(Phase.FINISHED, f"the target {target} is reached at step {step}")
    if config.max_steps is not None and step >= config.max_steps:
        how = "is reached" if step == config.max_steps else f"is passed: {step} steps are done already"
        return Outcome(Phase.FINISHED, f"max_steps = {config.max_steps} {how}")
    return None
