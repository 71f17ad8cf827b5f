"""Checkpoints that a program wrote with a Saver of its own: they have no manifest, and may have any name.

trainerd follows a `checkpoint` that names one of them, as TensorFlow does, but only in the run directory and if it can
be read whole.
"""

from __future__ import annotations

import logging
import os
import re
from collections.abc import Callable
from pathlib import Path

from trainerd.checkpoints import checkpoint_state, latest, manifest
from trainerd.checkpoints.catalogue import Catalogue
from trainerd.checkpoints.manifest import DamagedError, FileRecord
from trainerd.checkpoints.store import CheckpointStore
from trainerd.errors import DataError
from trainerd.rundir.paths import RunDirectory
from trainerd.system import safe_paths

log = logging.getLogger(__name__)

_OF_A_STEP = re.compile(r"-\d+\.index$")

Verify = Callable[[Path], int | None]


def named(rundir: RunDirectory) -> Path | None:
    """Return the prefix that `checkpoint` names, if there is such a checkpoint; it need not be readable."""
    name = checkpoint_state.named(rundir.checkpoint_state)
    if name is None:
        return None
    prefix = rundir.path / name  # itself a file in TensorFlow's first format
    return prefix if any(map(safe_paths.is_file, (prefix, prefix.with_name(f"{name}.index")))) else None


def is_ours(rundir: RunDirectory, prefix: Path) -> bool:
    """Return whether a checkpoint has a name that the store gives."""
    return rundir.step_of(prefix.name) is not None


def listed(rundir: RunDirectory) -> list[str]:
    """Return the prefixes in `checkpoint` that have no manifest, the oldest first: what a program's own Saver keeps.

    They begin as the program spells the folder: a Saver takes two spellings for two checkpoints, and deletes one of
      them, which is the other too.
    """
    found = checkpoint_state.listed(rundir.checkpoint_state)
    names = [name for name in found if not safe_paths.exists(rundir.path / f"{name}.json")]
    folder = rundir.given or str(rundir.path)
    return [os.path.join(folder, name) for name in names]  # noqa: PTH118, which would spell the folder differently


def newest_readable(rundir: RunDirectory, verify: Verify) -> Path | None:
    """Return the checkpoint for a session that saves nothing here, while another process may. Nothing is changed.

    It is the one that `checkpoint` names, as with TensorFlow; if that has a manifest, or cannot be read, it is the
    newest that verifies.

    Args:
      rundir: where.
      verify: called with a prefix; raises DamagedError if it cannot be read whole.

    Returns:
      Its prefix; None if there is none.

    Raises:
      DataError: there are checkpoints, and none can be read.
    """
    why: dict[str, str] = {}
    first = named(rundir)
    if first is not None and not _verifies(rundir, first):
        try:
            verify(first)
            return first
        except DamagedError as error:
            why[first.name] = str(error)
    found, damaged = latest.newest_sound(rundir, Catalogue.read(rundir))
    why = {rundir.prefix(step).name: reason for step, reason in damaged.items()} | why
    if found is None:
        refuse_to_start_over(rundir, why)
        if (name := checkpoint_state.named(rundir.checkpoint_state)) is not None:
            log.warning(
                "%s names %s, which does not exist, and there is no other checkpoint: training starts at step 0",
                rundir.checkpoint_state,
                name,
                extra={"event": "disbelieved"},
            )
        return None
    warn_of_unreadable(rundir, why)
    return rundir.prefix(found.step)


def adopt(rundir: RunDirectory, store: CheckpointStore, verify: Verify) -> dict[str, str]:
    """Give a manifest to each checkpoint that a program wrote with a Saver of its own: beside ours, or over one.

    If `checkpoint` names one, others that it does not list are not the run's: somebody has put them there.

    Args:
      rundir: where.
      store: what writes the manifests.
      verify: called with a prefix; gives the global step that is in it, if one is; raises DamagedError where it
        cannot be read whole.

    Returns:
      Why each of them cannot be, by its name.

    Raises:
      StorageError: a manifest cannot be written.
    """
    unreadable: dict[str, str] = {}
    names = rundir.unmanaged_checkpoints()
    without = [step for name in names if (step := rundir.step_of(name.removesuffix(".index"))) is not None]
    names_of_saver = checkpoint_state.listed(rundir.checkpoint_state)
    if listed := {named(rundir), *(rundir.path / name for name in names_of_saver)} - {None}:
        without = [step for step in without if rundir.prefix(step) in listed]
    for step in [*without, *(step for step in rundir.steps() if _is_rewritten(rundir, step))]:
        try:
            held = verify(rundir.prefix(step))
            if step not in without and held not in (None, step):
                raise DamagedError(f"it holds step {held}")
        except DamagedError as error:
            unreadable[rundir.prefix(step).name] = str(error)
            continue
        store.adopt(step)
    return unreadable


def warn_of_unreadable(rundir: RunDirectory, unreadable: dict[str, str]) -> None:
    """Say which checkpoints are passed over."""
    for name, reason in unreadable.items():
        log.warning("%s is skipped: %s", rundir.path / name, reason, extra={"event": "passed-over"})


def refuse_to_start_over(rundir: RunDirectory, unreadable: dict[str, str]) -> None:
    """Raise if there are checkpoints and none can be used: no model is initialized over somebody's work.

    Args:
      rundir: where.
      unreadable: why each cannot be read, by its name.

    Raises:
      DataError: there are.
    """
    state, others = rundir.checkpoint_state, rundir.unmanaged_checkpoints()
    if not safe_paths.exists(state):  # what has no step in its name may be there to begin with, for an init_fn
        others = [name for name in others if _OF_A_STEP.search(name)]
    if not unreadable and others and named(rundir) is None:
        unreadable = {state.name: f"it names none that is here, and there are others, such as {others[-1]}"}
    if not unreadable and checkpoint_state.leads_out(state):
        unreadable = {state.name: "it names a checkpoint in another folder; copy that one, or restore it in an init_fn"}
    if unreadable:
        reasons = "\n".join(f"  {name}: {reason}" for name, reason in unreadable.items())
        raise DataError(
            f"there are checkpoints in {rundir.path}, and none can be used:\n{reasons}\nNothing was touched. Bring one "
            "back from a backup, move them away to start over, or choose another `logdir`."
        )


def _is_rewritten(rundir: RunDirectory, step: int) -> bool:
    """Return whether a checkpoint's index, or its graph, differs from the record in its manifest.

    A Saver that writes the same values again writes the same index, and the present graph.
    """
    prefix = rundir.prefix(step)
    try:
        files = manifest.read(rundir.manifest(step)).files
        paths = [prefix.with_name(prefix.name + ending) for ending in (".index", ".meta")]
        there = [path for path in paths if path.name in files and safe_paths.is_file(path)]
        return any(FileRecord.of(path) != files[path.name] for path in there)
    except (DamagedError, OSError):
        return False


def _verifies(rundir: RunDirectory, prefix: Path) -> bool:
    """Return whether a checkpoint has a manifest that agrees with it. A program's Saver may have written over it."""
    path = prefix.with_name(f"{prefix.name}.json")
    if not is_ours(rundir, prefix) or not safe_paths.exists(path):
        return False
    try:
        manifest.verify(manifest.read(path), rundir.path)
    except DamagedError:
        return False
    return True
