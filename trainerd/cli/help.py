"""The `--help` of a command: its text, its options, its exit codes, and examples."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import click


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
