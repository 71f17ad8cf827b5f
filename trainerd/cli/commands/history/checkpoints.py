"""`trainerd checkpoints`: the checkpoints of a run, as a table."""

from __future__ import annotations

import json
import math
import shutil
import sys
import time
from collections.abc import Sequence
from dataclasses import replace

import click

from trainerd.cli import options
from trainerd.cli.advice import how_to_start
from trainerd.cli.app import CommandWithExamples
from trainerd.cli.columns import GAP, lines, width
from trainerd.cli.say import say
from trainerd.copies.status import CopyStatus, read_copy_status
from trainerd.errors import NotRunningError
from trainerd.history import rollback
from trainerd.history.timeline import CheckpointMark, TimelineEntry, timeline
from trainerd.rundir.lock import read_holder
from trainerd.rundir.paths import RunDirectory
from trainerd.rundir.state import read_state
from trainerd.text import figure, size


@click.command(
    "checkpoints",
    cls=CommandWithExamples,
    examples={
        "trainerd checkpoints": "List the checkpoints of the run of the current folder.",
        "trainerd checkpoints digits --json": "Print those of the run `digits` for a program.",
    },
)
@options.of_one_argument
@click.option("--json", "as_json", is_flag=True, help="Print a list of objects, on one line.")
def command(run: options.RunOptions, as_json: bool) -> None:
    """Show the checkpoints of a run: step, time, size, reason, metrics and marks. The newest step is the last line.

    A column `input` shows how much of each is the position of the dataset, such as a shuffle buffer, if that is a MiB
    or more. The command reads the manifests, and the indexes of large checkpoints. It does not verify the files.
    """
    rundir = options.find_rundir(run)
    entries = _with_inputs(_with_copies(timeline(rundir), read_copy_status(rundir)))
    if rollback.is_under_way(rundir) and read_holder(rundir) is None:
        say(f"a rollback was cut short, and a checkpoint may be missing here. {rollback.FINISHES}", err=True)
    if as_json:
        say(json.dumps([entry.to_json() for entry in entries]))
        return
    in_memory = _in_memory(rundir)
    if not (entries or in_memory):
        start = how_to_start(rundir, run, "run")
        raise NotRunningError(f"{rundir.path} has no checkpoints yet. {start} writes some.")
    is_terminal = sys.stdout.isatty()
    shown = [table(entries, shutil.get_terminal_size().columns if is_terminal else None)] if entries else []
    say("\n".join([*shown, *in_memory]))


def _in_memory(rundir: RunDirectory) -> list[str]:
    """Return the line about the step that is in memory; none if there is none that is newer than the checkpoints."""
    state = read_state(rundir.state)
    if state is None or state.memory_step is None:
        return []
    if_killed = " if the process is killed" if read_holder(rundir) is not None else ""
    return [f"Step {state.memory_step:,} is in memory: the next start resumes from it{if_killed}."]


def _with_copies(entries: Sequence[TimelineEntry], status: CopyStatus | None) -> list[TimelineEntry]:
    """Mark the checkpoints that are copied elsewhere. Another one of the same step has another time."""
    copied = status.copied if status is not None else {}
    return [
        replace(each, marks=(*each.marks, CheckpointMark.COPIED))
        if each.at is not None and copied.get(each.step) == each.at
        else each
        for each in entries
    ]


def _with_inputs(entries: Sequence[TimelineEntry]) -> list[TimelineEntry]:
    """Add how large the positions of inputs are, of checkpoints in which one may be large."""
    from trainerd.checkpoints.format import input_size  # beside what imports TensorFlow

    sizes = [input_size.input_bytes(each.path) if each.bytes >= input_size.LARGE else 0 for each in entries]
    return [
        replace(each, input_bytes=found if found >= input_size.LARGE else 0)
        for each, found in zip(entries, sizes, strict=True)
    ]


def table(entries: Sequence[TimelineEntry], room: int | None) -> str:
    """Return the entries as a table, with as many metrics as fit.

    Args:
      entries: the checkpoints, one at least.
      room: the width of the terminal, in characters; None: as wide as need be.
    """
    names = list(dict.fromkeys(name for entry in reversed(entries) for name in entry.metrics))
    left = [("step", "when", "size", "input", "reason"), *map(_left, entries)]
    right = [("marks",), *((", ".join(_marks(entry)),) for entry in entries)]
    metrics = [[" ".join(name.split()), *(_metric(entry, name) for entry in entries)] for name in names]
    columns = [column for column in zip(*left, strict=True) if any(column[1:]) or column[0] != "input"]
    reason = len(columns) - 1
    used = sum(map(width, columns)) + len(GAP) * len(columns) + width([text for (text,) in right])
    shown, limit = 0, math.inf if room is None else room
    while shown < len(names) and used + width(metrics[shown]) + len(GAP) <= limit:
        used += width(metrics[shown]) + len(GAP)
        shown += 1
    rows = list(zip(*columns, *metrics[:shown], [text for (text,) in right], strict=True))
    found = lines(rows, left={reason, len(rows[0]) - 1})
    if shown < len(names):
        found.append(f"Metrics that do not fit: {len(names) - shown}. --json has all.")
    return "\n".join(found)


def _left(entry: TimelineEntry) -> tuple[str, str, str, str, str]:
    when = "" if entry.at is None else time.strftime("%Y-%m-%d %H:%M", time.localtime(entry.at))
    of_input = size(entry.input_bytes) if entry.input_bytes else ""
    return f"{entry.step:,}", when, size(entry.bytes) if entry.at is not None else "", of_input, entry.reason


def _marks(entry: TimelineEntry) -> list[str]:
    """Return the marks of a checkpoint. An earlier line is shown by its number."""
    return [f"line {entry.line}" if mark is CheckpointMark.EARLIER_LINE else str(mark) for mark in entry.marks]


def _metric(entry: TimelineEntry, name: str) -> str:
    at = entry.measured.get(name, entry.step)
    of_step = f" at {at:,}" if at != entry.step else ""
    return figure(entry.metrics[name]) + of_step if name in entry.metrics else ""
