"""The runs as JSON for the page. All of it passes `harmless`, since anybody may have written the files behind it."""

from __future__ import annotations

import json
import math
import urllib.parse
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from trainerd.history.curves import Curve
from trainerd.history.timeline import TimelineEntry
from trainerd.rundir.run_events import Event, notable
from trainerd.rundir.runs import Cached
from trainerd.rundir.state import State
from trainerd.text import printable
from trainerd.watch.run_reader import RunDetail, RunView

MOST_RUNS = 200  # that are shown at once
_METRICS, _EVENTS, _WARNINGS, _CHECKPOINTS, _TAGS, _CURVES = 100, 10, 5, 8, 32, 500  # of one run
_PARAMS = 4000  # characters
_ANSWERS = 4  # of one run, and ids of one answer
_DEVICES = 64  # of one run
_SMOOTHED = 60  # a curve is smoothed over such a part of its points
_LONGEST = 2000  # characters of one text
_EXACT = 1 << 53  # up to here JavaScript's numbers are exact


def harmless(value: Any) -> Any:
    """Return the same as JSON's types, with short texts that can be shown.

    It has no numbers that JSON or a page lacks.
    """
    if isinstance(value, str):
        return printable(value[:_LONGEST])
    if isinstance(value, bool) or value is None:
        return value
    if isinstance(value, int):
        return value if abs(value) <= _EXACT else None
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {printable(str(key)[:_LONGEST]): harmless(each) for key, each in value.items()}
    return [harmless(each) for each in value]


def path_of(name: str) -> str:
    """Return the path of a run's own addresses."""
    return "run/" + urllib.parse.quote(name.encode(errors="replace"), safe="")


def as_text(content: Any) -> str:
    """Return content as the text of JSON, with all that is in it made harmless."""
    return json.dumps(harmless(content), allow_nan=False)


class RunsAsJson:
    """Makes the content of `/runs.json`. Each run's part is made again only when its state has changed."""

    def __init__(self) -> None:
        self._parts: dict[Path, Cached[str]] = {}

    def text(self, runs: Sequence[RunView], queue: Mapping[str, Any] | None, now: float) -> str:
        """Return the text: the runs that train first, then those that ended last.

        Args:
          runs: those that are asked for.
          queue: the queue, as JSON's types; None for none.
          now: seconds since 1970 (UTC).
        """
        first = sorted(runs, key=lambda run: (not run.is_running, 0 if run.is_running else -_ended_at(run), run.name))
        running = sum(run.is_running for run in runs)
        known = {run.rundir.path: self._parts.get(run.rundir.path) or Cached() for run in first[:MOST_RUNS]}
        parts = [_part(run, known[run.rundir.path]) for run in first[:MOST_RUNS]]
        self._parts = known
        about = as_text({"now": now, "count": len(runs), "running": running, "queue": queue})
        return f'{about[:-1]}, "runs": [{", ".join(parts)}]}}'


def _part(run: RunView, known: Cached[str]) -> str:
    return known.get((run.name, run.state, run.is_running, run.unread, run.copy), lambda: as_text(_run(run)))


def _ended_at(run: RunView) -> float:
    return run.state.at if run.state is not None and math.isfinite(run.state.at) else 0.0


def _run(run: RunView) -> dict[str, Any]:
    about: dict[str, Any] = {
        "name": run.name,
        "path": path_of(run.name),
        "logdir": str(run.rundir.path),
        "running": run.is_running,
    }
    about["unread"] = run.unread
    if (copy := run.copy) is not None:
        about["copy"] = {"to": copy.to, "step": copy.step, "at": copy.copied.get(copy.step or 0), "error": copy.error}
    if run.state is None:
        return about | {"phase": "running" if run.is_running else "unknown"}
    return about | _state(run.state, run.is_running)


def _state(state: State, is_running: bool) -> dict[str, Any]:
    return {
        "phase": state.phase_now(is_running),
        "job": state.job,
        "tags": state.tags[:_TAGS],
        "notes": state.notes,
        "params": state.shown_params()[:_PARAMS],
        "step": state.step,
        "max_steps": state.max_steps,
        "end": state.end,
        "metrics": dict(list(state.metrics.items())[:_METRICS]),
        "measured": dict(list(state.measured.items())[:_METRICS]),
        "rate": state.steps_per_sec if is_running else None,
        "left_secs": state.eta_secs if is_running else None,
        "checkpoint": vars(state.last_checkpoint) if state.last_checkpoint is not None else None,
        "saving": state.saving,
        "answers": [vars(each) | {"ids": each.ids[-_ANSWERS:]} for each in state.answers[-_ANSWERS:]],
        "goodput": state.goodput.percent(),
        "steps_again": state.goodput.steps_again,
        "memory_bytes": state.memory_bytes,
        "devices": [vars(each) for each in state.devices[:_DEVICES]],
        "trouble": [*filter(None, [state.error, state.failure and str(state.failure)]), *state.warnings[-_WARNINGS:]],
        "at": state.at,
    }


def text_of(run: RunView) -> str:
    """Return the text of a run in which words are searched, in lower case."""
    words = [run.name]
    if (state := run.state) is not None:
        words += [state.phase_now(run.is_running), state.job, state.notes, state.shown_params(), *state.tags]
    return "\n".join(words).lower()


def detail_as_json(detail: RunDetail, events: Sequence[Event], metrics: Sequence[str] = ()) -> dict[str, Any]:
    """Return the content of `/run/NAME.json`: curves with their events, and checkpoints and events, newest first.

    Args:
      detail: what was read.
      events: what happened to the run.
      metrics: those whose curves are wanted, in place of that of the main metric.
    """
    curve = detail.curves[detail.tag]
    return {
        "metric": detail.tag,
        "metrics": sorted(curve.tags)[:_CURVES],
        "complete": detail.is_complete,
        **(_curves(detail, metrics) if metrics else {"points": _smoothed(curve)}),
        "moments": [vars(moment) for moment in detail.moments],
        "checkpoints": [_checkpoint(entry) for entry in detail.checkpoints[: -_CHECKPOINTS - 1 : -1]],
        "checkpoint_count": detail.checkpoint_count,
        "events": [vars(event) for event in notable(events)[: -_EVENTS - 1 : -1]],
    }


def _smoothed(curve: Curve) -> list[tuple[int, float, float]]:
    smoothed = curve.smoothed(max(1.0, len(curve.steps) / _SMOOTHED))
    return list(zip(curve.steps, curve.values, smoothed, strict=True))


def _curves(detail: RunDetail, metrics: Sequence[str]) -> dict[str, Any]:
    """Return the points of each metric: step, value, when it was written, and the mean that it stands for."""
    found = {tag: detail.curves[tag] for tag in metrics if tag in detail.curves}
    columns = {tag: (each.steps, each.values, each.times, each.means) for tag, each in found.items()}
    return {"curves": {tag: list(zip(*each, strict=True)) for tag, each in columns.items()}}


def _checkpoint(entry: TimelineEntry) -> dict[str, Any]:
    about = {"step": entry.step, "at": entry.at, "reason": entry.reason, "bytes": entry.bytes, "marks": entry.marks}
    return about | {"metrics": dict(list(entry.metrics.items())[:_METRICS])}
