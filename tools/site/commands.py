"""A page for each command, from what click knows of it: usage, options, examples, exit codes, and related pages."""

from __future__ import annotations

import inspect
import os
import re
from pathlib import Path, PurePosixPath

import click

from tools.site.pages import DOCS, place, title_of
from trainerd.cli.app import COMMANDS, GROUPS, CommandWithExamples, cli

FOLDER = PurePosixPath("reference/commands")
_SHOWN = 4  # guides
_NO_GUIDES = ("decisions", "benchmarks.md")


def pages() -> dict[PurePosixPath, str]:
    """Return the page of each command, and one that lists them."""
    names = [name for group in GROUPS for name, (of, _) in COMMANDS.items() if of == group]
    return {FOLDER / "index.md": _index(), **{FOLDER / f"{name}.md": _page(name) for name in names}}


def _index() -> str:
    parts = [
        "# Commands\n",
        "Every command, with its options, examples and exit codes.",
        "`trainerd COMMAND --help` shows the same.\n",
    ]
    for group, heading in GROUPS.items():
        rows = [f"| [`trainerd {name}`]({name}.md) | {text} |" for name, (of, text) in COMMANDS.items() if of == group]
        parts += [f"\n## {heading}\n", "| command | what it does |", "|---|---|", *rows]
    return "\n".join(parts) + "\n"


def _page(name: str) -> str:
    command = cli.get_command(click.Context(cli), name)
    assert isinstance(command, CommandWithExamples)
    parts = [f"# trainerd {name}\n"]
    if isinstance(command, click.Group):
        parts += [inspect.cleandoc(command.help or ""), ""]
        for each in command.commands.values():
            assert isinstance(each, CommandWithExamples)
            parts += [f"## trainerd {name} {each.name}\n", *_described(each, f"trainerd {name} {each.name}", 3)]
    else:
        parts += _described(command, f"trainerd {name}", 2)
    return "\n".join([*parts, "## See also\n", *_related(name)]) + "\n"


def _described(command: CommandWithExamples, title: str, level: int) -> list[str]:
    context = click.Context(command, info_name=title, help_option_names=["-h", "--help"])
    usage = command.get_usage(context).removeprefix("Usage: ")
    mark = "#" * level
    parts = [inspect.cleandoc(command.help or "").replace("\b\n", ""), "", f"```text\n{usage}\n```\n"]
    parts += [f"{mark} Examples\n", "```sh", *_examples(command), "```\n"]
    options = [p for p in command.get_params(context) if isinstance(p, click.Option) and "--help" not in p.opts]
    records = [(each, each.get_help_record(context)) for each in options]
    rows = [f"| {_anchored(each, record[0])} | {_plain(record[1])} |" for each, record in records if record]
    parts += [f"{mark} Options\n", "| option | what it does |", "|---|---|", *rows, ""]
    exits = command.exits if 0 in command.exits else {0: "Success.", **command.exits}
    codes = [f"| {code} | {text} |" for code, text in exits.items()]
    rest = "The other codes are those of [Messages](../messages.md).\n"
    return [*parts, f"{mark} Exit codes\n", "| code | meaning |", "|---|---|", *codes, "", rest]


def _examples(command: CommandWithExamples) -> list[str]:
    return "\n\n".join(f"# {text}\n{line}" for line, text in command.examples.items()).splitlines()


def _anchored(option: click.Option, shown: str) -> str:
    """Return an option for its cell, with a link to itself."""
    name = max(option.opts, key=len)
    return f'<a id="{name}"></a>[`{_plain(shown)}`](#{name})'


def _plain(text: str) -> str:
    """Return a text for a cell of a table."""
    return " ".join(text.split()).replace("|", "\\|")


def _related(name: str) -> list[str]:
    """Return links to the guides that show a command, and to the other commands of its group."""
    group = COMMANDS[name][0]
    others = [f"[`{each}`]({each}.md)" for each, (of, _) in COMMANDS.items() if of == group and each != name]
    guides = [f"[{title_of(path)}]({os.path.relpath(place(path), FOLDER)})" for path in _guides(name)]
    lines = [f"- Guides: {', '.join(guides)}"] if guides else []
    return [*lines, f"- Commands: {', '.join(others)}", "- [All commands](index.md)"]


def _guides(name: str) -> list[Path]:
    """Return the pages of docs/ that name a command most often."""
    found = {}
    for path in sorted(DOCS.rglob("*.md")):
        if path.relative_to(DOCS).parts[0] not in (*_NO_GUIDES, "README.md") and path.name != "index.md":
            found[path] = len(re.findall(rf"\btrainerd {name}\b", path.read_text(encoding="utf-8")))
    named = [path for path, count in found.items() if count]
    return sorted(named, key=lambda path: -found[path])[:_SHOWN]
