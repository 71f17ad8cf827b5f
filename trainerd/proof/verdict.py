"""What a difference between two runs means. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from trainerd.config.schema import Config
from trainerd.proof.trace import Difference

_STARTS = (
    "What is built depends on something that is another at each start: the order of a set or of os.listdir (use "
    "sorted()), hash() of a text (PYTHONHASHSEED), the clock, the pid, or random numbers without a seed."
)


@dataclass(frozen=True)
class Evidence:
    """The facts about two runs that differ.

    Attributes:
      difference: the first one.
      interrupted_at: the step at which one of them was interrupted first.
      between_whole_runs: the first difference between two runs without interruptions; None if they are the same.
      builds_otherwise: whether the two runs built different graphs.
      pipeline: the stages of the input.
      warnings: the warnings of the job.
    """

    difference: Difference
    interrupted_at: int
    between_whole_runs: Difference | None
    builds_otherwise: bool
    pipeline: str
    warnings: Sequence[str]

    @property
    def is_of_each_start(self) -> bool:
        """Whether the runs differ without an interruption."""
        return self.between_whole_runs is not None or self.difference.step <= self.interrupted_at


def verdict(evidence: Evidence, config: Config) -> str:
    """The verdict, for a person: the first difference, and its likely cause."""
    found = evidence.difference
    if not evidence.is_of_each_start:
        return (
            f"the interrupted run is not the run without a stop. The first difference is at {found}.\n"
            "Two runs without a stop are the same, so something that decides the next step is not in the job's state: "
            f"a variable, a generator, a Python counter, an input that starts anew.{_warned(evidence)}"
        )
    if evidence.between_whole_runs is not None:
        first = (
            f"two runs without a stop are not the same either. The first difference is at {evidence.between_whole_runs}"
        )
    else:
        first = (
            f"two runs are not the same before either is interrupted, which was at step {evidence.interrupted_at}. The "
            f"first difference is at {found}"
        )
    return f"{first}.\nSo nothing can be said of interruptions: {_cause(evidence, config)}"


def _cause(evidence: Evidence, config: Config) -> str:
    if evidence.builds_otherwise:
        return f"the job builds something else at each start. {_STARTS}"
    found = evidence.between_whole_runs or evidence.difference
    if found.is_of_input:
        what = f"the input gives other batches each time. Its stages: {evidence.pipeline or 'not known'}."
    elif found.other is None:
        what = f"the batches and metrics are the same, and what the step has made of {found.name} is not."
    else:
        what = "the step makes something else of the same batch each time."
    if config.deterministic:
        return (
            f"{what} `deterministic = true` is set, so TensorFlow's own ops give the same: look at Python, at numbers "
            f"from outside of the job's state, and at the data.{_warned(evidence)}"
        )
    seed = "" if config.seed is not None else " and a `seed`"
    return (
        f"{what} Set `deterministic = true`{seed}, and see that the job draws no numbers from outside."
        f"{_warned(evidence)}"
    )


def _warned(evidence: Evidence) -> str:
    return "\nThe warnings above may say what." if evidence.warnings else ""
