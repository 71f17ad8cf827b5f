"""Fetches a run from its copy: run directory, config and source, in place as a whole or not at all."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from trainerd.checkpoints import manifest as manifests
from trainerd.checkpoints.catalogue import as_last
from trainerd.checkpoints.checkpoint_state import StateFile
from trainerd.checkpoints.manifest import DamagedError, FileRecord, Manifest
from trainerd.config.parse import NAME
from trainerd.copies.contents import is_inside
from trainerd.copies.layout import JOB, AboutCopy, CopyIndex, RunCopy
from trainerd.copies.store import MissingError
from trainerd.errors import CopyError, DataError, UsageError
from trainerd.history.choice import BEST, choose
from trainerd.rundir.paths import RunDirectory, logdir_mistake
from trainerd.rundir.state import Phase, read_state
from trainerd.system import safe_paths
from trainerd.system.durable_files import open_new, storage, write_durable
from trainerd.system.staging import put_in_place, require_free, staged

log = logging.getLogger(__name__)

LATEST = "latest"
_TRIES = 3  # of each file: a connection may break


@dataclass(frozen=True)
class FetchedRun:
    """A run that was fetched.

    Attributes:
      rundir: its run directory.
      config: its config; None for the run of a program that has none.
      steps: its checkpoints, by step.
      resumes_at: the step from which the next start resumes.
      missing: the steps that are at the destination, and are damaged there.
      about: names the run, and who writes the copy.
    """

    rundir: RunDirectory
    config: Path | None
    steps: Sequence[int]
    resumes_at: int
    missing: Sequence[int]
    about: AboutCopy


def fetch(copy: RunCopy, folder: Path, where: str | None, say: Callable[[str], None]) -> FetchedRun:
    """Fetch a run into a new folder, and verify every byte.

    Args:
      copy: the copy.
      folder: the folder of the config and of the run directory; it must not exist, or be empty.
      where: the checkpoint to fetch: a step, `best` or `latest`. None: all that there are.
      say: called with what is fetched.

    Raises:
      UsageError: the folder is not empty, or the copy lacks this checkpoint.
      DataError: there is no copy, it is damaged, or of a newer format.
      CopyError: it cannot be read.
      StorageError: it cannot be written here.
    """
    if mistake := logdir_mistake(folder):
        raise UsageError(mistake)
    require_free(folder, "Fetch into a new folder, and move its run directory to where `logdir` is.")
    about = copy.about()
    if about is None:
        raise DataError(f"{copy.url} holds no copy of a run.")
    with storage(f"make {folder}"), staged(folder) as staging:
        index = _fetch_files(copy, staging)
        rundir = RunDirectory(staging / index.logdir, about.basename)
        steps, missing = _fetch_checkpoints(copy, rundir, index, where, say)
        resumes_at = next((step for step in index.order if step in steps), max(steps))
        name = StateFile(resumes_at, tuple(sorted(steps)))
        write_durable(rundir.checkpoint_state, name.to_bytes(rundir.basename))
        _settle_state(rundir, resumes_at)
        has_config = (staging / NAME).is_file()
        put_in_place(staging, folder)
    there = RunDirectory(folder / index.logdir, about.basename)
    return FetchedRun(there, folder / NAME if has_config else None, sorted(steps), resumes_at, missing, about)


def _fetch_files(copy: RunCopy, staging: Path) -> CopyIndex:
    """Fetch the files of the newest index that is whole.

    While a copier works, what an older index names goes. So the indexes are listed again if none is whole.
    """
    for _ in range(_TRIES):
        numbers = copy.index_numbers()
        for number in numbers:
            if (index := copy.index(number)) is not None and _are_fetched(copy, index, staging):
                return index
    if numbers:
        raise DataError(f"none of the {len(numbers)} lists of files at {copy.url} is whole.")
    raise _no_checkpoint(copy)


def _no_checkpoint(copy: RunCopy) -> DataError:
    return DataError(f"{copy.url} has no checkpoint yet: its first copy has not ended.")


def _are_fetched(copy: RunCopy, index: CopyIndex, staging: Path) -> bool:
    """Fetch the files that an index names. Returns False, and leaves none, if one is damaged or gone."""
    _require_inside([*index.files, index.logdir], copy.url)
    try:
        for name, parts in index.files.items():
            path = staging / (name.removeprefix(JOB) if name.startswith(JOB) else f"{index.logdir}/{name}")
            _fetch_file(copy, parts, path)
    except (DataError, MissingError) as error:
        log.warning("%s An older list of the run's files is used", error, extra={"event": "fetch"})
        _empty(staging)
        return False
    (staging / index.logdir).mkdir(parents=True, exist_ok=True)
    return True


def _require_inside(names: Iterable[str], url: str) -> None:
    """Require that a copy names no file outside of the folder that it is fetched into."""
    for name in names:
        if not is_inside(name):
            raise DataError(f"the copy at {url} names the file {name!r}, which is outside of the run. Do not trust it.")


def _empty(folder: Path) -> None:
    for path in safe_paths.starting_with(folder, ""):
        safe_paths.remove_tree(path)


def _fetch_checkpoints(
    copy: RunCopy, rundir: RunDirectory, index: CopyIndex, where: str | None, say: Callable[[str], None]
) -> tuple[list[int], list[int]]:
    """Fetch the checkpoints that are wanted.

    Returns:
      Their steps, and those of damaged ones.

    Raises:
      DataError: there is none, or all that are wanted are damaged.
      UsageError: the copy lacks this checkpoint.
    """
    found = copy.manifests(rundir, index.order)
    if not found:
        raise _no_checkpoint(copy)
    order = [step for step in _order(copy, index) if step in found] if index.order else sorted(found, reverse=True)
    rest = sorted(found.keys() - set(order), reverse=True)
    chosen = [] if where is None else _chosen(copy, rundir, found, order, where)
    done, missing = list[int](), list[int]()
    for wanted in (order, rest) if where is None else (chosen,):
        for step in wanted:
            try:
                _fetch_checkpoint(copy, rundir, found[step])
            except (DamagedError, DataError) as error:
                log.warning("the copy of step %d is damaged: %s", step, error, extra={"event": "fetch", "step": step})
                missing.append(step)
                continue
            done.append(step)
            say(f"fetched step {step:,}")
            if where == LATEST:
                break
        # The list of files is written before the checkpoint, so the step that it names may not be there. What is there
        # may have been left behind by a rollback: the run must not resume from that unless a person says so.
        if rest and not done and where in (None, LATEST):
            raise _nothing_to_resume_from(copy, index.order, rest)
    if not done:
        raise DataError(f"no checkpoint at {copy.url} is whole of those that were asked for: {_listed(missing)}.")
    for step in found.keys() - set(done):
        safe_paths.remove(rundir.evaluations(step), missing_ok=True)
        safe_paths.remove(rundir.pin(step), missing_ok=True)
    return done, missing


def _order(copy: RunCopy, index: CopyIndex) -> list[int]:
    """Return the steps at which the run resumes, in the order in which they are tried.

    A copier that was killed may have named steps in its list alone. So those of the lists before follow, unless the run
    has gone back since.
    """
    order = list(index.order)
    for number in copy.index_numbers():
        older = copy.index(number) if number < index.number else None
        if older is not None and older.went_back_at == index.went_back_at:
            order += [step for step in older.order if step < min(order)]
    return order


def _nothing_to_resume_from(copy: RunCopy, order: Sequence[int], rest: Sequence[int]) -> DataError:
    """Return the error for a copy whose whole checkpoints are none of those that the run resumes from."""
    return DataError(
        f"{copy.url} has no whole checkpoint of those from which the run resumes: {_listed(order)}. It has others, "
        f"which the run may have left behind: {_listed(rest)}. To take one of them, name its step: "
        f"`trainerd fetch {copy.url} DIR {rest[0]}`."
    )


def _listed(steps: Iterable[int]) -> str:
    return ", ".join(map(str, steps))


def _chosen(copy: RunCopy, rundir: RunDirectory, found: dict[int, Manifest], order: list[int], where: str) -> list[int]:
    """Return the steps to try, until one is whole."""
    if where == LATEST:
        return order
    for step in found if where == BEST else ():  # what is best is read from the manifests
        write_durable(rundir.manifest(step), copy.manifest_bytes(rundir.manifest(step)))
    step = choose(rundir, where)
    for each in found if where == BEST else ():
        safe_paths.remove(rundir.manifest(each))
    if step not in found:
        raise UsageError(f"{copy.url} has no checkpoint of step {step:,}. It has {_listed(sorted(found))}.")
    return [step]


def _fetch_checkpoint(copy: RunCopy, rundir: RunDirectory, manifest: Manifest) -> None:
    for name, record in manifest.files.items():
        try:
            _fetch_file(copy, [record], rundir.path / name)
        except MissingError as error:
            if manifests.is_needed(name):
                raise DataError(str(error)) from error
    manifests.verify(manifest, rundir.path)
    path = rundir.manifest(manifest.step)
    write_durable(path, copy.manifest_bytes(path))
    if manifests.read(path).files != manifest.files:
        raise DataError(f"{path.name} was replaced while it was fetched.")


def _fetch_file(copy: RunCopy, parts: Sequence[FileRecord], path: Path) -> None:
    """Write a file from its parts, each of which is verified."""
    path.parent.mkdir(parents=True, exist_ok=True)
    for tried in range(1, _TRIES + 1):
        try:
            with open_new(path) as file:
                for record in parts:
                    for part in copy.read_object(record):
                        file.write(part)
            return
        except (DataError, CopyError):
            safe_paths.remove(path, missing_ok=True)
            if tried == _TRIES:
                raise


def _settle_state(rundir: RunDirectory, resumes_at: int) -> None:
    """Have state.json say that the run is paused at the checkpoint that was fetched, since nothing trains here."""
    state, found = read_state(rundir.state), manifests.read(rundir.manifest(resumes_at))
    if state is None:
        return
    phase = state.phase if state.phase is Phase.FINISHED and found.reason == manifests.FINISH else Phase.PAUSED
    last = as_last(rundir, found)
    settled = state.at_checkpoint(last, found.metrics, found.measured, phase)
    replace(settled, workers=[], answers=[], warnings=[], saving=None).write(rundir.state)
