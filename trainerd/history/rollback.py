"""Goes back to an earlier checkpoint. Nothing is deleted: what lies ahead becomes an earlier line of the run.

The file `rollback` asks for it. What is moved is decided and written into `.rollback.json` before the first checkpoint
is moved, and that file is removed after the last. After an error all is put back. After a kill the next start, or the
next rollback, finishes it.
"""

from __future__ import annotations

import contextlib
import json
import logging
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import msgspec

from trainerd.checkpoints import catalogue
from trainerd.checkpoints import manifest as manifests
from trainerd.checkpoints.manifest import DamagedError, Manifest
from trainerd.checkpoints.store import CheckpointStore
from trainerd.errors import DataError, InUseError, StorageError, UsageError
from trainerd.history.lines import Line, checkpoints_of, lines, next_number
from trainerd.rundir import request_files, run_events
from trainerd.rundir.paths import RunDirectory
from trainerd.rundir.requests.answers import Give, no_answer
from trainerd.rundir.run_events import EventKind
from trainerd.system import safe_paths
from trainerd.system.durable_files import fsync_directory, storage, write_atomic
from trainerd.system.regular_files import read_regular
from trainerd.text import counted

log = logging.getLogger(__name__)

FINISHES = "The next start, or the next `trainerd rollback`, finishes it."


@dataclass(frozen=True)
class RollbackTarget:
    """The checkpoint that a run goes back to.

    Attributes:
      step: the step of a checkpoint.
      line: the number of the earlier line that the checkpoint is of; None for the present line.
    """

    step: int
    line: int | None = None

    def __str__(self) -> str:
        return f"step {self.step}" + (f" of line {self.line}" if self.line is not None else "")


@dataclass(frozen=True)
class Moves:
    """The checkpoints that a rollback moves.

    Attributes:
      line: what lies ahead becomes this line.
      ahead: the steps that are moved into it.
      back: the steps that are moved from the target's line into the run directory, after those.
    """

    line: Line
    ahead: tuple[int, ...]
    back: tuple[int, ...]


@dataclass(frozen=True)
class RollbackRequest:
    """The content of the file `rollback`.

    Attributes:
      target: where the run goes back to.
      id: of the command that waits for an answer; empty if none does.
    """

    target: RollbackTarget
    id: str = ""

    @classmethod
    def parse(cls, content: bytes) -> RollbackRequest:
        """Read the content of the file. A person may write a step into it.

        Raises:
          ValueError: it is not understood.
        """
        if content.strip().isdigit():
            return cls(RollbackTarget(int(content)))
        return msgspec.json.decode(content, type=cls)

    def write(self, rundir: RunDirectory) -> None:
        """Put it on disk, unless it is there. It replaces no other one, whose command waits for an answer.

        Raises:
          InUseError: another one is there.
          StorageError: it cannot be written, or something else than a file has its name.
        """
        content = json.dumps(asdict(self)).encode() + b"\n"
        with storage(f"write {rundir.rollback}"), contextlib.suppress(FileExistsError):
            write_atomic(rundir.rollback, content, for_all=True, replace=False)
            return
        if not self.waits(rundir):
            raise InUseError(f"another rollback is requested: {rundir.rollback} exists. Try again when it is done.")

    def waits(self, rundir: RunDirectory) -> bool:
        """Return whether the file `rollback` has this request.

        Raises:
          StorageError: it cannot be read, or something else than a file has its name.
        """
        with contextlib.suppress(ValueError):  # a person's may not be understood
            return _parsed(rundir) == self
        return False


@dataclass(frozen=True)
class Decided:
    """A rollback that is under way; the content of `.rollback.json`.

    Attributes:
      target: where the run goes back to.
      moves: what is moved.
      id: of the request.
    """

    target: RollbackTarget
    moves: Moves
    id: str = ""

    def write(self, rundir: RunDirectory) -> None:
        """Put it on disk."""
        write_atomic(rundir.rollback_moves, json.dumps(asdict(self)).encode() + b"\n")


def read_request(rundir: RunDirectory) -> RollbackRequest | None:
    """Return the request in the file `rollback`; None if there is none.

    Raises:
      UsageError: it is not understood.
      StorageError: it cannot be read.
    """
    if not request_files.is_asked(rundir.rollback):
        return None
    try:
        return _parsed(rundir)
    except ValueError as error:
        raise UsageError(f"{rundir.rollback}: expected the step of a checkpoint in this file.") from error


