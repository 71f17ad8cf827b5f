"""A page for each command, from what click knows of it."""

from __future__ import annotations

import inspect
from pathlib import PurePosixPath

import click

from trainerd.cli.app import COMMANDS, GROUPS, cli

FOLDER = PurePosixPath("reference/commands")


def pages() -> dict[PurePosixPath, str]:
    """The page of each command, and one that lists them."""
    found = {FOLDER / f"{name}.md": _page(name) for name in COMMANDS}
    return {FOLDER / "index.md": _index(), **found}


def _index() -> str:
    parts = ["# Commands\n", "`trainerd COMMAND --help` shows the same in a terminal."]
    parts += ["[Command line](../../command-line.md) says how a command finds its run.\n"]
    for group, heading in GROUPS.items():
        rows = [f"| [`trainerd {name}`]({name}.md) | {text} |" for name, (of, text) in COMMANDS.items() if of == group]
        parts += [f"\n## {heading}\n", "| command | what it does |", "|---|---|", *rows]
    return "\n".join(parts) + "\n"


def _page(name: str) -> str:
    command = cli.get_command(click.Context(cli), name)
    assert command is not None
    parts = [f"# trainerd {name}\n", *_described(command, f"trainerd {name}")]
    for each in command.commands.values() if isinstance(command, click.Group) else ():
        title = f"trainerd {name} {each.name}"
        parts += [f"\n## {title}\n", *_described(each, title)]
    return "\n".join(parts) + "\n"


def _described(command: click.Command, title: str) -> list[str]:
    context = click.Context(command, info_name=title, help_option_names=["-h", "--help"])
    usage = command.get_usage(context).removeprefix("Usage: ")
    parts = [f"```text\n{usage}\n```\n", inspect.cleandoc(command.help or "").replace("\b\n", ""), ""]
    records = [p.get_help_record(context) for p in command.get_params(context)]
    rows = [f"| `{_plain(left)}` | {_plain(right)} |" for left, right in filter(None, records)]
    return [*parts, "| option | what it does |", "|---|---|", *rows]


def _plain(text: str) -> str:
    """A text for a cell of a table."""
    return " ".join(text.split()).replace("|", "\\|")
