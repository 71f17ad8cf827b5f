"""`trainerd cluster`: several workers of one run on this machine."""

from __future__ import annotations

import os
import sys

import click

from trainerd.cli import options
from trainerd.cli.app import CommandWithExamples, GroupWithExamples
from trainerd.cli.options import RunOptions
from trainerd.cli.say import say
from trainerd.cli.usage import Whole
from trainerd.daemon.keeping_alive import Kept, keep_alive
from trainerd.workers.plan import RANK, WORKERS, free_ports

_EXAMPLES = {
    "trainerd cluster run": "Train with two workers.",
    "trainerd cluster run --workers 4 --max-steps 1000": "Train with four, until step 1000.",
}


@click.group("cluster", cls=GroupWithExamples, examples=_EXAMPLES)
def command() -> None:
    """Train one model with several workers."""


@command.command("run", cls=CommandWithExamples, examples=_EXAMPLES)
@click.option(
    "-n",
    "--workers",
    "count",
    type=Whole(min=1, max=64),
    default=2,
    show_default=True,
    help="The number of workers.",
)
@options.of_a_run
def command_run(run: RunOptions, count: int) -> None:
    """Train with several workers on this machine, to try a job.

    The terminal shows the chief. The others log to workers/RANK/trainerd.log in the run directory. A worker that is
    killed is started again, and all resume from the newest checkpoint. Ctrl-C saves and ends all.
    """
    run.overrides()(options.load_config(run.config_path))  # its mistakes are shown once
    environment = {**os.environ, WORKERS: ",".join(f"127.0.0.1:{port}" for port in free_ports(count))}
    kept = [
        Kept(
            [sys.executable, "-m", "trainerd", "run", *run.typed()],
            {**environment, RANK: str(rank)},
            f"worker {rank}",
            is_shown=rank == 0,
        )
        for rank in range(count)
    ]
    code = keep_alive(kept, report=lambda text: say(text, err=True))
    sys.exit(code if code >= 0 else 128 - code)
