"""`trainerd completion`: what a shell needs to complete trainerd's commands."""

from __future__ import annotations

import click
from click.shell_completion import get_completion_class

from trainerd.cli.app import cli
from trainerd.cli.say import say
from trainerd.cli.usage import OneOf


@click.command("completion")
@click.argument("shell", type=OneOf(["bash", "zsh", "fish"]))
def command(shell: str) -> None:
    """Print what a shell reads at its start, so that Tab completes commands, options, runs, steps and metrics.

    Such as: trainerd completion bash > ~/.local/share/bash-completion/completions/trainerd
    """
    kind = get_completion_class(shell)
    assert kind is not None
    say(kind(cli, {}, "trainerd", "_TRAINERD_COMPLETE").source())
