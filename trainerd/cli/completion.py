"""The completions that a shell offers at a press of Tab: the steps of a run's checkpoints, and its metrics."""

from __future__ import annotations

from collections.abc import Iterable

import click
from click.shell_completion import CompletionItem

from trainerd.cli import options
from trainerd.errors import TrainerdError
from trainerd.history.timeline import TimelineEntry, present_line
from trainerd.text import is_plain_word, printable

_TARGETS = ("best", "minimum")


def steps(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Return the steps of the checkpoints, newest first, each with its reason and marks."""
    found = [(str(entry.step), _said(", ".join([entry.reason, *entry.marks]))) for entry in reversed(_entries(ctx))]
    return [CompletionItem(step, help=said) for step, said in found if step.startswith(incomplete)]


def targets(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Return the words for a checkpoint, and the steps."""
    return [*_starting(_TARGETS, incomplete), *steps(ctx, param, incomplete)]


def metrics(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Return the metrics of the checkpoints."""
    return _starting(dict.fromkeys(name for entry in _entries(ctx) for name in entry.metrics), incomplete)


def _said(text: str) -> str:
    """Return a text of a manifest, which anybody may have written, as one line of a terminal."""
    return " ".join(printable(text).split())


def _starting(words: Iterable[str], incomplete: str) -> list[CompletionItem]:
    """Return the words that begin like this, and that a shell takes as they are; see `is_plain_word`."""
    return [CompletionItem(word) for word in words if is_plain_word(word) and word.startswith(incomplete)]


def _entries(ctx: click.Context) -> list[TimelineEntry]:
    """Return the checkpoints of the run that is typed so far. A shell has no use for an error."""
    given = ctx.params
    try:
        run = options.RunOptions(given.get("config_path"), given.get("logdir") or given.get("run"))
        return present_line(options.find_rundir(run))
    except TrainerdError:
        return []
