"""`trainerd set`: change a number, such as the learning rate, while the run trains."""

from __future__ import annotations

import uuid

import click

from trainerd.cli import options, requests
from trainerd.cli.advice import how_to_start
from trainerd.cli.app import CommandOfRun
from trainerd.cli.say import say
from trainerd.errors import NotRunningError, UsageError
from trainerd.rundir import request_files
from trainerd.rundir.lock import read_holder
from trainerd.rundir.requests import set_requests
from trainerd.rundir.requests.set_requests import SetRequest


@click.command(
    "set",
    cls=CommandOfRun,
    examples={
        "trainerd set learning_rate=1e-4": "Change the learning rate at the next step.",
        "trainerd set digits learning_rate=1e-4": "Change that of the run `digits`.",
    },
    exits={64: "The job has no such setting, or rejects the value.", 69: "Nothing trains in the run directory."},
)
@click.argument("said", metavar="NAME=NUMBER...", nargs=-1, required=True)
@options.of_one_run
def command(said: tuple[str, ...], run: options.RunOptions) -> None:
    """Set numbers such as learning_rate=1e-4 at the next boundary, and make a checkpoint of that.

    They are kept over a pause. The lineage of each later checkpoint has them.
    """
    rundir = options.asked_rundir(options.run_to_change(run))
    values = set_requests.parse(" ".join(said))
    if (holder := read_holder(rundir)) is None:
        start = how_to_start(rundir, run)
        raise NotRunningError(f"nothing trains in {rundir.path}. {start} starts it; then type this again.")
    request = SetRequest(values, uuid.uuid4().hex)
    answer = requests.ask(
        rundir,
        holder,
        request.id,
        lambda: request_files.append(rundir.set_request, request.to_line()),
        rundir.set_request,
        "set it",
    )
    if answer.step is None:
        raise UsageError(str(answer.error))
    numbers = ", ".join(f"{name} = {value:g}" for name, value in values.items())
    say(f"after step {answer.step}: {numbers}")
