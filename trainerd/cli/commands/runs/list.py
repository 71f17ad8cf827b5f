"""`trainerd list`: every run of this user on this machine."""

from __future__ import annotations

import contextlib
import difflib
import json
import shutil
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import click

from trainerd.agent.progress import Stage
from trainerd.agent.shown import by_run
from trainerd.cli.app import CommandWithExamples
from trainerd.cli.columns import GAP, lines, width
from trainerd.cli.say import say
from trainerd.errors import StorageError, UsageError
from trainerd.rundir.runs import ListedRun, all_runs
from trainerd.rundir.state import State
from trainerd.text import figure, seconds

_HEAD = ("run", "phase", "step", "loss", "rate", "left", "saved", "tags", "params", "trouble")
_LEFT = {0, 1, 7, 8, 9}
_MAY_BE_EMPTY = {_HEAD.index(name) for name in ("tags", "params")}
_BELOW = ("params", "trouble")  # columns that a narrow terminal has below each row
_LONGEST_PARAMS = 40  # characters
_NONE = "No run is known here. `trainerd run` trains one."


@click.command(
    "list",
    cls=CommandWithExamples,
    examples={
        "trainerd list": "Show all runs.",
        "trainerd list --running --sort -rate": "Show those that train now, the fastest first.",
    },
)
@click.option("-w", "--watch", is_flag=True, help="Show the list again every second, until Ctrl-C.")
@click.option("--running", "is_running", is_flag=True, help="Only runs that train now.")
@click.option("--tag", "tags", multiple=True, metavar="TAG", help="Only runs with this tag; repeatable.")
@click.option(
    "--sort", "column", metavar="COLUMN", help="Sort by a column or a metric; with `-` in front, the largest first."
)
@click.option("--json", "as_json", is_flag=True, help="Print a list of objects, on one line.")
def command(watch: bool, is_running: bool, tags: tuple[str, ...], column: str | None, as_json: bool) -> None:
    """Show every run of yours on this machine, and those of the machine's services, whatever started them.

    A run is listed once it has started. Other commands take the name that is shown here: `trainerd status NAME`.
    """
    while True:
        runs = chosen(all_runs(), tags, column, is_running=is_running)
        if watch and not as_json:
            click.clear()
        if as_json:
            say(json.dumps([run.to_json() for run in runs]))
        else:
            room = shutil.get_terminal_size().columns if sys.stdout.isatty() else None
            say(table(runs, room, time.time(), _waiting()) if runs or not is_running else "No run is running.")
        if not watch:
            return
        time.sleep(1.0)


def chosen(
    runs: Sequence[ListedRun], tags: Sequence[str] = (), column: str | None = None, *, is_running: bool = False
) -> list[ListedRun]:
    """Return the runs that a person asks for.

    Args:
      runs: all runs.
      tags: those that a run must have.
      column: what to sort by: the head of a column or a metric, with "-" in front for the largest first. Runs without
        a value come last.
      is_running: whether only those are wanted that train now.

    Raises:
      UsageError: no run has a tag, or the column does not exist.
    """
    known = {tag for run in runs if run.state is not None for tag in run.state.tags}
    for tag in tags:
        if tag not in known:
            raise UsageError(f"--tag: no run has the tag {tag!r}. {_hint(tag, sorted(known), 'The tags are')}")
    found = [run for run in runs if set(tags) <= set(run.state.tags if run.state is not None else ())]
    found = [run for run in found if run.is_running or not is_running]
    if column is None:
        return found
    name = column.removeprefix("-")
    metrics = {name: None for run in runs if run.state is not None for name in run.state.metrics}
    columns = list(dict.fromkeys([*_SORTED_BY, *metrics]))
    if name not in columns:
        hint = _hint(name, columns, "They are")
        raise UsageError(f"--sort: expected a column or a metric, got {name!r}. {hint}")
    values = [(_value(run, name), run) for run in found]
    sound = [(value, run) for value, run in values if value is not None and value == value]  # NaN is not itself
    sound.sort(key=lambda each: each[0], reverse=column != name)
    return [run for _, run in sound] + [run for value, run in values if value is None or value != value]


def _hint(given: str, known: Sequence[str], words: str) -> str:
    near = difflib.get_close_matches(given, known, n=1)
    if near:
        return f"Did you mean {near[0]}?"
    return f"{words} {', '.join(known)}." if known else "No run has one."


