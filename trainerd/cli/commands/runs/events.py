"""`trainerd events`: what happened to a run."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Sequence
from pathlib import Path

import click

from trainerd.cli import options
from trainerd.cli.columns import lines
from trainerd.cli.say import say
from trainerd.errors import NotRunningError
from trainerd.rundir import run_events
from trainerd.rundir.run_events import Event

_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86400}


class _Span(click.ParamType):  # type: ignore[type-arg]  # generic since click 8.5
    """A span of time, such as 90s, 30m, 12h or 2d, in seconds."""

    name = "span"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """Read it."""
        found = re.fullmatch(r"(\d{1,9}(?:\.\d{1,3})?)([smhd])", str(value))
        if found is None:
            self.fail(f"{value!r} is no span of time. Say 90s, 30m, 12h or 2d.", param, ctx)
        return float(found[1]) * _UNITS[found[2]]


@click.command("events")
@options.config_option
@options.logdir_option
@options.run_argument
@click.option("--since", type=_Span(), metavar="SPAN", help="Those of the last 90s, 30m, 12h or 2d.")
@click.option("--json", "as_json", is_flag=True, help="Print a list of objects, on one line.")
def command(config_path: Path | None, logdir: Path | None, since: float | None, as_json: bool) -> None:
    """Show what happened to a run, the newest last: starts, pauses, failures, kills, saves that failed, rollbacks."""
    rundir = options.find_rundir(config_path, logdir)
    begin = 0.0 if since is None else time.time() - since
    found = [event for event in run_events.read(rundir) if event.at >= begin]
    if as_json:
        say(json.dumps([event.to_json() for event in found]))
    elif found:
        say(table(found))
    else:
        when = "" if since is None else " in that time"
        raise NotRunningError(f"nothing has happened in {rundir.path}{when}.")


def table(events: Sequence[Event]) -> str:
    """The events as a table; one at least."""
    return "\n".join(lines([_row(event) for event in events], left={0, 1, 3}))


def _row(event: Event) -> tuple[str, str, str, str]:
    when = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(event.at))
    step = f"step {event.step:,}" if event.step is not None else ""
    return when, str(event.kind), step, " ".join(event.said.split())
