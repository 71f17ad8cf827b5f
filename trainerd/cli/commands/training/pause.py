"""`trainerd pause`: write a checkpoint and stop."""

from __future__ import annotations

import click

from trainerd.cli import options, requests
from trainerd.cli.advice import require_run
from trainerd.cli.app import CommandWithExamples
from trainerd.cli.say import say
from trainerd.errors import TrainerdError
from trainerd.rundir import request_files
from trainerd.rundir.lock import read_holder
from trainerd.rundir.state import Phase, read_state


class _FailedWhilePausing(TrainerdError):
    """The process ended, and not in peace. Its own exit code says how."""

    summary = "the run failed while it was paused"


@click.command(
    "pause",
    cls=CommandWithExamples,
    examples={
        "trainerd pause": "Ask the run of the current folder to save and exit.",
        "trainerd pause digits --wait": "Pause the run `digits`, and return when its process has ended.",
    },
    exits={
        0: "The run was asked to pause, or nothing trains.",
        74: "With --wait: the last checkpoint could not be written. Other errors have their code too.",
    },
)
@options.of_one_argument
@click.option("--wait", is_flag=True, help="Return when the process has ended.")
def command(run: options.RunOptions, wait: bool) -> None:
    """Write a checkpoint at the next step and stop. `trainerd run` or `trainerd start` resumes the run.

    `touch LOGDIR/pause` does the same. If nothing trains, there is nothing to do.
    """
    rundir = options.asked_rundir(options.run_to_change(run))
    holder = read_holder(rundir)
    if holder is None:
        if run.logdir is not None:
            require_run(rundir)
        say(f"nothing trains in {rundir.path}: there is nothing to pause")
        return
    request_files.append(rundir.pause, "")
    if not wait:
        say(f"asked process {holder.pid} to pause")
        return
    requests.wait_for_end(holder)
    state = read_state(rundir.state)
    if state is not None and state.pid != holder.pid:
        state = None  # an earlier process's: this one could not write its own
    if state is None or state.phase not in (Phase.PAUSED, Phase.FINISHED):
        unknown = f"process {holder.pid} ended without writing its final state: see `trainerd logs`"
        error = _FailedWhilePausing(state.error if state and state.error else unknown)
        error.exit_code = (state.exit_code if state else None) or TrainerdError.exit_code
        raise error
    say(f"{state.phase} at step {state.step}")
