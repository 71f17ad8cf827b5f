"""`trainerd forget`: show a run no more."""

from __future__ import annotations

from pathlib import Path

import click

from trainerd.cli import options
from trainerd.cli.say import say
from trainerd.errors import UsageError
from trainerd.rundir import registry


@click.command("forget")
@click.argument("run", type=options.RUN)
def command(run: Path) -> None:
    """Leave a run out of `trainerd list`, until it starts again. Its folder stays as it is."""
    if not registry.forget(run.absolute()):
        raise UsageError(f"no run in {run.absolute()} is known. `trainerd list` shows those that are.")
    say(f"forgot {run.absolute()}; its files are where they were")
