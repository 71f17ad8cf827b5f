"""`trainerd checkpoints`: the checkpoints of a run, as a table."""

from __future__ import annotations

import json
import math
import shutil
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import click

from trainerd.cli import options
from trainerd.cli.say import say
from trainerd.errors import NotRunningError
from trainerd.history.timeline import Entry, Mark, timeline
from trainerd.text import figure, size

_GAP = "  "


@click.command("checkpoints")
@options.config_option
@options.logdir_option
@click.option("--json", "as_json", is_flag=True, help="Print a list of objects, on one line.")
def command(config_path: Path | None, logdir: Path | None, as_json: bool) -> None:
    """Show the checkpoints of a run: step, time, size, reason, metrics and marks. The newest step is the last.

    It reads the manifests and verifies no files.
    """
    rundir = options.find_rundir(config_path, logdir)
    entries = timeline(rundir)
    if as_json:
        say(json.dumps([entry.to_json() for entry in entries]))
    elif entries:
        is_terminal = sys.stdout.isatty()
        say(table(entries, shutil.get_terminal_size().columns if is_terminal else None))
    else:
        run = options.command_line("run", config_path, logdir)
        raise NotRunningError(f"there are no checkpoints in {rundir.path} yet. `{run}` writes some.")


def table(entries: Sequence[Entry], width: int | None) -> str:
    """The entries as a table, with as many metrics as fit.

    Args:
      entries: the checkpoints, one at least.
      width: of the terminal, in characters; None: as wide as need be.
    """
    names = list(dict.fromkeys(name for entry in reversed(entries) for name in entry.metrics))
    left = [("step", "when", "size", "reason"), *map(_left, entries)]
    right = [("marks",), *((", ".join(_marks(entry)),) for entry in entries)]
    metrics = [[" ".join(name.split()), *(_metric(entry, name) for entry in entries)] for name in names]
    columns = [*zip(*left, strict=True)]
    used = sum(map(_width, columns)) + len(_GAP) * len(columns) + _width([text for (text,) in right])
    shown, limit = 0, math.inf if width is None else width
    while shown < len(names) and used + _width(metrics[shown]) + len(_GAP) <= limit:
        used += _width(metrics[shown]) + len(_GAP)
        shown += 1
    lines = _lines([*columns, *metrics[:shown]], [text for (text,) in right])
    if shown < len(names):
        lines.append(f"Metrics that do not fit: {len(names) - shown}. --json has all.")
    return "\n".join(lines)


def _left(entry: Entry) -> tuple[str, str, str, str]:
    when = "" if entry.at is None else time.strftime("%Y-%m-%d %H:%M", time.localtime(entry.at))
    return f"{entry.step:,}", when, size(entry.bytes) if entry.at is not None else "", entry.reason


def _marks(entry: Entry) -> list[str]:
    """Its marks; an earlier line by its number."""
    return [f"line {entry.line}" if mark is Mark.EARLIER_LINE else str(mark) for mark in entry.marks]


def _metric(entry: Entry, name: str) -> str:
    return figure(entry.metrics[name]) if name in entry.metrics else ""


def _width(column: Sequence[str]) -> int:
    return max(map(len, column))


def _lines(columns: Sequence[Sequence[str]], marks: Sequence[str]) -> list[str]:
    """The lines of a table: numbers to the right, the reason and the marks to the left."""
    widths = [_width(column) for column in columns]
    rows = []
    for row, mark in zip(zip(*columns, strict=True), marks, strict=True):
        cells = [
            text.ljust(width) if place == 3 else text.rjust(width)
            for place, (text, width) in enumerate(zip(row, widths, strict=True))
        ]
        rows.append(_GAP.join([*cells, mark]).rstrip())
    return rows
