"""The end of a run, and the reasons for it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from trainerd.config.schema import Config
from trainerd.errors import JobError
from trainerd.loop.contract import Steps
from trainerd.rundir.state import Phase


@dataclass(frozen=True)
class Outcome:
    """The way in which training ended.

    Attributes:
      phase: the phase that the run is left in.
      why: the reason, for a person.
      by_job: whether the job itself ended it, with its data or its epochs: no option makes it train for longer.
    """

    phase: Phase
    why: str
    by_job: bool = False

    def __str__(self) -> str:
        return self.why if self.why.startswith(self.phase) else f"{self.phase}: {self.why}"

    def reason(self, paused_by: str) -> str:
        """Return the reason, and what asked for a pause; empty if that is not known."""
        is_asked = self.phase is Phase.PAUSED and paused_by
        return self.why.replace(PAUSED.why, f"{PAUSED.why} ({paused_by})", 1) if is_asked else self.why


PAUSED = Outcome(Phase.PAUSED, "paused on request")
PAUSED_EARLY = Outcome(Phase.PAUSED, f"{PAUSED.why} before the first step; nothing had changed")
LOOP_ENDED = Outcome(Phase.FINISHED, "the program's loop has ended", by_job=True)
FIT_ENDED = Outcome(Phase.FINISHED, "`fit` has ended", by_job=True)
WITHOUT_SESSION = Outcome(Phase.FINISHED, "the program ended without opening a session", by_job=True)


class Paused(SystemExit):
    """A program was asked to pause, and its last step is on disk: it ends with code 0, unless it catches this.

    Raised by `fit`, since what comes after it in a program takes the model for trained; and where a program that was
    asked to pause begins another session in the same run directory.
    """

    def __init__(self) -> None:
        super().__init__(0)

    def __reduce__(self) -> tuple[Any, ...]:
        """Support pickle and copy: a process pool sends the exception of a worker to its parent."""
        return type(self), (), vars(self)


def reached(config: Config, step: int, metrics: dict[str, float]) -> Outcome | None:
    """Return the outcome of a run with these metrics, if it is at the end that its config sets; else None."""
    target = config.parsed_target()
    if target is not None and target.is_met_by(metrics):
        return Outcome(Phase.FINISHED, f"the target {target} is reached at step {step}")
    if config.max_steps is not None and step >= config.max_steps:
        how = "is reached" if step == config.max_steps else f"is below the present step, {step}"
        return Outcome(Phase.FINISHED, f"max_steps = {config.max_steps} {how}")
    return None


def after(steps: Steps) -> Outcome | None:
    """Return the outcome if the job itself ends with these steps; else None.

    Raises:
      JobError: the run has no step yet, and its dataset has no batch.
    """
    if steps.over:
        return Outcome(Phase.FINISHED, steps.over, by_job=True)
    if not steps.ended:
        return None
    if not steps.last_step:
        raise JobError("the dataset has no batches, so no step could run", step=0, sound=True)
    why = f"the dataset ended after step {steps.last_step}; end it with .repeat() to train for longer"
    return Outcome(Phase.FINISHED, why, by_job=True)


def abandoned(what: str, step: int, patience: float) -> Outcome:
    """Return the outcome of a pause that does not wait for the end of what is under way.

    Args:
      what: what that is, for a person.
      step: the step that was saved.
      patience: for how many seconds the pause waited for a step to end; 0 if what is under way is not a step.
    """
    if patience:
        return Outcome(Phase.PAUSED, f"{PAUSED.why}; {what} did not end for {patience:g} s, and was abandoned")
    return Outcome(
        Phase.PAUSED, f"{PAUSED.why}; {what} of step {step} was abandoned, and is made again at the next start"
    )


def going_back(target: str) -> Outcome:
    """Return the outcome of a run whose next start goes back to an earlier checkpoint."""
    return Outcome(Phase.PAUSED, f"{PAUSED.why}; the next start goes back to {target}")
