"""`trainerd cluster`: several workers of one run on this machine."""

from __future__ import annotations

import contextlib
import os
import socket
import sys
from pathlib import Path

import click

from trainerd.cli import options
from trainerd.cli.say import say
from trainerd.daemon.keeping_alive import Kept, keep_alive
from trainerd.workers.plan import RANK, WORKERS


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
) -> None:
    """Train with several workers on this machine, to try a job.

    The chief is shown; the others log to workers/RANK/trainerd.log in the run directory. A worker that is killed is
    started again, and all go on from the newest checkpoint. Ctrl-C saves and ends all.
    """
    options.load_config(config_path)  # its mistakes are told once
    typed = options.arguments(config_path, logdir, max_steps, forever, accept_changes)
    environment = {**os.environ, WORKERS: ",".join(f"127.0.0.1:{port}" for port in _free_ports(count))}
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


def _free_ports(count: int) -> list[int]:
    """Ports that nobody listens at, for so many workers: each has one, and the one after it is free too."""
    found: list[int] = []
    with contextlib.ExitStack() as stack:
        while len(found) < count:
            first = stack.enter_context(socket.socket())
            first.bind(("127.0.0.1", 0))
            port = first.getsockname()[1]
            second = stack.enter_context(socket.socket())
            with contextlib.suppress(OSError, OverflowError):
                second.bind(("127.0.0.1", port + 1))
                found.append(port)
    return found
