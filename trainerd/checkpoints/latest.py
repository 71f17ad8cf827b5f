"""Finds the checkpoint to resume from: the newest that verifies."""

from __future__ import annotations

import logging

from trainerd.checkpoints import manifest
from trainerd.checkpoints.catalogue import Catalogue
from trainerd.checkpoints.manifest import DamagedError, Manifest
from trainerd.checkpoints.store import CheckpointStore
from trainerd.errors import DataError, StorageError
from trainerd.rundir.paths import RunDirectory

log = logging.getLogger(__name__)


def newest_verified(rundir: RunDirectory, store: CheckpointStore, *, unmanaged: bool = False) -> Manifest | None:
    """Return the newest checkpoint that verifies. Damaged ones that are newer go to quarantine.

    Args:
      rundir: where.
      store: moves the damaged ones.
      unmanaged: whether there may be checkpoints without a manifest. If so, they do not keep a run from being new.

    Returns:
      Its manifest, or None if the run directory holds no checkpoint: the run is new.

    Raises:
      DataError: checkpoints exist and none verifies; nothing was touched.
    """
    catalogue = Catalogue.read(rundir)
    if catalogue.is_disbelieved:
        log.warning(
            "%s names no checkpoint of this run. The run resumes from the newest one that verifies",
            rundir.checkpoint_state,
            extra={"event": "disbelieved"},
        )
    found, damaged = newest_sound(rundir, catalogue)
    if found is None:
        _refuse_to_start_over(rundir, catalogue, damaged, unmanaged=unmanaged)
        return None
    _log_passed_over(rundir, catalogue)
    for bad, why in damaged.items():
        store.quarantine(bad, why)
    if damaged or catalogue.passed_over is not None:  # of two that it does not list, a start would take neither
        _name(store, found.step)
    return found


def _log_passed_over(rundir: RunDirectory, catalogue: Catalogue) -> None:
    """Log that a later checkpoint is resumed than `checkpoint` names: a person may have edited that file to go back.

    If it names the last of those that it lists, no person edited it: the process was killed before it wrote the file.
    """
    written = catalogue.passed_over
    if written is None:
        return
    if written.named == max(written.listed):
        text = "%s names step %d; the process died before it named the later one that is resumed"
    else:
        text = (
            "%s names step %d, and a later one was saved, which is not in its list: that is resumed. To go back, leave "
            "no line in it but the first"
        )
    level = logging.INFO if written.named == max(written.listed) else logging.WARNING
    log.log(level, text, rundir.checkpoint_state, written.named, extra={"event": "passed-over"})


def newest_sound(rundir: RunDirectory, catalogue: Catalogue) -> tuple[Manifest | None, dict[int, str]]:
    """Return the newest checkpoint that verifies, and why those before it do not, by step. Nothing is changed.

    Checkpoints that the run left behind when it went back are not of its past, and are passed over.
    """
    damaged: dict[int, str] = {}
    order = catalogue.resume_order
    past = order[0] if order else None
    left_behind = set[int]()
    for step in order:
        if step in left_behind:
            continue
        try:
            found = manifest.read(rundir.manifest(step))
            if step == past and found.before is not None:
                past = found.before
                left_behind |= {other for other in order if past < other < step and _has_past(rundir, other)}
            manifest.verify(found, rundir.path)
            return found, damaged
        except DamagedError as error:
            damaged[step] = str(error)
    return None, damaged


def _name(store: CheckpointStore, step: int) -> None:
    """Name the checkpoint, so that another start before the next save resumes from it, and not from one left behind."""
    try:
        store.name(step)
    except StorageError as error:
        log.warning("%s", error, extra={"event": "retention"})


def _has_past(rundir: RunDirectory, step: int) -> bool:
    """Return whether it is known what was before a checkpoint."""
    found = manifest.sound(rundir.manifest(step))
    return found is not None and found.before is not None


def _refuse_to_start_over(
    rundir: RunDirectory, catalogue: Catalogue, damaged: dict[int, str], *, unmanaged: bool
) -> None:
    """Raise if checkpoints exist: a run is never started again from step 0 over somebody's work."""
    if damaged:
        others = ", ".join(str(step) for step in catalogue.steps if step not in damaged)
        later = f"Of other steps there are {others}: name one in {rundir.checkpoint_state}.\n" if others else ""
        reasons = "\n".join(f"  step {step}: {why}" for step, why in damaged.items())
        raise DataError(
            f"none of the {len(damaged)} checkpoints in {rundir.path} verifies:\n{reasons}\n"
            f"{later}Nothing was touched. Bring one back from a backup, or choose another `logdir` to start over."
        )
    if catalogue.steps:
        raise DataError(
            f"{rundir.checkpoint_state} names a step from which no checkpoint can be used, while those of steps "
            f"{', '.join(map(str, catalogue.steps))} exist. Name one of them in it, or delete that file."
        )
    if not unmanaged and (found := rundir.unmanaged_checkpoints()):
        raise DataError(
            f"{rundir.path} holds checkpoints that have no manifest, {found[-1]} among them: another program "
            "wrote them, or their manifests were removed. trainerd does not start from step 0 over them. "
            "Choose another `logdir`, or move them away."
        )
