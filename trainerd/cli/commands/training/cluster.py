"""`trainerd cluster`: several workers of one run on this machine."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import click

from trainerd.cli import options
from trainerd.cli.say import say
from trainerd.daemon.keeping_alive import Kept, keep_alive
from trainerd.workers.plan import RANK, WORKERS, free_ports


@click.group("cluster")
def command() -> None:
    """Several workers that train one model together."""


@command.command("run")
@click.option("-n", "--workers", "count", type=click.IntRange(min=1, max=64), default=2, help="How many. Default: 2.")
@options.of_a_run
def run(
    count: int,
    config_path: Path | None,
    logdir: Path | None,
    max_steps: int | None,
    forever: bool,
    accept_changes: bool,
    accept_job: bool,
) -> None:
    """Train with several workers on this machine, to try a job.

    The chief is shown; the others log to workers/RANK/trainerd.log in the run directory. A worker that is killed is
    started again, and all go on from the newest checkpoint. Ctrl-C saves and ends all.
    """
    options.load_config(config_path)  # its mistakes are told once
    typed = options.arguments(config_path, logdir, max_steps, forever, accept_changes, accept_job)
    environment = {**os.environ, WORKERS: ",".join(f"127.0.0.1:{port}" for port in free_ports(count))}
    kept = [
        Kept(
            [sys.executable, "-m", "trainerd", "run", *typed],
            {**environment, RANK: str(rank)},
            f"worker {rank}",
            is_shown=rank == 0,
        )
        for rank in range(count)
    ]
    code = keep_alive(kept, told=lambda text: say(text, err=True))
    sys.exit(code if code >= 0 else 128 - code)
