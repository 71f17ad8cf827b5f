"""`trainerd list`: every run of this user on this machine."""

from __future__ import annotations

import json
import shutil
import sys
import time
from collections.abc import Iterator, Sequence

import click

from trainerd.cli.columns import lines, width
from trainerd.cli.say import say
from trainerd.rundir.runs import ListedRun, all_runs
from trainerd.rundir.state import State
from trainerd.text import figure, seconds

_HEAD = ("run", "phase", "step", "loss", "rate", "left", "saved", "tags", "trouble")
_LEFT = {0, 1, 7, 8}
_TAGS = _HEAD.index("tags")
_NONE = "No run is known here. `trainerd run` trains one."


@click.command("list")
@click.option("-w", "--watch", is_flag=True, help="Show them again every second, until Ctrl-C.")
@click.option("--json", "as_json", is_flag=True, help="Print a list of objects, on one line.")
def command(watch: bool, as_json: bool) -> None:
    """Show every run of yours on this machine, and those of the machine's services, whatever started them.

    A run is known once it has started. Other commands take the name that is shown here in place of a folder.
    """
    while True:
        runs = all_runs()
        if watch and not as_json:
            click.clear()
        if as_json:
            say(json.dumps([run.to_json() for run in runs]))
        else:
            room = shutil.get_terminal_size().columns if sys.stdout.isatty() else None
            say(table(runs, room, time.time()))
        if not watch:
            return
        time.sleep(1.0)


def table(runs: Sequence[ListedRun], room: int | None, now: float) -> str:
    """Return the runs as a table.

    Args:
      runs: all of them.
      room: the width of the terminal, in characters; None: as wide as need be.
      now: seconds since 1970 (UTC).
    """
    if not runs:
        return _NONE
    rows = [_HEAD, *(_row(run, now) for run in runs)]
    if not any(row[_TAGS] for row in rows[1:]):
        rows = [(*row[:_TAGS], *row[_TAGS + 1 :]) for row in rows]
    found = lines(rows, _LEFT)
    if room is not None and width(found) > room:
        found = list(_with_troubles_below(rows))
    return "\n".join(line if room is None or len(line) <= room else f"{line[: room - 1]}…" for line in found)


def _with_troubles_below(rows: Sequence[tuple[str, ...]]) -> Iterator[str]:
    """Yield the table for a narrow terminal: the last column is below each row."""
    for row, line in zip(rows, lines([row[:-1] for row in rows], _LEFT), strict=True):
        yield line
        if row[-1] and row is not rows[0]:
            yield f"  {row[-1]}"


def _row(run: ListedRun, now: float) -> tuple[str, ...]:
    state, name = run.state, " ".join(run.name.split())
    if state is None:
        return name, "running" if run.is_running else "-", "", "", "", "", "", "", " ".join(run.unread.split())
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
        _trouble(run, state),
    )


def _loss(state: State) -> float | None:
    """Return the loss, or else the first metric that there is."""
    return state.metrics.get("loss", next(iter(state.metrics.values()), None))


def _trouble(run: ListedRun, state: State) -> str:
    """Return the last problem of a run, in a line."""
    if state.error:
        found = state.error
    elif state.is_left(run.is_running):
        found = f"it ended while {state.phase}, without a save"
    elif state.warnings:
        found = state.warnings[-1]
    else:
        found = str(state.failure) if state.failure is not None else ""
    return " ".join(found.split())
