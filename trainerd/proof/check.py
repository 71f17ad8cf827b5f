"""The trial of `trainerd check`: each part of a run once, in a scratch folder, to find what would fail after hours."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Generator, Iterator
from pathlib import Path

from trainerd.checkpoints import latest
from trainerd.checkpoints.manifest import About
from trainerd.checkpoints.snapshot import UnsoundError
from trainerd.checkpoints.store import CheckpointStore
from trainerd.config.metric_goals import Best, Target
from trainerd.errors import ConfigError, DataError, JobError
from trainerd.loop.contract import Session
from trainerd.loop.flag import Flag
from trainerd.loop.guard.state_check import unchanged
from trainerd.loop.recorder import EVALUATION, SUMMARIES, as_validation
from trainerd.rundir.paths import RunDirectory
from trainerd.text import figures


def rehearse(
    session: Session, target: Target | None = None, best: Best | None = None, *, refuse: bool = False
) -> Iterator[str]:
    """Run two steps, evaluate, save, and restore.

    Args:
      session: the job's session.
      target, best: goals whose metrics there must be.
      refuse: whether it is an error if an evaluation or summaries change the state.

    Yields:
      A line for each thing that worked.

    Raises:
      TrainerdError: a part that failed.
    """
    session.bind(Flag())
    metrics = yield from _steps(session)
    for found in measured(session, refuse=refuse):
        metrics |= as_validation(found)
        yield f"evaluate: {figures(found)}"
    for key, wanted in (("target", target), ("checkpoint.best", best)):
        if wanted is not None and (mistake := wanted.mistake(metrics)):
            raise ConfigError(f"{key}: {mistake}")
    with tempfile.TemporaryDirectory(prefix="trainerd-check-") as scratch:
        yield from _save_and_restore(session, RunDirectory(Path(scratch)))


def measured(session: Session, *, refuse: bool) -> Iterator[dict[str, float]]:
    """Call the job's summaries and its evaluation; warn if they change the state.

    Yields:
      The figures, if the job has an evaluation.

    Raises:
      JobError: the job failed; or it has changed the state, and `refuse` says that this is an error.
    """
    with unchanged(SUMMARIES, session, refuse=refuse):
        session.write_summaries()
    if session.has_evaluation:
        with unchanged(EVALUATION, session, refuse=refuse):
            found = session.evaluate()
        yield found
    elif session.can_score:  # a Keras model is validated at the end of an epoch
        yield session.score()


def _steps(session: Session) -> Generator[str, None, dict[str, float]]:
    started = time.monotonic()
    steps = session.run_until(session.step + 1)
    if not len(steps.rows):
        raise JobError("the dataset has no batch: not one step could be run.", step=0, sound=True)
    yield f"first step: {figures(steps.last()) or 'no metrics'} ({time.monotonic() - started:.2f} s with compilation)"
    started = time.monotonic()
    if len(session.run_until(session.step + 1).rows):
        yield f"second step: {1000 * (time.monotonic() - started):.1f} ms"
    return steps.last()


def _save_and_restore(session: Session, rundir: RunDirectory) -> Iterator[str]:
    store, step = CheckpointStore(rundir), session.step
    try:
        saved = store.publish(session.snapshot(), About("check"))
    except UnsoundError as error:
        raise JobError(f"{error} after {step} steps", step=step, sound=False) from None
    yield f"save: {saved.bytes:,} bytes in {saved.seconds:.2f} s"
    started = time.monotonic()
    found = latest.newest_verified(rundir, store)
    if found is None:
        raise DataError("the checkpoint that was just written is not there.")
    session.restore(rundir.prefix(found.step))
    if session.step != step:
        raise DataError(f"step {step} was saved and step {session.step} was restored.")
    yield f"restore: step {step}, verified, in {time.monotonic() - started:.2f} s"
