"""The group of commands, and what they have in common. Each is a file, imported when it is called."""

from __future__ import annotations

import difflib
import importlib
from collections.abc import Mapping
from typing import Any

import click

from trainerd.errors import NotRunningError
from trainerd.version import __version__

# The folders of the commands, each with its heading.
GROUPS = {
    "training": "Training",
    "runs": "All runs",
    "queue": "The queue",
    "sweeps": "Sweeps",
    "history": "Checkpoints and history",
    "copies": "Copies elsewhere",
    "jobs": "Jobs and releases",
}
# The name of each command to its folder and what it does.
COMMANDS = {
    "run": ("training", "Train in the foreground."),
    "start": ("training", "Train as a daemon."),
    "cluster": ("training", "Train with several workers on this machine, to try a job."),
    "list": ("runs", "Show every run on this machine."),
    "events": ("runs", "Show what happened to a run."),
    "watch": ("runs", "Send notifications and serve a dashboard."),
    "forget": ("runs", "Remove a run from `trainerd list`."),
    "completion": ("jobs", "Print the completion script of a shell."),
    "status": ("training", "Show how a run is doing."),
    "save": ("training", "Write a checkpoint now and continue training."),
    "pause": ("training", "Write a checkpoint and stop."),
    "set": ("training", "Set a number, such as the learning rate, while the run trains."),
    "logs": ("training", "Show the log of a run."),
    "tensorboard": ("training", "Show a run in TensorBoard."),
    "sweep": ("sweeps", "Train many runs of one config, with other values of some keys."),
    "checkpoints": ("history", "Show the checkpoints of a run."),
    "history": ("history", "Draw the loss of a run, with what happened."),
    "evaluate": ("history", "Evaluate old checkpoints."),
    "rollback": ("history", "Go back to an earlier checkpoint of a run."),
    "fork": ("history", "Make a new run that starts at a checkpoint."),
    "diff": ("history", "Compare two checkpoints, or two runs."),
    "pin": ("history", "Keep a checkpoint, whatever retention says."),
    "unpin": ("history", "Let retention decide about a checkpoint again."),
    "copy": ("copies", "Keep a copy of a run elsewhere."),
    "fetch": ("copies", "Bring a run back from its copy."),
    "move": ("copies", "Pause a run and copy it, to continue it on another machine."),
    "queue": ("queue", "Show and change what the agent trains."),
    "agent": ("queue", "Train the runs of the queue, each when it may."),
    "init": ("jobs", "Write a config and a small job to start from."),
    "check": ("jobs", "Try a job: two steps, one save and one restore."),
    "prove": ("jobs", "Check that interruptions do not change a job's result."),
    "doctor": ("jobs", "Diagnose a run."),
    "export": ("jobs", "Package a checkpoint for use elsewhere."),
    "predict": ("jobs", "Write the predictions of a checkpoint."),
    "install": ("jobs", "Install a systemd unit."),
}


class CommandWithExamples(click.Command):
    """A command whose help ends with examples.

    Args:
      examples: command lines, each with a sentence that says what it does.
      exits: the exit codes that mean something of this command, each with a sentence.
    """

    def __init__(
        self, *args: Any, examples: Mapping[str, str], exits: Mapping[int, str] | None = None, **given: Any
    ) -> None:
        super().__init__(*args, **given)
        self.examples = examples
        self.exits = exits or {}

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the exit codes and the examples."""
        if self.exits:
            with formatter.section("Exit codes"):
                formatter.write_dl([(str(code), text) for code, text in self.exits.items()])
        with formatter.section("Examples"):
            for line, text in self.examples.items():
                formatter.write(f"{'':>{formatter.current_indent}}{line}\n")
                with formatter.indentation():
                    formatter.write_text(text)


class GroupWithExamples(CommandWithExamples, click.Group):
    """A group of commands whose help ends with examples."""


class CommandOfRun(CommandWithExamples):
    """A command whose first argument may name the run, before its own arguments."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parse the words, without the one that names the run: that becomes the hidden option --run."""
        given, words = self._parsed(ctx, args)
        needed = sum(each.required for each in self.params if isinstance(each, click.Argument))
        least = max(0, needed - ctx.resilient_parsing)  # the last word may be missing where Tab asks
        if "logdir" in given or len(words) <= least or not _may_be_run(words[0]):
            return super().parse_args(ctx, args)
        shorter = ([*args[:at], *args[at + 1 :]] for at, each in enumerate(args) if each == words[0])
        args = ["--run", words[0], *next(each for each in shorter if self._parsed(ctx, each)[1] == words[1:])]
        try:
            return super().parse_args(ctx, args)
        except NotRunningError as error:  # the word may have been meant for something else
            raise NotRunningError(f"{error}\n{self.get_usage(ctx)}") from None

    def collect_usage_pieces(self, ctx: click.Context) -> list[str]:
        options, *others = super().collect_usage_pieces(ctx)
        return [options, "[RUN]", *others]

    def _parsed(self, ctx: click.Context, args: list[str]) -> tuple[Mapping[str, Any], list[str]]:
        """Return the options that are given, and the words that are neither options nor their values."""
        options: list[click.Parameter] = [each for each in self.params if isinstance(each, click.Option)]
        given, words, _ = click.Command(self.name, params=options).make_parser(ctx).parse_args(list(args))
        return given, words


def _may_be_run(word: str) -> bool:
    """Return whether a first word may name a run: it is not a checkpoint, KEY=VALUE, or an option of TensorBoard."""
    return not (_is_whole(word) or word in ("best", "minimum") or "=" in word or word.startswith("-"))


def _is_whole(word: str) -> bool:
    try:
        int(word)
    except ValueError:
        return False
    return True


class _Commands(GroupWithExamples):
    """Lists the commands without importing them."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        command = importlib.import_module(f"trainerd.cli.commands.{COMMANDS[cmd_name][0]}.{cmd_name}").command
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
        for group, heading in GROUPS.items():
            with formatter.section(heading):
                formatter.write_dl([(name, text) for name, (folder, text) in COMMANDS.items() if folder == group])


@click.group(
    cls=_Commands,
    examples={
        "trainerd init mnist": "Write a config and a small job into the folder `mnist`.",
        "trainerd start --config mnist/trainerd.toml": "Train it in the background.",
        "trainerd status mnist": "Show how that run is doing.",
    },
    context_settings={"help_option_names": ["-h", "--help"]},
)
@click.version_option(__version__, prog_name="trainerd", message="%(prog)s %(version)s")
def cli() -> None:
    """Train a TensorFlow model for days or months, and lose nothing.

    A command acts on the run of the current folder's trainerd.toml, or of RUN: a name that `trainerd list` shows, or a
    run directory. Without a trainerd.toml, that is the digits example that comes with trainerd.
    """
