"""`trainerd events`: what happened to a run."""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Sequence

import click

from trainerd.cli import options
from trainerd.cli.app import CommandWithExamples
from trainerd.cli.columns import lines
from trainerd.cli.say import say
from trainerd.cli.usage import Duration, OneOf, Whole
from trainerd.errors import NotRunningError
from trainerd.rundir import run_events
from trainerd.rundir.run_events import Event, EventKind
from trainerd.text import counted

_SHOWN = 50


@click.command(
    "events",
    cls=CommandWithExamples,
    examples={
        "trainerd events": "Show the last 50 events of the run of the current folder.",
        "trainerd events digits --kind failure --since 2d": "Show the failures of a run in the last two days.",
    },
)
@options.of_one_argument
@click.option(
    "--kind",
    "kinds",
    type=OneOf([*map(str, EventKind)]),
    multiple=True,
    help="Only events of this kind; repeatable.",
)
@click.option("--since", type=Duration(), metavar="SPAN", help="Only events of the last 90s, 30m, 12h or 2d.")
@click.option(
    "-n",
    "--lines",
    "count",
    type=Whole(min=1),
    help="The number of events. Default: the last 50; with --json, all.",
)
@click.option("--json", "as_json", is_flag=True, help="Print a list of objects, on one line.")
def command(
    run: options.RunOptions, kinds: tuple[str, ...], since: float | None, count: int | None, as_json: bool
) -> None:
    """Show the events of a run, the newest last: starts, pauses, failures, kills, saves that failed, rollbacks."""
    rundir = options.find_rundir(run)
    begin = 0.0 if since is None else time.time() - since
    found = [event for event in run_events.read(rundir) if event.at >= begin and (not kinds or event.kind in kinds)]
    shown = found[-(count or (len(found) if as_json else _SHOWN)) :]
    if as_json:
        say(json.dumps([event.to_json() for event in shown]))
    elif shown:
        if earlier := found[: -len(shown)]:
            say(_earlier(earlier), err=True)
        say(table(shown))
    else:
        of = f" of kind {' or '.join(kinds)}" if kinds else ""
        when = "" if since is None else " in that time"
        raise NotRunningError(f"{rundir.path} has no events{of}{when}.")


def _earlier(events: Sequence[Event]) -> str:
    """Return a line that counts the events not shown: many events of one kind must not hide the others."""
    counts = ", ".join(f"{count} {kind}" for kind, count in Counter(str(event.kind) for event in events).most_common())
    count = counted(len(events), "earlier event")
    return f"Not shown: {count} ({counts}). --kind chooses a kind, -n {_SHOWN * 10} shows more."


def table(events: Sequence[Event]) -> str:
    """Return the events as a table; one at least."""
    return "\n".join(lines([_row(event) for event in events], left={0, 1, 3}))


def _row(event: Event) -> tuple[str, str, str, str]:
    when = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(event.at))
    step = f"step {event.step:,}" if event.step is not None else ""
    return when, str(event.kind), step, " ".join(event.said.split())
