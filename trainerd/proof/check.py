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
from trainerd.config.schema import Config
from trainerd.errors import ConfigError, DataError, JobError
from trainerd.loop.changes.trouble import bad_turn
from trainerd.loop.contract import Session, Steps
from trainerd.loop.flag import Flag
from trainerd.loop.guard.state_check import unchanged
from trainerd.loop.minima.valleys import Valleys
from trainerd.loop.recorder import EVALUATION, SUMMARIES, as_validation
from trainerd.rundir.paths import RunDirectory
from trainerd.text import figures

EPOCH_STEPS = 2


def rehearse(session: Session, config: Config) -> Iterator[str]:
    """Run two steps, which are an epoch if the job has epochs, and a step after it; evaluate, save, and restore.

    Args:
      session: the job's session. Its epochs end after `EPOCH_STEPS`.
      config: the run's. It has the goals, whose metrics must exist, and says what is an error.

    Yields:
      A line for each thing that worked.

    Raises:
      TrainerdError: a part that failed.
    """
    session.bind(Flag())
    metrics = yield from _steps(session, config)
    for found in measured(session, refuse=config.deterministic):
        metrics |= as_validation(found)
        yield f"evaluate: {figures(found)}"
    for key, wanted in (("target", config.parsed_target()), ("checkpoint.best", config.parsed_best())):
        if wanted is not None and (mistake := wanted.mistake(metrics)):
            raise ConfigError(f"{key}: {mistake}")
    with tempfile.TemporaryDirectory(prefix="trainerd-check-") as scratch:
        yield from _save_and_restore(session, RunDirectory(Path(scratch)))


def measured(session: Session, *, refuse: bool) -> Iterator[dict[str, float]]:
    """Call the job's summaries and its evaluation; warn if they change the state.

    Yields:
      The metrics, if the job has an evaluation.

    Raises:
      JobError: the job failed; or it has changed the state, and `refuse` says that this is an error.
    """
    with unchanged(SUMMARIES, session, refuse=refuse):
        session.write_summaries()
    if session.has_evaluation:
        with unchanged(EVALUATION, session, refuse=refuse):
            found = session.evaluate()
        yield found


def at_epoch_end(steps: Steps) -> dict[str, float]:
    """Do what comes at the end of an epoch, such as a validation, if these steps have ended one. Returns its
    metrics."""
    return dict(steps.then()) if steps.then is not None else {}


def _steps(session: Session, config: Config) -> Generator[str, None, dict[str, float]]:
    metrics: dict[str, float] = {}
    for name in ("first", "second", "third") if session.epochs is not None else ("first", "second"):
        started = time.monotonic()
        steps = session.run_until(session.step + 1)
        took = time.monotonic() - started
        if name == "first" and not len(steps.rows):
            raise JobError("the dataset has no batches, so no step could run.", step=0, sound=True)
        bad = bad_turn(steps, Valleys(), config.trouble, smoothing=1, stops_on_nan=config.stop_on_nan)
        if bad is not None and bad.action == "stop":
            raise JobError(
                f"{bad.what}, which ends a run. Check the learning rate and the data; `stop_on_nan = false` in "
                "the config lets it continue.",
                step=bad.last,
                sound=False,
            )
        if name == "first":
            yield f"first step: {figures(steps.last()) or 'no metrics'} ({took:.2f} s with compilation)"
        elif len(steps.rows):
            yield f"{name} step: {1000 * took:.1f} ms"
        metrics |= steps.last()
        if of_epoch := at_epoch_end(steps):
            metrics |= of_epoch
            yield f"end of an epoch: {figures(of_epoch)}"
    return metrics


def _save_and_restore(session: Session, rundir: RunDirectory) -> Iterator[str]:
    store, step = CheckpointStore(rundir), session.step
    try:
        saved = store.publish(session.snapshot(), About("check"))
    except UnsoundError as error:
        raise JobError(f"{error} after {step} steps", step=step, sound=False) from None
    yield f"save: {saved.bytes:,} bytes in {saved.seconds:.2f} s"
    started = time.monotonic()
    found = latest.newest_verified(rundir, store)
    assert found is not None, "it was written above"
    session.restore(rundir.prefix(found.step))
    if session.step != step:
        raise DataError(f"step {step} was saved and step {session.step} was restored.")
    yield f"restore: step {step}, verified, in {time.monotonic() - started:.2f} s"