def _parsed(rundir: RunDirectory) -> RollbackRequest | None:
    with storage(f"read {rundir.rollback}", missing_ok=True):
        return RollbackRequest.parse(read_regular(rundir.rollback))
    return None


def withdraw(rundir: RunDirectory, request: RollbackRequest | None = None) -> None:
    """Remove the file `rollback`; if a request is given, only where the file has this one."""
    if not request_files.is_asked(rundir.rollback) or not (request is None or request.waits(rundir)):
        return
    with storage(f"remove {rundir.rollback}"):
        safe_paths.remove(rundir.rollback, missing_ok=True)
        fsync_directory(rundir.path)


def require_target(rundir: RunDirectory, target: RollbackTarget) -> Manifest:
    """Verify the checkpoint that a run is to go back to. Returns its manifest.

    Raises:
      UsageError: there is none, or it does not verify.
      StorageError: it cannot be read.
    """
    place = rundir if target.line is None else checkpoints_of(rundir, target.line)
    steps = place.steps()
    if target.line is not None and target.line not in [line.number for line in lines(rundir)]:
        there = ", ".join(str(line.number) for line in lines(rundir) if checkpoints_of(rundir, line.number).steps())
        there = there or "none"
        raise UsageError(f"{rundir.path} has no earlier line {target.line}. Lines: {there}.")
    if target.step not in steps:
        others = nearest(steps, target.step) + _elsewhere(rundir, target)
        raise UsageError(f"{place.path} has no checkpoint of step {target.step}. {others}")
    try:
        found = manifests.read(place.manifest(target.step))
        manifests.verify(found, place.path)
    except DamagedError as error:
        raise UsageError(f"the checkpoint of {target} is damaged: {error}") from error
    return found


def _elsewhere(rundir: RunDirectory, target: RollbackTarget) -> str:
    """Return a sentence on the last earlier line that has this step; empty if none has it, or if a line is named."""
    found = [line.number for line in lines(rundir) if target.step in checkpoints_of(rundir, line.number).steps()]
    if not found or target.line is not None:
        return ""
    return f" An earlier line has one: --line {found[-1]}."


def nearest(steps: Sequence[int], step: int, count: int = 5) -> str:
    """Return the steps nearest to one that is not there, as a sentence."""
    if not steps:
        return "There is none yet."
    near = sorted(sorted(steps, key=lambda other: abs(other - step))[:count])
    return f"The nearest {'is' if len(near) == 1 else 'are'} {', '.join(map(str, near))}."


def plan(rundir: RunDirectory, target: RollbackTarget) -> str:
    """Return a sentence on what going back to a checkpoint changes in a run directory."""
    moves = _planned(rundir, target, now=0.0)
    changes = []
    if ahead := moves.ahead:
        steps = f"{ahead[0]:,} to {ahead[-1]:,}" if len(ahead) > 1 else f"{ahead[0]:,}"
        changes.append(f"moves {counted(len(ahead), 'checkpoint')} after it ({steps}) to line {moves.line.number}")
    if moves.back:
        changes.append(f"moves {counted(len(moves.back), 'checkpoint')} back from line {target.line}")
    return f"going back to {target} {' and '.join(changes) or 'moves no checkpoint'}. Nothing is deleted."


def is_at(rundir: RunDirectory, target: RollbackTarget) -> bool:
    """Return whether the run went back there last, from an earlier line, and was not trained since.

    The checkpoint is in the run directory then, and no longer in the folder of that line.
    """
    left = lines(rundir)[-1:]
    is_last = target.line is not None and [(each.target, each.target_line) for each in left] == [
        (target.step, target.line)
    ]
    return is_last and catalogue.resume_order(rundir)[:1] == [target.step]


