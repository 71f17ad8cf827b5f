"""`trainerd start`: train as a daemon."""

from __future__ import annotations

from pathlib import Path

import click

from trainerd.cli import options
from trainerd.cli.say import say
from trainerd.daemon.detach import start


@click.command("start")
@options.of_training
def command(
    config_path: Path | None,
    logdir: Path | None,
    max_steps: int | None,
    forever: bool,
    accept_changes: bool,
    rank: int | None,
) -> None:
    """Train in the background. Returns when the first step is done, or with the error that prevented it."""
    overrides = options.overrides(logdir, max_steps, forever, accept_changes, rank)
    config = overrides(options.load_config(config_path))
    say(start(config, overrides))
