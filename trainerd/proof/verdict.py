"""The meaning of a difference between two runs. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from trainerd.config.schema import Config
from trainerd.history.run_job import is_program
from trainerd.proof.plan import InterruptionKind, Marks
from trainerd.proof.trace import TraceDifference

_NAMES = ("pause", "kill")  # of the kinds
_STARTS = (
    "What is built depends on something that changes at each start: the order of a set or of os.listdir (use "
    "sorted()), hash() of a text (PYTHONHASHSEED), the clock, the pid, or random numbers without a seed."
)


@dataclass(frozen=True)
class Done:
    """An interruption that has happened.

    Attributes:
      kind: how.
      step: the step at which it was asked for.
      resumes_at: the step of the checkpoint from which the run resumed.
      in_evaluation: whether it came in an evaluation.
    """

    kind: InterruptionKind
    step: int
    resumes_at: int
    in_evaluation: bool

    def is_past_an_epoch(self, marks: Marks) -> bool:
        """Return whether the run was resumed past the end of an epoch."""
        return any(self.resumes_at > step for step in marks.epochs)


def interruptions(done: Sequence[Done], marks: Marks) -> str:
    """Return what has happened, in a line."""
    counts = {kind: sum(each.kind is kind for each in done) for kind in InterruptionKind}
    pauses, kills = (f"{count} {name}{'s' * (count != 1)}" for count, name in zip(counts.values(), _NAMES, strict=True))
    inside, past = sum(each.in_evaluation for each in done), sum(each.is_past_an_epoch(marks) for each in done)
    return f"{pauses} and {kills}; {inside} in an evaluation, {past} past the end of an epoch"


def missing(done: Sequence[Done], marks: Marks, wanted: int, end: int) -> list[str]:
    """Return what has not happened and why, a line each.

    Args:
      done: what has happened.
      marks: where the run evaluates, and where its epochs end, before its last step.
      wanted: how many interruptions there were to be.
      end: the last step.
    """
    more = "Prove with more --steps or --interruptions"
    found = []
    for kind, name in zip(InterruptionKind, _NAMES, strict=True):
        if not any(each.kind is kind for each in done) and (wanted > 1 or kind is InterruptionKind.PAUSE):
            found.append(f"not interrupted by a {name}: the run of {end} steps was over first. {more}.")
    if not any(each.in_evaluation for each in done):
        why = "none was chosen" if marks.evaluations else f"none comes before the last step, {end}"
        found.append(f"not interrupted in an evaluation: {why}.")
    if not any(each.is_past_an_epoch(marks) for each in done):
        why = f"{more}" if marks.epochs else f"none that trainerd knows of ends before the last step, {end}"
        found.append(f"not interrupted past the end of an epoch: {why}.")
    return found


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

    difference: TraceDifference
    interrupted_at: int
    between_whole_runs: TraceDifference | None
    builds_otherwise: bool
    pipeline: str
    warnings: Sequence[str]

    @property
    def is_of_each_start(self) -> bool:
        """True if the runs differ without an interruption."""
        return self.between_whole_runs is not None or self.difference.step <= self.interrupted_at


def verdict(evidence: Evidence, config: Config) -> str:
    """Return the verdict, for a person: the first difference, and its likely cause."""
    found = evidence.difference
    if not evidence.is_of_each_start:
        return (
            f"the interrupted run is not the run without a stop. The first difference is at {found}.\n"
            "Two runs without a stop are the same, so something that decides the next step is not in the job's state: "
            f"a variable, a generator, a Python counter, an input that starts over.{_warned(evidence)}"
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
    return f"{first}.\nSo interruptions cannot be judged: {_cause(evidence, config)}"


def _cause(evidence: Evidence, config: Config) -> str:
    if evidence.builds_otherwise:
        return f"the job builds something else at each start. {_STARTS}"
    found = evidence.between_whole_runs or evidence.difference
    if found.is_of_input:
        what = f"the input gives other batches each time. Its stages: {evidence.pipeline or 'not known'}."
    elif found.other is None:
        what = f"the batches and metrics are the same, but {found.name} differs."
    else:
        what = "the step gives another result for the same batch each time."
    if config.deterministic:
        return (
            f"{what} `deterministic = true` is set, so TensorFlow's own ops give the same: check Python, numbers "
            f"from outside of the job's state, and the data.{_warned(evidence)}"
        )
    seed = "" if config.seed is not None else " and a `seed`"
    cure = f"Set `deterministic = true`{seed}"
    if is_program(config.entry):
        cure = "Call keras.utils.set_random_seed and tf.config.experimental.enable_op_determinism in the script"
    return (
        f"{what} {cure}, and check that the job reads no clock, no random numbers "
        f"from outside its state and no file that changes.{_warned(evidence)}"
    )


def _warned(evidence: Evidence) -> str:
    return "\nRead the warnings above." if evidence.warnings else ""