def go_back(rundir: RunDirectory, store: CheckpointStore, request: RollbackRequest, now: float) -> Manifest:
    """Go back to a checkpoint, as a whole or not at all.

    Args:
      rundir: the run directory, whose lock the caller holds.
      store: moves the checkpoints.
      request: its checkpoint was verified.
      now: seconds since 1970 (UTC).

    Returns:
      The manifest of the checkpoint that the run resumes from.

    Raises:
      UsageError: the checkpoint is gone.
      StorageError: it failed. All is as before, unless `is_under_way` says that it could not be undone.
    """
    target = request.target
    place = rundir if target.line is None else checkpoints_of(rundir, target.line)
    if target.step not in place.steps():
        raise UsageError(f"the checkpoint of {target} was deleted. `trainerd checkpoints` shows the others.")
    store.memory.clear()  # the disk has what it had: before a rollback the present state is saved
    decided = Decided(target, _planned(rundir, target, now), request.id)
    moving = _Moving(rundir, store, decided)
    with storage(f"read {rundir.checkpoint_state}"):
        named = _content(rundir.checkpoint_state)
    try:
        with storage(f"go back to {target} in {rundir.path}"):
            decided.write(rundir)
            found = moving.carry_out()
    except StorageError as error:
        try:
            with storage(f"undo that in {rundir.path}"):
                if is_under_way(rundir):
                    moving.undo(named)
        except StorageError as another:
            said = f"{error} Undoing it failed too: {another} {FINISHES}"
            raise StorageError(said, is_unfinished=True) from error
        raise
    moving.announce()
    return found


def is_under_way(rundir: RunDirectory) -> bool:
    """Return whether a rollback has begun, and is neither finished nor undone.

    Raises:
      StorageError: it cannot be read.
    """
    with storage(f"read {rundir.path}"):
        return any(map(safe_paths.exists, _journals(rundir)))


def finish(rundir: RunDirectory, store: CheckpointStore) -> Decided | None:
    """Finish the rollback that a killed process has left. Return it; None if there is none.

    Args:
      rundir: the run directory, whose lock the caller holds.
      store: moves the checkpoints.

    Raises:
      DataError: what it was is not known.
      StorageError: it could not be finished; another call continues it.
    """
    decided = _under_way(rundir)
    if decided is not None:
        try:
            moving = _Moving(rundir, store, decided)
            with storage(f"finish the rollback to {decided.target} in {rundir.path}"):
                moving.carry_out()
        except StorageError as error:
            raise StorageError(f"{error} {FINISHES}") from error
        moving.announce()
    return decided


def finish_at_start(
    rundir: RunDirectory,
    store: CheckpointStore,
    answer: Give = no_answer,
) -> None:
    """Finish a rollback that a kill has cut short, and do what the file `rollback` asks for, before a start.

    What cannot be done is logged, and the run stays as it is.

    Args:
      rundir: the run directory, whose lock the caller holds.
      store: moves the checkpoints.
      answer: answers the command that waits.

    Raises:
      StorageError: it failed; the next start tries again.
    """
    finish(rundir, store)
    request = None
    try:
        request = read_request(rundir)
        if request is None:
            return
        require_target(rundir, request.target)
        go_back(rundir, store, request, time.time())
        answer(_ids(request), request.target.step, None)
    except UsageError as error:
        withdraw(rundir)
        answer(_ids(request), None, str(error))
        log.warning("the rollback was rejected: %s", error, extra={"event": "rollback-refused"})


def _ids(request: RollbackRequest | None) -> list[str]:
    return [request.id] if request is not None and request.id else []


def _under_way(rundir: RunDirectory) -> Decided | None:
    """Return the rollback that a killed process has left; see `finish`."""
    for path in _journals(rundir):
        with storage(f"read {path}", missing_ok=True):
            content = read_regular(path)
            try:
                return msgspec.json.decode(content, type=Decided)
            except msgspec.DecodeError as error:
                raise DataError(
                    f"{path} is damaged, and a rollback was under way: look into {rundir.lines}, and delete that file."
                ) from error
    return None


def _journals(rundir: RunDirectory) -> tuple[Path, Path]:
    return rundir.rollback_moves, rundir.rollback_returns


def _content(path: Path) -> bytes | None:
    """Return the content of a file; None if there is none."""
    try:
        return read_regular(path)
    except FileNotFoundError:
        return None


