"""`trainerd completion`: what a shell needs to complete trainerd's commands."""

from __future__ import annotations

import click
from click.shell_completion import get_completion_class

from trainerd.cli.app import CommandWithExamples, cli
from trainerd.cli.say import say
from trainerd.cli.usage import OneOf


@click.command(
    "completion",
    cls=CommandWithExamples,
    examples={
        "trainerd completion bash > ~/.local/share/bash-completion/completions/trainerd": "Complete commands in bash.",
        "trainerd completion zsh > ~/.zfunc/_trainerd": "Complete them in zsh; `~/.zfunc` is in its `fpath`.",
    },
)
@click.argument("shell", type=OneOf(["bash", "zsh", "fish"]))
def command(shell: str) -> None:
    """Print the completion script of a shell. Tab then completes commands, options, runs, steps and metrics."""
    kind = get_completion_class(shell)
    assert kind is not None
    say(kind(cli, {}, "trainerd", "_TRAINERD_COMPLETE").source())
