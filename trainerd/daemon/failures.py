"""How often a job has failed at one step: starting it again and again does not mend it. Pure, but for `before`."""

from __future__ import annotations

import contextlib

from trainerd.errors import EntryError, JobError, RepeatedFailureError, StorageError, headline
from trainerd.rundir.paths import RunDirectory
from trainerd.rundir.state import Failure, State, read_state

MANY = 10  # failures at one step, without a checkpoint in between


def before(rundir: RunDirectory) -> Failure | None:
    """The failure that an earlier start of the run has left in its state."""
    with contextlib.suppress(StorageError):
        state = read_state(rundir.state)
        return state.failure if state is not None else None
    return None


def count(state: State, error: JobError | EntryError, at: float) -> Failure:
    """The record of a failure. A checkpoint clears what the state has of those before it.

    Args:
      state: of the run, when it fails.
      error: what ends it.
      at: seconds since 1970 (UTC).
    """
    step = error.failed_at if isinstance(error, JobError) else state.step
    last = state.failure
    times = last.times + 1 if last is not None and last.step == step else 1
    return Failure(step, error.phase or str(state.phase), headline(error), times, at)


def told(state: State, text: str) -> str:
    """A failure for `status`, with how often it came."""
    often = state.failure is not None and state.failure.times > 1
    return f"{text} ({state.failure})" if often else text


def is_too_often(state: State) -> bool:
    """Whether another start would do the same again."""
    return state.failure is not None and state.failure.times >= MANY


def too_often(state: State, message: str) -> RepeatedFailureError:
    """The error that ends such a run.

    Args:
      state: of the run.
      message: of the error that came once more.
    """
    first, _, rest = message.partition("\n")
    return RepeatedFailureError(
        f"{first}. It has {state.failure} and made no checkpoint in between, so systemd does not start it again. Mend "
        f"the job or its data, or go back to an older checkpoint; then start it as ever.\n{rest}"
    )
