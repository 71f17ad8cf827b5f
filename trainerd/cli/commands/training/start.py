"""`trainerd start`: train as a daemon."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import click

from trainerd.checkpoints import catalogue
from trainerd.cli import options
from trainerd.cli.app import CommandWithExamples
from trainerd.cli.options import RunOptions
from trainerd.cli.say import say
from trainerd.cli.when_notice import say_when
from trainerd.copies.beside import CopierBeside
from trainerd.daemon.detach import start
from trainerd.daemon.keeping_alive import Kept, keep_alive_in_background
from trainerd.history import run_job
from trainerd.rundir import lock, request_files
from trainerd.rundir.paths import RunDirectory


@click.command(
    "start",
    cls=CommandWithExamples,
    examples={
        "trainerd start": "Train the config of the current folder in the background.",
        "trainerd start --keep-alive": "Train, and start again whenever the process is killed.",
        "trainerd start train.py --adopt": "Run a script and replace its `model.fit` by `trainerd.keras.fit`.",
    },
    exits={
        0: "The run trains in the background.",
        65: "No checkpoint can be used, or the same step fails again and again.",
        69: "The job could not be loaded.",
        70: "The job failed.",
        74: "The run directory could not be read or written.",
        75: "Another process trains in the run directory.",
        78: "The config is wrong.",
    },
)
@options.of_training
@click.option(
    "--keep-alive",
    is_flag=True,
    help="Start the process again if it is killed, or if another worker of the cluster is gone. The command returns "
    "at once.",
)
@click.option(
    "--now",
    "is_now",
    is_flag=True,
    help="Train although `[when]` would wait. The agent pauses the run when its next hours end.",
)
def command(run: RunOptions, rank: int | None, keep_alive: bool, is_now: bool) -> None:
    """Train in the background. The command returns when the first step is done, or with the error that prevented it.

    The daemon does not start again after a reboot; `trainerd install` is for that.
    """
    overrides = options.as_worker(run.overrides(), rank)
    config = overrides(options.load_config(run.config_path))
    if not is_now:
        say_when(config)
    if not keep_alive:
        say(start(config, overrides, [CopierBeside(config).observe]))
        return
    rundir = RunDirectory(config.rundir)
    rundir.create()
    with lock.acquire(rundir):
        # Nobody sees how the process in the background is refused.
        is_accepted = run.accept_job or request_files.is_asked(rundir.accept_job)
        run_job.require_own_job(rundir, catalogue.newest(rundir), config.entry, is_accepted=is_accepted)
    typed = [*(["--rank", str(config.rank)] if config.is_of_several else []), *run.typed()]
    kept = Kept([sys.executable, "-m", "trainerd", "run", *typed], os.environ, "the trainer", is_shown=False)
    pid = keep_alive_in_background(kept, Path.cwd())
    say(f"kept alive in the background by pid {pid}: the log is {rundir.log}")