# What the rows of a column are sorted by; None where a run has nothing there.
_SORTED_BY: dict[str, Callable[[ListedRun, State], Any]] = {
    "run": lambda run, state: run.name,
    "phase": lambda run, state: state.phase_now(run.is_running),
    "step": lambda run, state: state.step,
    "loss": lambda run, state: _loss(state),
    "rate": lambda run, state: state.steps_per_sec if run.is_running else None,
    "left": lambda run, state: state.eta_secs if run.is_running else None,
    "saved": lambda run, state: state.last_checkpoint.at if state.last_checkpoint is not None else None,
}


def _value(run: ListedRun, column: str) -> Any:
    if column == "run":
        return run.name
    if run.state is None:
        return None
    get = _SORTED_BY.get(column)
    return get(run, run.state) if get is not None else run.state.metrics.get(column)


def _waiting() -> dict[Path, str]:
    """Return why runs of the queue do not train, by their run directories; empty if the queue cannot be read."""
    with contextlib.suppress(StorageError):
        now, stages = time.time(), (Stage.WAITING, Stage.PAUSED)
        return {path: f"queue: {each.line(now)}" for path, each in by_run().items() if each.stage in stages}
    return {}


def table(runs: Sequence[ListedRun], room: int | None, now: float, waiting: Mapping[Path, str] | None = None) -> str:
    """Return the runs as a table.

    Args:
      runs: all of them.
      room: the width of the terminal, in characters; None: as wide as need be.
      now: seconds since 1970 (UTC).
      waiting: why runs of the queue do not train, by their run directories.
    """
    if not runs:
        return _NONE
    rows = [_HEAD, *(_row(run, now, (waiting or {}).get(run.rundir.path, "")) for run in runs)]
    empty = {column for column in _MAY_BE_EMPTY if not any(row[column] for row in rows[1:])}
    rows = [tuple(text for column, text in enumerate(row) if column not in empty) for row in rows]
    found = lines(rows, _LEFT)
    if room is not None and width(found) > room:
        found = list(_in_narrow(rows))
    return "\n".join(line if room is None else _cut(line, room) for line in found)


def _cut(text: str, room: int) -> str:
    return text if len(text) <= room else f"{text[: room - 1]}…"


def _in_narrow(rows: Sequence[tuple[str, ...]]) -> Iterator[str]:
    """Yield the table for a narrow terminal: the last columns are below each row."""
    first = next(column for column, name in enumerate(rows[0]) if name in _BELOW)
    for row, line in zip(rows, lines([row[:first] for row in rows], _LEFT), strict=True):
        yield line
        if any(row[first:]) and row is not rows[0]:
            yield f"  {GAP.join(filter(None, row[first:]))}"


def _row(run: ListedRun, now: float, waits: str) -> tuple[str, ...]:
    state, name = run.state, " ".join(run.name.split())
    if state is None:
        return name, "running" if run.is_running else "-", "", "", "", "", "", "", "", " ".join(run.unread.split())
    saved = state.last_checkpoint
    return (
        name,
        state.phase_now(run.is_running),
        f"{state.step:,}" + (f" of {state.end:,}" if state.end else ""),
        figure(loss) if (loss := _loss(state)) is not None else "",
        f"{state.steps_per_sec:,.4g}/s" if run.is_running and state.steps_per_sec else "",
        seconds(state.eta_secs) if run.is_running and state.eta_secs is not None else "",
        f"{seconds(max(0.0, now - saved.at))} ago" if saved else "",
        ", ".join(state.tags),
        _cut(state.shown_params(), _LONGEST_PARAMS),
        _trouble(run, state) or waits,
    )


def _loss(state: State) -> float | None:
    """Return the loss, or else the first metric that there is."""
    return state.metrics.get("loss", next(iter(state.metrics.values()), None))


def _trouble(run: ListedRun, state: State) -> str:
    """Return the last problem of a run, in a line."""
    if state.error:
        found = state.error
    elif state.is_left(run.is_running):
        found = state.left_as
    elif state.warnings:
        found = state.warnings[-1]
    else:
        found = str(state.failure) if state.failure is not None else ""
    return " ".join(found.split())
