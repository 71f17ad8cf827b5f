"""Goes back to an earlier checkpoint. Nothing is deleted: what lies ahead becomes an earlier line of the run.

The file `rollback` asks for it. What is moved is decided and written into `.rollback.json` before the first checkpoint
is moved, and that file is removed after the last: if the process is killed in between, the next start finishes it.
"""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace

import msgspec

from trainerd.checkpoints import manifest as manifests
from trainerd.checkpoints.manifest import DamagedError, Manifest
from trainerd.checkpoints.store import CheckpointStore
from trainerd.errors import DataError, StorageError, UsageError
from trainerd.history.lines import Line, checkpoints_of, lines, next_number
from trainerd.rundir import request_files, run_events
from trainerd.rundir.paths import RunDirectory
from trainerd.rundir.run_events import Kind
from trainerd.system.durable_files import fsync_directory, storage, write_atomic
from trainerd.system.regular_files import read_regular

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Target:
    """Where a run goes back to.

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
    """What a rollback moves.

    Attributes:
      line: what lies ahead becomes this line.
      ahead: the steps that are moved into it.
      back: the steps that are moved from the target's line into the run directory, after those.
    """

    line: Line
    ahead: tuple[int, ...]
    back: tuple[int, ...]


@dataclass(frozen=True)
class Request:
    """The content of the file `rollback`.

    Attributes:
      target: where the run goes back to.
      id: of the command that waits for an answer; empty if none does.
    """

    target: Target
    id: str = ""

    def write(self, rundir: RunDirectory) -> None:
        """Put it on disk.

        Raises:
          StorageError: it cannot be written.
        """
        with storage(f"write {rundir.rollback}"):
            write_atomic(rundir.rollback, json.dumps(asdict(self)).encode() + b"\n", for_all=True)


@dataclass(frozen=True)
class Decided:
    """A rollback that is under way; the content of `.rollback.json`.

    Attributes:
      target: where the run goes back to.
      moves: what is moved.
    """

    target: Target
    moves: Moves

    def write(self, rundir: RunDirectory) -> None:
        """Put it on disk."""
        write_atomic(rundir.rollback_moves, json.dumps(asdict(self)).encode() + b"\n")


def read_request(rundir: RunDirectory) -> Request | None:
    """What the file `rollback` asks for; None if there is none. A person may write a step into it.

    Raises:
      UsageError: it is not understood.
      StorageError: it cannot be read.
    """
    if not request_files.is_asked(rundir.rollback):
        return None
    with storage(f"read {rundir.rollback}", missing_ok=True):
        content = read_regular(rundir.rollback)
        try:
            if content.strip().isdigit():
                return Request(Target(int(content)))
            return msgspec.json.decode(content, type=Request)
        except (msgspec.DecodeError, ValueError) as error:
            raise UsageError(f"{rundir.rollback} is not understood: write the step of a checkpoint into it.") from error
    return None


def withdraw(rundir: RunDirectory) -> None:
    """Remove the file `rollback`."""
    with storage(f"remove {rundir.rollback}"):
        rundir.rollback.unlink(missing_ok=True)
        fsync_directory(rundir.path)


def require_target(rundir: RunDirectory, target: Target) -> Manifest:
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


def _elsewhere(rundir: RunDirectory, target: Target) -> str:
    """Which earlier lines have a checkpoint of this step, as a sentence."""
    found = [line.number for line in lines(rundir) if target.step in checkpoints_of(rundir, line.number).steps()]
    if not found or target.line is not None:
        return ""
    return f" An earlier line has one: --line {found[-1]}."


def nearest(steps: Sequence[int], step: int, count: int = 5) -> str:
    """The steps nearest to one that is not there, as a sentence."""
    if not steps:
        return "There is none yet."
    near = sorted(sorted(steps, key=lambda other: abs(other - step))[:count])
    return f"The nearest {'is' if len(near) == 1 else 'are'} {', '.join(map(str, near))}."


def decide(rundir: RunDirectory, target: Target, now: float) -> Decided:
    """Decide what a rollback moves, and put that on disk: from now on it is carried out, by this process or the next.

    Args:
      rundir: the run directory, whose lock the caller holds.
      target: its checkpoint was verified.
      now: seconds since 1970 (UTC).

    Raises:
      UsageError: the checkpoint is gone.
      StorageError: it cannot be written; nothing has changed.
    """
    place = rundir if target.line is None else checkpoints_of(rundir, target.line)
    if target.step not in place.steps():
        raise UsageError(f"the checkpoint of {target} is gone.")
    decided = Decided(target, _planned(rundir, target, now))
    with storage(f"write {rundir.rollback_moves}"):
        decided.write(rundir)
    withdraw(rundir)
    return decided


def carry_out(rundir: RunDirectory, store: CheckpointStore, decided: Decided) -> Manifest:
    """Move what a rollback moves, and have the next start resume from its target.

    Args:
      rundir: the run directory, whose lock the caller holds.
      store: moves the checkpoints.
      decided: as `decide` returned it, or as a killed process left it.

    Returns:
      The manifest of the checkpoint that the run goes on from.

    Raises:
      StorageError: it could not be finished; another call goes on with it.
    """
    target, moves = decided.target, decided.moves
    ahead = rundir.line(moves.line.number)
    with storage(f"go back to {target} in {rundir.path}"):
        if moves.ahead or moves.back:
            moves.line.write(rundir)
        if moves.ahead:
            for step in moves.ahead:
                store.move(step, ahead)
            moves = replace(moves, ahead=())  # what comes back may have the same steps
            Decided(target, moves).write(rundir)
        for step in moves.back:
            assert target.line is not None
            store.take_back(step, rundir.line(target.line))
        try:
            found = manifests.read(rundir.manifest(target.step))
        except DamagedError as error:
            raise StorageError(f"the checkpoint of {target} was damaged while the run went back: {error}") from error
        store.name(target.step)
        rundir.rollback_moves.unlink(missing_ok=True)
        fsync_directory(rundir.path)
    where = f"; what lay ahead is in {ahead}" if ahead.exists() else ""
    log.info("went back to %s%s", target, where, extra={"event": "rollback", "step": target.step})
    run_events.add(rundir, Kind.ROLLBACK, f"from step {decided.moves.line.ended_at} to {target}", step=target.step)
    return found


def _under_way(rundir: RunDirectory) -> Decided | None:
    """The rollback that a killed process has left; None if there is none.

    Raises:
      DataError: what it was is not known.
      StorageError: it cannot be read.
    """
    with storage(f"read {rundir.rollback_moves}", missing_ok=True):
        content = read_regular(rundir.rollback_moves)
        try:
            return msgspec.json.decode(content, type=Decided)
        except msgspec.DecodeError as error:
            raise DataError(
                f"{rundir.rollback_moves} is damaged, and a rollback was under way: look into {rundir.lines}, and "
                "delete that file."
            ) from error
    return None


def finish_at_start(rundir: RunDirectory, store: CheckpointStore, *, clock: Callable[[], float] = time.time) -> None:
    """Finish a rollback that a kill has cut short, and do what the file `rollback` asks for, before a start.

    What cannot be done is logged, and the run stays as it is.

    Args:
      rundir: the run directory, whose lock the caller holds.
      store: moves the checkpoints.
      clock: seconds since 1970 (UTC).

    Raises:
      StorageError: it could not be finished; the next start goes on with it.
    """
    if (left := _under_way(rundir)) is not None:
        carry_out(rundir, store, left)
    try:
        request = read_request(rundir)
        if request is None:
            return
        require_target(rundir, request.target)
        decided = decide(rundir, request.target, clock())
    except UsageError as error:
        withdraw(rundir)
        log.warning("the run does not go back: %s", error, extra={"event": "rollback-refused"})
        return
    carry_out(rundir, store, decided)


def _planned(rundir: RunDirectory, target: Target, now: float) -> Moves:
    """What is moved for a target.

    A checkpoint of the run directory stays if it is of the target's past: the target's line began at one of them, and
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
