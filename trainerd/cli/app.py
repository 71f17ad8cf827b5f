"""The group of commands. Each is a file, imported when it is called, so that `status` is fast."""

from __future__ import annotations

import difflib
import importlib

import click

from trainerd.version import __version__

COMMANDS = {
    "run": "Train in the foreground.",
    "start": "Train as a daemon.",
    "status": "Show how a run is doing.",
    "save": "Write a checkpoint now and go on training.",
    "pause": "Write a checkpoint and stop.",
    "checkpoints": "Show the checkpoints of a run.",
    "rollback": "Go back to an earlier checkpoint.",
    "pin": "Keep a checkpoint, whatever retention says.",
    "unpin": "Let retention decide about a checkpoint again.",
    "logs": "Show the log of a run.",
    "tensorboard": "Look at a run in TensorBoard.",
    "init": "Write a config and a small job to start from.",
    "check": "Try a job: two steps, one save and one restore.",
    "prove": "Prove that a run that is interrupted is the run that is not.",
    "install": "Install a systemd unit.",
}


class _Commands(click.Group):
    """Lists the commands without importing them."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        command = importlib.import_module(f"trainerd.cli.commands.{cmd_name}").command
        assert isinstance(command, click.Command)
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args and not args[0].startswith("-") and args[0] not in COMMANDS:
            near = difflib.get_close_matches(args[0], COMMANDS, n=1)
            hint = f" Did you mean `{near[0]}`?" if near else ""
            raise click.UsageError(f"there is no command {args[0]!r}.{hint}", ctx)
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl(list(COMMANDS.items()))


@click.group(cls=_Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="trainerd", message="%(prog)s %(version)s")
def cli() -> None:
    """Train a TensorFlow model for days or months, and lose nothing.

    Without a trainerd.toml here, the digits job that ships is trained.
    """
