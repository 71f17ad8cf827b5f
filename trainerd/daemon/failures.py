"""Counts how often a job has failed at one step, which starting it again does not fix. Pure."""

from __future__ import annotations

from trainerd.errors import EntryError, JobError, RepeatedFailureError, headline
from trainerd.rundir.state import Failure, State

MANY = 10  # failures at one step, without a checkpoint in between


def count(state: State, error: JobError | EntryError, at: float) -> Failure:
    """Return the record of a failure. A checkpoint clears the record in the state.

    Args:
      state: the run's, when it fails.
      error: what ends it.
      at: seconds since 1970 (UTC).
    """
    step = error.failed_at if isinstance(error, JobError) else state.step
    last = state.failure
    times = last.times + 1 if last is not None and last.step == step else 1
    return Failure(step, error.phase or str(state.phase), headline(error), times, at)


def with_count(state: State, text: str) -> str:
    """Return a failure as `status` shows it, with its count."""
    often = state.failure is not None and state.failure.times > 1
    return f"{text} ({state.failure})" if often else text


def is_too_often(state: State) -> bool:
    """Return whether another start would only fail again."""
    return state.failure is not None and state.failure.times >= MANY


def too_often(state: State, message: str) -> RepeatedFailureError:
    """Return the error that ends such a run.

    Args:
      state: of the run.
      message: that of the error.
    """
    first, _, rest = message.partition("\n")
    return RepeatedFailureError(
        f"{first}. It has {state.failure} and made no checkpoint in between, so systemd does not start it again. Fix "
        f"the job or its data, or go back to an older checkpoint; then start it as ever.\n{rest}"
    )
