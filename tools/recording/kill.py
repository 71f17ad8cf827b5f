"""The README's first picture: a run is killed with -9 and resumes, beside one that nothing interrupts."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Sequence
from pathlib import Path
from statistics import fmean

from tools.recording.picture import BACKGROUND, Frame, Row, Style, TimedFrame, film, film_seconds, head, in_film, size
from tools.recording.studio import IMAGES, studio
from tools.recording.terminal import CTRL_C, PROMPT
from tools.recording.traces import QUIET, Chart, Mark, Trace, text

TITLE = (
    "A training is killed with kill -9. trainerd run resumes it from what it had in memory, and its loss lies on the "
    "curve of a run that was not killed. trainerd prove says: The same, bit for bit."
)
PANE, STRIP = (50, 17), (82, 2)  # columns and rows
STRIP_SCALE = 1.3
HEADER, CHART_HEIGHT = 22.0, 210.0
REFERENCE, KILLED, RESUMED = "#56617a", "#ffa657", "#6fdc8c"
EMPHASIZED = {"kill -9 .*": KILLED, "Killed$": KILLED, "restored step.*": RESUMED, ".*bit for bit.*": RESUMED}
GAP = 10.0  # between the panes
BORDER = "#3a4250"  # a page may be as dark as they are
TOTAL_SECS, END_SECS = 12.0, 2.5
POSTER_SECS = 1.5  # of the end, which are shown first: no page begins with empty boxes
PAUSE_SECS = 0.45  # what lasts longer, such as an import, is cut to this
FRAME_SECS = 0.1  # what lasts shorter is not shown
STEPS = 1200
KILL_WHEN = r"training +step [56]\d\d"
END_WHEN = r"training +step 1,[2-9]\d\d"
CONFIG = """\
entry = "job:job"
logdir = "{logdir}"
[checkpoint]
save_model_secs = 0
save_model_steps = 500
[summary]
save_summaries_secs = 0
[evaluate]
evaluate_secs = 0
"""
# The digits, and the loss of each step in a file of each process: what a killed one has seen is there to its last step.
JOB = """\
import dataclasses
import os

import tensorflow as tf

from trainerd.examples import digits


def job():
    made = digits.job()
    step = made.state["optimizer"].iterations
    file = f"file://{os.getcwd()}/loss-{os.getpid()}"

    def train_step(batch):
        metrics = made.train_step(batch)
        tf.print(step, metrics["loss"], output_stream=file)
        return metrics

    return dataclasses.replace(made, train_step=train_step)
