"""How long is measured: in full, or shortly."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True)
class Plan:
    """What is repeated how often.

    Attributes:
      rounds, seconds: of each comparison of rates, and how long each side runs in a round.
      long_rounds, long_seconds: the same where the bar is as close as a few percent.
      fitted: the models that `trainerd.keras.fit` trains: "tiny", "digits".
      processes: how many processes of each side are measured, where two of one program differ by more than the bar.
      signal_rounds, signals: how often so many signals are sent.
      statuses: how often `trainerd status` is run.
      imports: how often TensorFlow is imported beside it.
      starts: how often a run is resumed.
      variables: of the job that has many of them.
      manifests: of the run directory that is listed.
      evaluated, evaluations: how many checkpoints are evaluated, and how often.
      state_mebibytes, checkpoints: the sizes of state that are saved, and how often each.
      say: told what goes on.
    """

    rounds: int
    seconds: float
    long_rounds: int
    long_seconds: float
    fitted: tuple[str, ...]
    processes: int
    signal_rounds: int
    signals: int
    statuses: int
    imports: int
    starts: int
    variables: int
    manifests: int
    evaluated: int
    evaluations: int
    state_mebibytes: tuple[int, ...]
    checkpoints: int
    say: Callable[[str], None] = lambda text: None


FULL = Plan(
    rounds=7,
    seconds=2.0,
    long_rounds=25,
    long_seconds=2.0,
    fitted=("tiny", "digits"),
    processes=5,
    signal_rounds=5,
    signals=200,
    statuses=10,
    imports=5,
    starts=7,
    variables=10_000,
    manifests=10_000,
    evaluated=50,
    evaluations=5,
    state_mebibytes=(64, 512, 2048),
    checkpoints=7,
)
SHORT = Plan(
    rounds=1,
    seconds=0.9,
    long_rounds=1,
    long_seconds=0.9,
    fitted=("tiny",),
    processes=1,
    signal_rounds=1,
    signals=40,
    statuses=2,
    imports=1,
    starts=1,
    variables=1_000,
    manifests=1_000,
    evaluated=5,
    evaluations=1,
    state_mebibytes=(64,),
    checkpoints=1,
)
