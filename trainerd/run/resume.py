"""Finds the checkpoint that a run resumes from, and checks whether what has changed since then allows it."""

from __future__ import annotations

import logging
import math
from collections.abc import Sequence

from trainerd.checkpoints import latest
from trainerd.checkpoints.manifest import Manifest
from trainerd.checkpoints.store import CheckpointStore
from trainerd.config import fingerprint
from trainerd.config.fingerprint import Fingerprint, FingerprintDifference
from trainerd.errors import DataError
from trainerd.history import rollback
from trainerd.rundir.paths import RunDirectory
from trainerd.rundir.requests.answers import Give, no_answer
from trainerd.rundir.state import EPOCH

log = logging.getLogger(__name__)

_SHOWN = 5  # changes in a message
_BUILT_OTHERWISE = (
    "the job builds another graph than when step %d was saved, from the same source: names, shapes or "
    "constants depend on something that changes at each start. What was learned may now belong to other things, "
    "such as the rows of an embedding to other words. Check for: the order of a set (use sorted()), hash() of a text "
    "(PYTHONHASHSEED), the order of os.listdir or glob (use sorted()), the clock, the pid, random numbers without a "
    "seed; or a module that the job imports was changed"
)
_OTHER_DATA = (
    "the data has changed since step %d: in the epoch that is resumed some elements come twice and some "
    "never. If the order is random at each start, as with image_dataset_from_directory without a seed, "
    "give it a seed; if it is the order of a set, sort it."
)


def find(
    rundir: RunDirectory,
    store: CheckpointStore,
    now: Fingerprint,
    *,
    exact: bool,
    is_program: bool,
    accept_changes: bool = False,
    unmanaged: bool = False,
    answer: Give = no_answer,
) -> Manifest | None:
    """Find the newest checkpoint that verifies; None if the run is new.

    Args:
      rundir: the run directory.
      store: the store of its checkpoints.
      now: the fingerprint of the run as it is started now.
      exact: whether the position of the input is restored.
      is_program: whether a program of the user's own trains, which has neither a config nor options of a command.
      accept_changes: whether to resume although the dataset or the optimizer has changed.
      unmanaged: whether checkpoints that the program itself saved may be there.
      answer: answers the command that waits for a rollback.

    Raises:
      DataError: checkpoints exist and none can be used, or what has changed makes the resume wrong.
    """
    store.clean()
    rollback.finish_at_start(rundir, store, answer)
    found = latest.newest_verified(rundir, store, unmanaged=unmanaged)
    if found is None:
        log.info("a new run: nothing to restore in %s", rundir.path, extra={"event": "new"})
    elif found.fingerprint and fingerprint.are_of_one_call(found.fingerprint, now):  # a program's own has none
        _require_same_workers(found, now)
        changes = fingerprint.differences(found.fingerprint, now)
        exact = exact and not _has_all_epochs(found, now)
        _log_changes(found.step, changes, now, exact=exact)
        if not accept_changes:
            _refuse_other_optimizer(found.step, changes, rundir, is_program=is_program)
            if exact and not any(change.is_of_state for change in changes):
                _refuse_other_dataset(found.step, changes, rundir, is_program=is_program)
    return found


def refuse_changes(step: int, changes: Sequence[str], rundir: RunDirectory, *, is_program: bool) -> None:
    """Refuse a checkpoint whose values would go to other variables than before, or train others.

    Args:
      step: of the checkpoint.
      changes: see `Model.changes_since`.
      rundir: the run directory.
      is_program: see `find`.

    Raises:
      DataError: there are changes.
    """
    if changes:
        more = f"\n  and {len(changes) - _SHOWN} more" if len(changes) > _SHOWN else ""
        raise DataError(
            f"the job's variables are not those that were saved at step {step}: {_listed(changes[:_SHOWN])}{more}\n"
            "A variable gets the values that were saved at its place, whatever its name. Put the layers back into "
            "their order, and freeze those that were frozen; or use another `logdir`; or "
            f"{_how_to_accept(rundir, is_program=is_program)} to resume all the same."
        )