class _Moving:
    """Carries a rollback out, or undoes it, from wherever a kill or an error has left it.

    Its steps need no room on the disk once `.rollback.json` and the folder of the new line are there, but for the file
    `checkpoint`. They are renames, and each can be repeated. A checkpoint has no manifest while its files move, so no
    reader sees a half of it.

    Args:
      rundir: the run directory.
      store: moves the checkpoints.
      decided: the rollback.
    """

    def __init__(self, rundir: RunDirectory, store: CheckpointStore, decided: Decided) -> None:
        self._rundir = rundir
        self._store = store
        self._decided = decided
        self._ahead = checkpoints_of(rundir, decided.moves.line.number)
        self._origin = checkpoints_of(rundir, decided.target.line or 0)

    def carry_out(self) -> Manifest:
        """Finish it. Return the manifest of the checkpoint that the run resumes from."""
        rundir, target, moves = self._rundir, self._decided.target, self._decided.moves
        if not safe_paths.exists(rundir.rollback_returns):  # what returns may have the same steps as what lies ahead
            if moves.ahead or moves.back:
                moves.line.write(rundir)
            for step in moves.ahead:
                self._move(step, rundir, self._ahead)
            safe_paths.rename(rundir.rollback_moves, rundir.rollback_returns)
            fsync_directory(rundir.path)
        for step in moves.back:
            self._move(step, self._origin, rundir)
        try:
            found = manifests.read(rundir.manifest(target.step))
        except DamagedError as error:
            raise StorageError(f"the checkpoint of {target} cannot be read after it was moved: {error}") from error
        self._store.name(target.step)
        withdraw(rundir, RollbackRequest(target, self._decided.id))
        safe_paths.remove(rundir.rollback_returns)
        with contextlib.suppress(OSError):  # It is done. The next checkpoint puts the same directory on disk.
            fsync_directory(rundir.path)
        return found

    def announce(self) -> None:
        """Log it, and note it among the events of the run."""
        target, ended_at = self._decided.target, self._decided.moves.line.ended_at
        where = f"; what lay ahead is in {self._ahead.path}" if self._decided.moves.ahead else ""
        log.info("went back to %s%s", target, where, extra={"event": "rollback", "step": target.step})
        run_events.add(self._rundir, EventKind.ROLLBACK, f"from step {ended_at} to {target}", step=target.step)

    def undo(self, named: bytes | None) -> None:
        """Put everything back.

        Args:
          named: what the file `checkpoint` had in it; None if there was none.
        """
        rundir, moves = self._rundir, self._decided.moves
        if safe_paths.exists(rundir.rollback_returns):
            for step in moves.back:
                self._move(step, rundir, self._origin)
            safe_paths.rename(rundir.rollback_returns, rundir.rollback_moves)
            fsync_directory(rundir.path)
        if safe_paths.is_folder(rundir.lines) and safe_paths.is_folder(self._ahead.path):
            for step in moves.ahead:
                self._move(step, self._ahead, rundir)
        moves.line.remove(rundir)
        if _content(rundir.checkpoint_state) != named:
            if named is None:
                safe_paths.remove(rundir.checkpoint_state)
            else:
                write_atomic(rundir.checkpoint_state, named)
        safe_paths.remove(rundir.rollback_moves, missing_ok=True)
        fsync_directory(rundir.path)

    def _move(self, step: int, source: RunDirectory, target: RunDirectory) -> None:
        """Move a checkpoint from the run directory into the folder of a line, or back."""
        for each in {self._rundir.lines, source.path, target.path} - {self._rundir.path}:
            safe_paths.require_no_link(each)
        self._set_aside(source.manifest(step), step)
        self._store.move(step, source.path, target.path)
        self._put(step, target.manifest(step))

    def _set_aside(self, manifest: Path, step: int) -> None:
        if safe_paths.exists(manifest) and not safe_paths.exists(self._aside(step)):
            safe_paths.rename(manifest, self._aside(step))

    def _put(self, step: int, manifest: Path) -> None:
        if safe_paths.exists(self._aside(step)):
            safe_paths.rename(self._aside(step), manifest)
            fsync_directory(manifest.parent)
            fsync_directory(self._rundir.path)

    def _aside(self, step: int) -> Path:
        """Return the path of a manifest while the other files of its checkpoint move."""
        return self._rundir.path / f".rollback-{step}.json"


def _planned(rundir: RunDirectory, target: RollbackTarget, now: float) -> Moves:
    """Return the moves for a target.

    A checkpoint of the run directory stays if it is of the target's past. The target's line began at one of them, and
    so did each line that the run left after that one.
    """
    steps = rundir.steps()
    kept, back = target.step, tuple[int, ...]()
    if target.line is not None:
        kept = min(line.began_at for line in lines(rundir) if line.number >= target.line)
        own = checkpoints_of(rundir, target.line).steps()
        back = tuple(step for step in sorted(own) if kept < step <= target.step)
    ahead = tuple(sorted(step for step in steps if step > kept))
    line = Line(next_number(rundir), kept, max(steps, default=kept), now, target.step, target.line)
    return Moves(line, ahead, back)
