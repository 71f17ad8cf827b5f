"""`trainerd save`: write a checkpoint now and continue training."""

from __future__ import annotations

import click

from trainerd.cli import options, requests
from trainerd.cli.advice import how_to_start
from trainerd.cli.app import CommandWithExamples
from trainerd.cli.say import say
from trainerd.errors import NotRunningError, StorageError
from trainerd.rundir import request_files
from trainerd.rundir.lock import read_holder


@click.command(
    "save",
    cls=CommandWithExamples,
    examples={
        "trainerd save": "Ask the run of the current folder for a checkpoint.",
        "trainerd save digits --wait": "Save the run `digits`, and return when the checkpoint is on disk.",
    },
    exits={69: "Nothing trains in the run directory.", 74: "With --wait: the checkpoint could not be written."},
)
@options.of_one_argument
@click.option("--wait", is_flag=True, help="Return when the checkpoint is on disk.")
def command(run: options.RunOptions, wait: bool) -> None:
    """Write a checkpoint at the next step and continue training.

    `touch LOGDIR/save` does the same.
    """
    rundir = options.asked_rundir(options.run_to_change(run))
    if (holder := read_holder(rundir)) is None:
        start = how_to_start(rundir, run)
        raise NotRunningError(f"nothing trains in {rundir.path}. {start} starts it.")
    if not wait:
        request_files.append(rundir.save, "")
        say(f"asked process {holder.pid} to save")
        return
    answer = requests.ask_for_save(rundir, holder)
    if answer.step is None:
        raise StorageError(str(answer.error))
    say(f"saved step {answer.step}: {rundir.prefix(answer.step)}")