def _require_same_workers(found: Manifest, now: Fingerprint) -> None:
    """Refuse a checkpoint that holds a position for each worker, if the number of workers has changed."""
    had, has = (each.get(fingerprint.WORKERS, "1") for each in (found.fingerprint, now))
    if had != has and found.fingerprint.get(fingerprint.POSITIONS) == fingerprint.OWN:
        raise DataError(
            f"step {found.step} was saved by {had} workers, each of which had an input of its own, and now there "
            f"{'is 1' if has == '1' else f'are {has}'}. Start as many; or build the input with "
            "trainerd.data.worker_batches and nothing after it that fetches ahead: that position serves any number of "
            'workers; or set input_position = "restart".'
        )
    if had != has:
        log.info(
            "the number of workers was %s at step %d, and is %s now: the elements are the same at each step, and "
            "weights may differ by rounding",
            had,
            found.step,
            has,
            extra={"event": "resized"},
        )


def _has_all_epochs(found: Manifest, now: Fingerprint) -> bool:
    """Return whether a Keras model has trained all its epochs: its data is not read any more."""
    return found.metrics.get(EPOCH, 0.0) >= float(now.get(fingerprint.EPOCHS, math.inf))


def _log_changes(step: int, changes: list[FingerprintDifference], now: Fingerprint, *, exact: bool) -> None:
    """Log what has changed since a checkpoint was saved.

    Args:
      step: of the checkpoint.
      changes: what has changed.
      now: the fingerprint of the run as it is started now.
      exact: whether the input is read from the position that is restored.
    """
    for change in changes:
        log.info("changed since step %d: %s", step, change, extra={"event": "changed"})
    if any(change.is_of_state for change in changes):
        return  # restoring says so, which is the greater news
    is_first_call = fingerprint.CALL not in now  # what a later one builds depends on the calls before it
    if is_first_call and fingerprint.builds_otherwise(changes, now):
        log.warning(_BUILT_OTHERWISE, step, extra={"event": "changed"})
    if exact and any(change.moves_order for change in changes):
        log.warning(_OTHER_DATA, step, extra={"event": "changed"})


def _refuse_other_optimizer(
    step: int, changes: list[FingerprintDifference], rundir: RunDirectory, *, is_program: bool
) -> None:
    others = [change for change in changes if change.is_of_optimizer]
    if others:
        fits = not any(change.is_of_state for change in changes)
        how = f"; or {_how_to_accept(rundir, is_program=is_program)} to give its values to the new one" if fits else ""
        raise DataError(
            f"the optimizer has changed since step {step}: "
            f"{_listed([f'optimizer {each.what} ({each.place})' for each in others])}\n"
            "The checkpoint holds the values of the old optimizer, which mean something else to the new one. Put the "
            f"old one back; or use another `logdir` for the new one{how}."
        )


def _refuse_other_dataset(
    step: int, changes: list[FingerprintDifference], rundir: RunDirectory, *, is_program: bool
) -> None:
    moved = [change for change in changes if change.moves_position]
    if moved:
        restart = "" if is_program else '; or set input_position = "restart" to restart the dataset at every start'
        raise DataError(
            f"the dataset has changed since step {step}: {_listed([each.what for each in moved])}\n"
            "The position that was saved is a place in the old dataset. Put the dataset back; or "
            f"{_how_to_accept(rundir, is_program=is_program)} to use that position in the new one, which works if "
            f"both have the same stages{restart}."
        )


def _how_to_accept(rundir: RunDirectory, *, is_program: bool) -> str:
    """Return what a person does to resume in spite of a change."""
    touch = f"`touch {rundir.accept_changes}` before the start"
    return touch if is_program else f"start once with --accept-changes (or {touch})"


def _listed(changes: Sequence[object]) -> str:
    """Return a line for each change. The first is on the line of the error that `status` shows."""
    return "\n  ".join(map(str, changes))
