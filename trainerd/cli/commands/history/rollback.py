"""`trainerd rollback`: go back to an earlier checkpoint."""

from __future__ import annotations

import os
import time
import uuid

import click

from trainerd.checkpoints import catalogue
from trainerd.checkpoints.memory_tier import MemoryTier
from trainerd.checkpoints.store import CheckpointStore
from trainerd.cli import chosen, options, requests
from trainerd.cli.advice import how_to_start
from trainerd.cli.app import CommandOfRun
from trainerd.cli.say import say
from trainerd.errors import InUseError, NotRunningError, StorageError, UsageError
from trainerd.history import rollback
from trainerd.history.choice import choose
from trainerd.history.rollback import RollbackRequest, RollbackTarget
from trainerd.rundir import lock, run_events
from trainerd.rundir.lock import Holder, read_holder
from trainerd.rundir.paths import RunDirectory
from trainerd.rundir.state import Phase, read_state


@click.command(
    "rollback",
    cls=CommandOfRun,
    examples={
        "trainerd rollback best": "Go back to the best checkpoint.",
        "trainerd rollback digits 500": "Go back to step 500 in the run `digits`.",
    },
    exits={64: "There is no such checkpoint, or it does not verify.", 75: "Another rollback of this run is under way."},
)
@chosen.target
@options.of_one_run
def command(where: str, metric: str | None, line: int | None, run: options.RunOptions) -> None:
    """Go back to an earlier checkpoint: that of a step, the best one, or the lowest minimum of the loss.

    A run that trains continues from there. A run that does not train resumes there at its next start. Nothing is
    deleted: the later checkpoints become an earlier line of the run.
    """
    rundir = options.run_to_change(run)
    asked = options.asked_rundir(rundir)
    start = how_to_start(asked, run)
    holder = read_holder(asked)
    finished = None
    if holder is None and rollback.is_under_way(asked) and _is_ours(asked):
        finished = _finish(asked)
    target = RollbackTarget(choose(rundir, where, metric, line, chosen.configured_best(run, rundir)), line)
    is_there = holder is None and rollback.is_at(asked, target)
    if is_there and MemoryTier(asked).newest() is not None:  # a killed process has trained since
        is_there, target = False, RollbackTarget(target.step)  # which is of the present line now
    if finished == target or is_there:  # the same command again
        say(f"went back to {target}. {start} resumes from there.")
        return
    goes_back_here = holder is None and _is_ours(asked)
    if not goes_back_here and rollback.is_under_way(asked):
        raise InUseError(f"a rollback of {asked.path} is under way, or was cut short. {rollback.FINISHES}")
    if asked is rundir or rundir.steps():  # else the checkpoints are on the chief's machine, and the chief looks
        rollback.require_target(rundir, target)
        say(_announcement(rundir, target, is_training=holder is not None))
    if goes_back_here:
        _go_back(asked, target)
        say(f"went back to {target}. {start} resumes from there.")
        return
    if holder is None:  # what is moved must stay the trainer's own
        RollbackRequest(target).write(asked)
        say(f"the next start goes back to {target}.")
        return
    request = _ask(asked, target, holder)
    requests.wait_for_end(holder, still=lambda: request.waits(asked))
    if request.waits(asked):  # the next start serves it
        say(f"paused. {start} resumes from {target}.")
    else:
        say(f"went back to {target}; training continues from there")


def _announcement(rundir: RunDirectory, target: RollbackTarget, *, is_training: bool) -> str:
    """Return what the command is going to change."""
    said = rollback.plan(rundir, target)
    if is_training:
        return f"{said} The run saves first, and continues from there."
    state = read_state(rundir.state)
    if state is not None and state.phase is Phase.FINISHED:
        return f"{said} The run is finished: it becomes a paused one."
    return said


def _is_ours(rundir: RunDirectory) -> bool:
    return rundir.path.stat().st_uid == os.geteuid()


def _finish(rundir: RunDirectory) -> RollbackTarget | None:
    """Finish a rollback that was cut short. Return where the run has gone back to."""
    with lock.acquire(rundir):
        store = CheckpointStore(rundir)
        store.clean()
        left = rollback.finish(rundir, store)
        run_events.flush(rundir)
        _update_status(rundir)
    if left is None:
        return None
    say(f"finished the rollback to {left.target}, which was cut short")
    return left.target


def _go_back(rundir: RunDirectory, target: RollbackTarget) -> None:
    """Go back in a run directory in which nothing trains. An earlier request for a rollback is void then."""
    with lock.acquire(rundir):
        store = CheckpointStore(rundir)
        store.clean()
        rollback.go_back(rundir, store, RollbackRequest(target), time.time())
        run_events.flush(rundir)
        rollback.withdraw(rundir)
        _update_status(rundir)


def _update_status(rundir: RunDirectory) -> None:
    """Have `trainerd status` show from where the next start resumes. The run has gone back, even where that fails."""
    try:
        state, found = read_state(rundir.state), catalogue.newest(rundir)
        if state is not None and found is not None:
            phase = Phase.PAUSED if state.phase is Phase.FINISHED else state.phase
            at = catalogue.as_last(rundir, found)
            state.at_checkpoint(at, found.metrics, found.measured, phase).write(rundir.state)
    except StorageError as error:
        say(f"`trainerd status` shows the run as it was before: {error}", err=True)


def _ask(rundir: RunDirectory, target: RollbackTarget, holder: Holder) -> RollbackRequest:
    """Ask the process that trains to go back, and wait until it has. Returns the request.

    Raises:
      UsageError: the process has refused it.
      NotRunningError: the process ended before it went back; the next start does not go back either.
    """
    request = RollbackRequest(target, uuid.uuid4().hex)
    try:
        answer = requests.ask(rundir, holder, request.id, lambda: request.write(rundir), rundir.rollback, "went back")
    except NotRunningError as error:
        if rollback.is_under_way(rundir):
            raise NotRunningError(f"process {holder.pid} ended during the rollback. {rollback.FINISHES}") from error
        rollback.withdraw(rundir, request)
        raise
    if answer.step is None:
        raise UsageError(str(answer.error))
    return request
