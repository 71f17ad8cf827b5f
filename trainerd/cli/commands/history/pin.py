"""`trainerd pin`: keep a checkpoint, whatever retention says."""

from __future__ import annotations

import os

import click

from trainerd.checkpoints import manifest
from trainerd.checkpoints.manifest import DamagedError
from trainerd.cli import completion, options
from trainerd.cli.app import CommandOfRun
from trainerd.cli.say import say
from trainerd.cli.usage import Whole
from trainerd.errors import UsageError
from trainerd.rundir.paths import RunDirectory
from trainerd.system import safe_paths
from trainerd.system.durable_files import fsync_directory, storage
from trainerd.system.regular_files import open_to_append


@click.command(
    "pin",
    cls=CommandOfRun,
    examples={
        "trainerd pin 500": "Keep the checkpoint of step 500.",
        "trainerd pin digits 500": "Keep that of the run `digits`.",
    },
)
@click.argument("step", type=Whole(min=0), shell_complete=completion.steps)
@options.of_one_run
def command(step: int, run: options.RunOptions) -> None:
    """Keep the checkpoint of STEP, whatever retention says.

    `touch LOGDIR/model.ckpt-STEP.pin` does the same.
    """
    rundir = options.run_to_change(run)
    require_checkpoint(rundir, step)
    pin = rundir.pin(step)
    with storage(f"write {pin}"):
        os.close(open_to_append(pin))
        fsync_directory(rundir.path)
        is_there = safe_paths.exists(rundir.manifest(step))  # from here on it could not be deleted
        if not is_there:
            safe_paths.remove(pin, missing_ok=True)
    if not is_there:
        raise UsageError(f"the checkpoint of step {step} is being deleted. `trainerd checkpoints` shows the others.")
    say(f"pinned step {step}: {rundir.prefix(step)}")


def require_checkpoint(rundir: RunDirectory, step: int) -> None:
    """Find the checkpoint of a step.

    Raises:
      UsageError: there is none.
    """
    steps = rundir.steps()
    if step not in steps:
        there = f"The steps that have one: {_few(steps)}." if steps else "There is none yet."
        raise UsageError(f"{rundir.path} has no checkpoint of step {step}. {there}")
    try:
        manifest.read(rundir.manifest(step))
    except DamagedError as error:
        raise UsageError(f"the checkpoint of step {step} is damaged: {error}") from error


def _few(steps: list[int]) -> str:
    """Return steps, newest first, as a line that is short enough to read."""
    shown = ", ".join(map(str, steps[:20]))
    return shown if len(steps) <= 20 else f"{shown} and {len(steps) - 20} older ones"
