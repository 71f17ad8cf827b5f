"""`trainerd rollback`: go back to an earlier checkpoint."""

from __future__ import annotations

import os
import uuid
from pathlib import Path

import click

from trainerd.checkpoints import catalogue
from trainerd.checkpoints.store import CheckpointStore
from trainerd.cli import completion, options, requests
from trainerd.cli.advice import how_to_start
from trainerd.cli.say import say
from trainerd.errors import InUseError, UsageError
from trainerd.history import rollback
from trainerd.history.choice import choose
from trainerd.history.rollback import Request, Target
from trainerd.rundir import lock, request_files
from trainerd.rundir.lock import Holder, read_holder
from trainerd.rundir.paths import RunDirectory
from trainerd.rundir.state import Phase, read_state


@click.command("rollback")
@click.argument("where", metavar="STEP|best|minimum", shell_complete=completion.targets)
@click.option(
    "--metric",
    shell_complete=completion.metrics,
    help="The metric of `best` and `minimum`, such as val_accuracy. Default: the config's `best`.",
)
@click.option("--line", type=click.IntRange(min=1), help="An earlier line of the run, which STEP is of.")
@options.config_option
@options.logdir_option
def command(where: str, metric: str | None, line: int | None, config_path: Path | None, logdir: Path | None) -> None:
    """Go back to the checkpoint of a step: a run that trains goes on from there, and so does the next start of another.

    Nothing is deleted: what lay ahead is an earlier line of the run from then on.
    """
    rundir = options.run_to_change(config_path, logdir)
    target = Target(choose(rundir, where, metric, line), line)
    asked = options.asked_rundir(rundir)
    if asked is rundir or rundir.steps():  # else the checkpoints are on the chief's machine, and the chief looks
        rollback.require_target(rundir, target)
    rundir, holder = asked, read_holder(asked)
    if request_files.is_asked(rundir.rollback):
        raise InUseError(f"another rollback is asked for: {rundir.rollback} is there. Try again when it is gone.")
    start = how_to_start(rundir, config_path, logdir)
    if holder is None and rundir.path.stat().st_uid != os.geteuid():  # what is moved must stay the trainer's own
        Request(target).write(rundir)
        say(f"the next start goes back to {target}.")
        return
    if holder is None:
        _go_back(rundir, target)
        say(f"went back to {target}. {start} resumes from there.")
        return
    _ask(rundir, target, holder)
    if not request_files.is_asked(
        rundir.rollback
    ):  # it was served; else the process ends, and the next start serves it
        say(f"went back to {target}; training goes on from there")
    else:
        requests.wait_for_end(holder)
        say(f"paused. {start} resumes from {target}.")


def _go_back(rundir: RunDirectory, target: Target) -> None:
    """Go back in a run directory in which nothing trains."""
    with lock.hold(rundir):
        store = CheckpointStore(rundir)
        store.clean()
        rollback.finish_at_start(rundir, store)
        rollback.require_target(rundir, target)
        Request(target).write(rundir)
        rollback.finish_at_start(rundir, store)
        _tell_status(rundir)


def _tell_status(rundir: RunDirectory) -> None:
    """Have `trainerd status` show where the next start goes on."""
    state, found = read_state(rundir.state), catalogue.newest(rundir)
    if state is not None and found is not None:
        phase = Phase.PAUSED if state.phase is Phase.FINISHED else state.phase
        at = catalogue.as_last(rundir, found)
        state.at_checkpoint(at, found.metrics, phase).write(rundir.state)


def _ask(rundir: RunDirectory, target: Target, holder: Holder) -> None:
    """Ask the process that trains to go back, and wait until it has.

    Raises:
      UsageError: the process has refused it.
    """
    request = Request(target, uuid.uuid4().hex)
    answer = requests.ask(rundir, holder, request.id, lambda: request.write(rundir), rundir.rollback, "went back")
    if answer.step is None:
        raise UsageError(str(answer.error))
