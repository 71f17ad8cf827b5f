"""`trainerd history`: the loss over the steps of a run, with what happened."""

from __future__ import annotations

import contextlib
import json
import math
import shutil
import sys
from dataclasses import asdict
from pathlib import Path

import click

from trainerd.cli import completion, options
from trainerd.cli.app import CommandWithExamples
from trainerd.cli.say import say
from trainerd.cli.usage import GivenPath, Real
from trainerd.errors import ConfigError, NotRunningError
from trainerd.history import plots
from trainerd.history.run_job import job_of
from trainerd.history.story import MomentKind, Story, story_of
from trainerd.rundir.paths import RunDirectory

_WIDTH, _HEIGHT = 100, 30  # characters, where there is no terminal


@click.command(
    "history",
    cls=CommandWithExamples,
    examples={
        "trainerd history": "Draw the loss in the terminal.",
        "trainerd history digits --metric val_accuracy --image accuracy.png": "Write a picture of another metric.",
    },
    exits={69: "The run has no curve of this metric."},
)
@click.option(
    "--metric",
    "tag",
    metavar="METRIC",
    shell_complete=completion.metrics,
    default="loss",
    show_default=True,
    help="The metric to draw.",
)
@click.option(
    "--smooth",
    type=Real(min=1),
    metavar="N",
    default=20.0,
    show_default=True,
    help="The time constant of the smoothing, in points of the curve.",
)
@click.option("--log", is_flag=True, help="Use a logarithmic scale.")
@click.option(
    "--image",
    type=GivenPath(path_type=Path, dir_okay=False),
    help="Write a picture, .png or .svg, and draw nothing.",
)
@click.option("--json", "as_json", is_flag=True, help="Print the points and the events, on one line.")
@options.of_one_argument
def command(tag: str, smooth: float, log: bool, image: Path | None, as_json: bool, run: options.RunOptions) -> None:
    """Draw the smoothed loss over the steps, with checkpoints, minima, evaluations, pauses, crashes and rollbacks."""
    rundir = options.find_rundir(run)
    story = story_of(rundir, tag, smooth)
    if as_json:
        say(json.dumps(_as_json(story)))
        return
    if not story.curve.steps:
        tags = sorted(each for each in story.curve.tags if not each.startswith("history/"))
        there = f" There are: {', '.join(tags)}." if tags else ""
        raise NotRunningError(f"{rundir.path} has no curve of {tag!r} yet.{there} {_when_points_come(run, rundir)}")
    if image is not None:
        plots.as_picture(story, image, log=log)
        say(f"wrote {image}")
        return
    size = shutil.get_terminal_size((_WIDTH, _HEIGHT))
    is_terminal = sys.stdout.isatty()
    width, height = (size.columns, max(12, min(size.lines - 8, 40))) if is_terminal else (_WIDTH, _HEIGHT)
    say(plots.in_terminal(story, width, height, log=log))
    for moment in story.moments:
        if moment.kind not in (MomentKind.CHECKPOINT, MomentKind.EVALUATION):
            sign = plots.LOOKS[moment.kind][0]
            say(f"{sign} step {moment.step:,}: {moment.kind}" + (f", {moment.said}" if moment.said else ""))


def _when_points_come(run: options.RunOptions, rundir: RunDirectory) -> str:
    """Return a sentence on when a curve has its next point, by the run's own config if there is one."""
    path = options.options_of_start(rundir, job_of(rundir), run).config_path
    secs = None
    if path is not None or run.logdir is None:
        with contextlib.suppress(ConfigError):
            secs = options.load_config(path).summary.metrics_secs
    if secs == 0:
        return "The config has `summary.metrics_secs` = 0, so the clock adds no points."
    every = "every `summary.metrics_secs` seconds" if secs is None else f"every {secs:g} s (`summary.metrics_secs`)"
    return f"A run adds a point {every} while it trains."


def _as_json(story: Story) -> dict[str, object]:
    points = zip(story.curve.steps, story.curve.values, story.smoothed, strict=True)
    return {
        "metric": story.tag,
        "points": [[step, *(each if math.isfinite(each) else None for each in values)] for step, *values in points],
        "moments": [{**asdict(moment), "kind": str(moment.kind)} for moment in story.moments],
    }
