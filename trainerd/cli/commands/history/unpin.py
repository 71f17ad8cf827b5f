"""`trainerd unpin`: let retention decide about a checkpoint again."""

from __future__ import annotations

import click

from trainerd.cli import completion, options
from trainerd.cli.app import CommandOfRun
from trainerd.cli.say import say
from trainerd.cli.usage import Whole
from trainerd.errors import UsageError
from trainerd.system import safe_paths
from trainerd.system.durable_files import storage


@click.command(
    "unpin",
    cls=CommandOfRun,
    examples={
        "trainerd unpin 500": "Let retention delete the checkpoint of step 500.",
        "trainerd unpin digits 500": "The same for the run `digits`.",
    },
)
@click.argument("step", type=Whole(min=0), shell_complete=completion.steps)
@options.of_one_run
def command(step: int, run: options.RunOptions) -> None:
    """Let retention decide about the checkpoint of STEP again. The next save may delete it."""
    rundir = options.run_to_change(run)
    if step not in rundir.pinned():
        pinned = ", ".join(map(str, sorted(rundir.pinned()))) or "none"
        raise UsageError(f"step {step} is not pinned in {rundir.path}. Pinned: {pinned}.")
    with storage(f"remove {rundir.pin(step)}"):
        safe_paths.remove(rundir.pin(step))
    say(f"unpinned step {step}")
