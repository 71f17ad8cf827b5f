"""`trainerd forget`: show a run no more."""

from __future__ import annotations

from pathlib import Path

import click

from trainerd.cli import options
from trainerd.cli.app import CommandWithExamples
from trainerd.cli.say import say
from trainerd.errors import UsageError
from trainerd.rundir import registry
from trainerd.system.absolute import absolute


@click.command(
    "forget",
    cls=CommandWithExamples,
    examples={
        "trainerd forget digits": "Remove the run `digits` from the list.",
        "trainerd forget runs/digits": "The same, by its run directory.",
    },
)
@click.argument("run", type=options.RUN)
def command(run: Path) -> None:
    """Remove a run from `trainerd list` until it starts again. Its files are kept."""
    path = absolute(run)
    names = [path, *(known.path for known in registry.known() if path.exists() and path.samefile(known.path))]
    forgotten = [registry.forget(name) for name in names]
    if not any(forgotten):
        raise UsageError(f"no run is known in {path}. `trainerd list` shows your runs.")
    say(f"forgot {path}; its files are where they were")
