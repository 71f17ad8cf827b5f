"""The daily summary: every run that did something, how its time was spent, and what happened. Pure."""

from __future__ import annotations

import socket
from collections import Counter
from collections.abc import Sequence
from datetime import datetime, timedelta

from trainerd.rundir.state import State
from trainerd.text import printable, seconds
from trainerd.watch.delivery.notice import Notice
from trainerd.watch.run_reader import RunView

DAY = 86400.0
MOST_RUNS, MOST_PICTURES = 30, 3


def due_since(summary_at: str, now: datetime) -> datetime:
    """Return the last time at which a summary was due.

    Args:
      summary_at: the time of day, such as "08:00".
      now: the local time.
    """
    hour, minute = map(int, summary_at.split(":"))
    today = now.replace(hour=hour, minute=minute, second=0, microsecond=0)
    return today if today <= now else today - timedelta(days=1)


def summary(runs: Sequence[RunView], due: datetime, now: float) -> Notice:
    """Return the summary of the runs that trained within the last day.

    Args:
      runs: all of them.
      due: when it was due, in local time.
      now: seconds since 1970 (UTC).
    """
    states = [(run, run.state) for run in runs if run.state is not None]
    days = [(run, state) for run, state in states if run.is_running or now - state.at < DAY]
    busy = sum(run.is_running for run, _ in days)
    title = f"trainerd on {socket.gethostname()}: {busy} of {len(days)} runs are training"
    lines = [_line(run, state, now) for run, state in days[:MOST_RUNS]]
    if len(days) > MOST_RUNS:
        lines.append(f"and {len(days) - MOST_RUNS} more: `trainerd list` shows them")
    pictures = tuple(str(run.rundir.path) for run, state in days if state.metrics)[:MOST_PICTURES]
    body = "\n\n".join(lines) or "No run trained in the last day."
    return Notice("summary", "", f"summary {due:%Y-%m-%d}", now, title, printable(body), pictures)


def _line(run: RunView, state: State, now: float) -> str:
    parts = [f"{' '.join(run.name.split())}: {state.phase_now(run.is_running)}, {state.line()}"]
    if (saved := state.last_checkpoint) is not None:
        parts.append(f"  last checkpoint: step {saved.step:,}, {seconds(max(0.0, now - saved.at))} ago")
    if shares := state.goodput.percent():
        parts.append("  time: " + ", ".join(f"{kind} {share:.1f} %" for kind, share in shares.items() if share))
    if counts := Counter(str(event.kind) for event in run.events if now - event.at < DAY):
        parts.append("  events: " + ", ".join(f"{kind} {count}×" for kind, count in counts.most_common()))
    return "\n".join(parts)
