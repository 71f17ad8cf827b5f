"""`trainerd move`: pause a run, copy its last step, and say what continues it on another machine."""

from __future__ import annotations

import contextlib
import functools
import shlex

import click

from trainerd.cli import as_owner, options, requests
from trainerd.cli.advice import how_to_start, require_run
from trainerd.cli.app import CommandOfRun
from trainerd.cli.commands.copies.copy import SENDS, destination_of, run_to_copy
from trainerd.cli.say import say
from trainerd.config.destination import Destination
from trainerd.copies.connect import connect
from trainerd.copies.copier import CopiedRun
from trainerd.copies.process import copy_once, only_copier
from trainerd.copies.status import snapshot_at
from trainerd.errors import DataError, NotRunningError, TrainerdError
from trainerd.rundir import request_files
from trainerd.rundir.lock import read_holder
from trainerd.rundir.paths import RunDirectory
from trainerd.rundir.state import Phase, read_state

PATIENCE_SECS = 60.0  # for the copier beside the trainer, which copies the last step too, while it sends nothing


@click.command(
    "move",
    cls=CommandOfRun,
    examples={
        "trainerd move s3://bucket/runs/digits": "Pause the run of the current folder and copy it to a bucket.",
        "trainerd move digits file:///mnt/nas/digits": "Move the run `digits` by way of a NAS.",
    },
    exits={
        65: "The last checkpoint is damaged. The run is paused and copied, and is not moved.",
        69: "The run was killed or failed, or has no checkpoint. Start it, then move it.",
        74: "The destination could not be read or written. The run is paused.",
        75: "Another process copies this run, or another run directory writes to the URL.",
        78: "The config or the credentials are wrong, or the URL holds the copy of another run.",
    },
)
@click.argument("url", metavar="URL")
@options.of_one_run
def command(run: options.RunOptions, url: str) -> None:
    """Pause a run, copy all of it to URL, verify the copy, and print what resumes the run on another machine.

    The copy is then free for the other machine to write to. Nothing is deleted here: do not start the run here again.
    First stop a `trainerd copy` that you started by hand or as a unit. The one that the trainer started ends after the
    pause, once it has sent the last checkpoint: `move` waits for it.
    """
    rundir = options.run_to_change(run)
    require_run(rundir)
    as_owner.require_owner(rundir, SENDS)
    config, copied = run_to_copy(rundir, run)
    destination = destination_of(url, config)
    holder = read_holder(rundir)
    if holder is not None:
        request_files.append(rundir.pause, "")
        say(f"asked process {holder.pid} to pause")
        requests.wait_for_end(holder)
    try:
        with only_copier(rundir, PATIENCE_SECS, functools.cache(_say_what_is_sent)):
            step = _copy_and_release(rundir, copied, destination)
    except (TrainerdError, KeyboardInterrupt):
        state = read_state(rundir.state)
        if holder is not None and state is not None and state.phase is Phase.PAUSED:
            say(f"the run is paused, and is not moved. {how_to_start(rundir, run)} resumes it here.", err=True)
        raise
    folder = shlex.quote(rundir.path.name)
    say(f"moved the run at step {step:,} to {destination}. On the other machine:\n")
    say(f"    trainerd fetch {destination} {folder}")
    if copied.job is not None:
        say(f"    trainerd run --config {folder}/trainerd.toml")


def _say_what_is_sent(step: int) -> None:
    say(f"waits for the process that copies step {step:,}")


def _copy_and_release(rundir: RunDirectory, copied: CopiedRun, destination: Destination) -> int:
    """Copy a paused run, and free the copy for the other machine. Returns the step that is moved."""
    state = read_state(rundir.state)
    if state is not None and state.phase not in (Phase.PAUSED, Phase.FINISHED):
        raise NotRunningError(
            f"the run is not paused: {state.left_as if not state.phase.is_over else state.error or state.phase}. "
            "Start it, and move it then."
        )
    with contextlib.closing(connect(destination)) as copy:
        copier = copy_once(copied, copy)
        saved = state.last_checkpoint if state is not None else None
        if saved is not None and copier.status.is_behind(saved, snapshot_at(rundir, saved)):
            raise DataError(f"the checkpoint of step {saved.step:,} is damaged: the run is copied, and not moved.")
        if copier.status.step is None:
            raise NotRunningError(
                f"{rundir.path} has no whole checkpoint: the run is copied, and not moved. Start it, and move it "
                "after its first checkpoint."
            )
        copier.release()
    return saved.step if saved is not None else copier.status.step
