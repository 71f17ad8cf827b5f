"""Prints text that may come from a run directory, and so from anybody."""

from __future__ import annotations

import click

from trainerd.text import printable


def say(text: str, *, err: bool = False, nl: bool = True) -> None:
    """Print it, with control characters as escapes.

    Args:
      text: the text; it may have several lines.
      err: whether it goes to standard error.
      nl: whether a line break follows.
    """
    click.echo(printable(text), err=err, nl=nl)