"""
MEAN_OF = 10  # steps, for one point that is drawn
Points = list[tuple[int, float]]


def kill() -> None:
    """Record it."""
    with studio("digits") as made:
        made.write("whole.toml", CONFIG.format(logdir="whole"))
        made.write("trainerd.toml", CONFIG.format(logdir="run"))
        made.write("job.py", JOB)
        made.trainerd("run", "--config", "whole.toml", "--max-steps", str(STEPS))
        whole = _points(made.folder, "whole")
        with (
            made.terminal(*PANE) as left,
            made.terminal(*PANE) as right,
            made.terminal(STRIP[0], STRIP[1] + 1) as below,  # the prompt after the answer is left out
        ):
            left.type("trainerd run")
            left.until(KILL_WHEN)
            right.type(f"kill -9 {_pid(made.folder, 'run')}")
            left.until(PROMPT)
            killed = _points(made.folder, "run")
            right.watch(0.3)
            right.type("trainerd run")
            right.until(END_WHEN)
            resumed_frames = [*right.frames]
            right.press(CTRL_C)
            right.until(PROMPT)
            resumed = _points(made.folder, "run")
            below.type("trainerd prove | tail -1")
            below.until(PROMPT, 900)
        proof = [(at, frame[: STRIP[1]]) for at, frame in below.frames]
        recorded = (_without_waits(left.frames), _without_waits(resumed_frames), proof)
        picture = _composed(recorded, (whole, killed, resumed))
        (IMAGES / "kill.svg").write_text(picture, encoding="utf-8")


def _composed(recorded: Sequence[list[TimedFrame]], curves: Sequence[Points]) -> str:
    """The panes, the curves below them, and the proof.

    Args:
      recorded: what the left pane, the right pane and the strip showed.
      curves: of the uninterrupted run, of the killed process, and of the one that resumed.
    """
    seconds = film_seconds(recorded, PAUSE_SECS, TOTAL_SECS - END_SECS)
    left, right, below = (
        [(at, tuple(map(_emphasized, frame))) for at, frame in in_film(frames, seconds, FRAME_SECS)]
        for frames in recorded
    )
    whole, killed, resumed = curves
    killed_at, resumed_at = _first(left, "Killed"), _first(right, "training +step")
    last, first = killed[-1][0], resumed[0][0]
    traces = [
        Trace(_means(whole), REFERENCE, 7.0),
        Trace(_means(killed), KILLED, 2.4, _steps(left, last)),
        Trace(_means(resumed), RESUMED, 2.4, _steps(right, STEPS)),
    ]
    marks = [
        Mark(first, f"resumed at step {first:,}", RESUMED, resumed_at, True),
        Mark(last, f"killed at step {last:,}", KILLED, killed_at, False),
    ]
    pane_width, pane_height = size(*PANE)
    width, pane_height = 2 * pane_width + GAP, pane_height + HEADER
    strip_height = size(*STRIP)[1] * STRIP_SCALE
    chart_y, strip_y = pane_height + GAP, pane_height + CHART_HEIGHT + 2 * GAP
    parts = [head(width, strip_y + strip_height, TITLE)]
    parts.append(f"<style>* {{ animation-delay: {POSTER_SECS - TOTAL_SECS:g}s !important }}</style>")
    for name, x, frames, heading, color in (
        ("left", 0.0, left, "killed with kill -9", KILLED),
        ("right", pane_width + GAP, right, "resumed with trainerd run", RESUMED),
    ):
        parts += [
            _card(x, 0.0, pane_width, pane_height),
            f'<circle cx="{x + 20:g}" cy="20" r="5" fill="{color}"/>',
            text(x + 34, 24.0, heading, color, "start"),
            f'<g transform="translate({x:g} {HEADER:g})">{film(name, frames, PANE, TOTAL_SECS)}</g>',
        ]
    parts += [
        _card(0.0, chart_y, width, CHART_HEIGHT),
        f'<g transform="translate(0 {chart_y:g})">',
        Chart((width, CHART_HEIGHT), f"loss, mean of {MEAN_OF} steps", TOTAL_SECS).draw(traces, marks),
        f'<path d="M{width - 176:g} 20h24" stroke="{REFERENCE}" stroke-width="7"/>',
        text(width - 20, 24.0, "uninterrupted run", QUIET, "end"),
        "</g>",
        _card(0.0, strip_y, width, strip_height),
        f'<g transform="translate(0 {strip_y:g}) scale({STRIP_SCALE:g})">{film("strip", below, STRIP, TOTAL_SECS)}</g>',
        "</svg>",
    ]
    return "\n".join([*parts, ""])


def _card(x: float, y: float, width: float, height: float) -> str:
    return (
        f'<rect x="{x + 0.5:g}" y="{y + 0.5:g}" width="{width - 1:g}" height="{height - 1:g}" rx="8" '
        f'fill="{BACKGROUND}" stroke="{BORDER}"/>'
    )


def _without_waits(frames: Sequence[TimedFrame]) -> list[TimedFrame]:
    """Return the frames without those in which only seconds are counted, until the job is loaded."""
    waits = [re.search("(?m)^starting +step", _text(frame)) is not None for _, frame in frames]
    return [frame for n, frame in enumerate(frames) if not waits[n] or not waits[n - 1]]


def _emphasized(row: Row) -> Row:
    """Return the row, with what the story is about in a colour."""
    line = _text((row,))
    for pattern, color in EMPHASIZED.items():
        if match := re.search(pattern, line):
            plain, (begin, end) = Style("default", False), match.span()
            return (plain, line[:begin]), (Style(color.removeprefix("#"), True), line[begin:end]), (plain, line[end:])
    return row


def _text(frame: Frame) -> str:
    return "\n".join("".join(part for _, part in row) for row in frame)


def _first(frames: Sequence[TimedFrame], pattern: str) -> float:
    """When a film first shows this."""
    return next(at for at, frame in frames if re.search(pattern, _text(frame)))


def _steps(frames: Sequence[TimedFrame], last: int) -> list[tuple[float, int]]:
    """Return which step a display shows, from which second on. The last that it shows is this one."""
    found = [(at, re.search(r"training +step ([\d,]+)", _text(frame))) for at, frame in frames]
    (begun, _), *shown = [(at, int(match[1].replace(",", ""))) for at, match in found if match]
    return [(0.0, 0), (begun, 0), *shown[:-1], (shown[-1][0], last), (TOTAL_SECS, last)]


def _pid(folder: Path, logdir: str) -> int:
    return int(json.loads((folder / logdir / "state.json").read_text())["pid"])


def _points(folder: Path, logdir: str) -> Points:
    """Read the loss of the steps of the newest process of a run."""
    lines = (folder / f"loss-{_pid(folder, logdir)}").read_text().splitlines()
    return [(int(step), float(loss)) for step, loss in map(str.split, lines)]


def _means(points: Points) -> Points:
    """The mean of each MEAN_OF steps, at the last of them."""
    losses: dict[int, list[float]] = {}
    for step, loss in points:
        losses.setdefault(math.ceil(step / MEAN_OF) * MEAN_OF, []).append(loss)
    return [(step, fmean(of)) for step, of in losses.items() if len(of) == MEAN_OF and step <= STEPS]
