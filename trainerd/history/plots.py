"""Draws the story of a run: in a terminal, or as a picture."""

from __future__ import annotations

import math
from collections.abc import Iterable
from pathlib import Path

from trainerd.errors import UsageError
from trainerd.history.story import MomentKind, Story
from trainerd.system.durable_files import storage

# What each kind of moment looks like: its sign in the terminal, and its sign and colour in a picture.
LOOKS = {
    MomentKind.CHECKPOINT: (".", "|", "#888888"),
    MomentKind.EVALUATION: ("e", "s", "#0099aa"),
    MomentKind.PAUSE: ("P", "o", "#2255cc"),
    MomentKind.CRASH: ("x", "x", "#cc2222"),
    MomentKind.ROLLBACK: ("<", "<", "#aa22aa"),
    MomentKind.CHANGE: ("!", "D", "#884400"),
    MomentKind.MINIMUM: ("v", "v", "#118833"),
    MomentKind.BEST: ("*", "*", "#dd8800"),
}
# In rows below the curve, since so many may be there that they cover it.
_BELOW = (MomentKind.EVALUATION, MomentKind.CHECKPOINT)
_ROW = 0.06  # the height of a row, as a share of the curve's
_TICKS = 5  # of the steps, in the terminal
SUFFIXES = (".png", ".svg")


def in_terminal(story: Story, width: int, height: int, *, log: bool = False) -> str:
    """Return the plot as lines of text, without colours.

    Args:
      story: what is drawn; its curve has a point at least.
      width, height: in characters.
      log: whether the values are on a logarithmic scale; those that are not positive are left out then.
    """
    import plotext

    plotext.clear_figure()
    plotext.theme("clear")
    plotext.plotsize(width, height)
    steps, values = _drawn(story, log=log)
    if log:
        plotext.yscale("log")
    draw = plotext.plot if len(steps) > 1 else plotext.scatter  # a line through one point is none
    draw(steps, values, marker="braille" if len(steps) > 1 else "o", label=f"{story.tag}, smoothed")
    shown = list(steps)
    for kind in LOOKS:
        sign, (found, heights) = LOOKS[kind][0], _places(story, kind, log=log)
        shown += found
        if found:
            plotext.scatter(found, heights, marker=sign, label=f"{sign} {kind}")
    low, high = min(shown), max(shown)
    ticks = sorted({round(low + (high - low) * part / (_TICKS - 1)) for part in range(_TICKS)})
    plotext.xticks(ticks, [f"{tick:,}" for tick in ticks])  # its own have fractions of steps
    plotext.xlabel("step")
    return str(plotext.uncolorize(plotext.build()))


def as_picture(story: Story, path: Path, *, log: bool = False, chosen: int | None = None) -> None:
    """Write the plot as a PNG or an SVG.

    Args:
      story: what is drawn.
      path: the file, whose ending says which.
      log: whether the values are on a logarithmic scale.
      chosen: the step of a checkpoint that is marked.

    Raises:
      UsageError: it has another ending.
      StorageError: it cannot be written.
    """
    if path.suffix.lower() not in SUFFIXES:
        raise UsageError(f"--image: expected a .png or a .svg, got {path}.")
    from matplotlib.figure import Figure

    figure = Figure(figsize=(10, 5), dpi=120, layout="constrained")
    axes = figure.add_subplot()
    steps, values = _drawn(story, log=log)
    axes.plot(story.curve.steps, story.curve.values, color="#bbccdd", linewidth=0.8, label=story.tag)
    axes.plot(steps, values, color="#224466", linewidth=1.6, label=f"{story.tag}, smoothed")
    for kind, (_, sign, shade) in LOOKS.items():
        found, heights = _places(story, kind, log=log)
        if found:
            area = 15 if kind in _BELOW else 60
            axes.scatter(found, heights, marker=sign, color=shade, s=area, zorder=3, label=str(kind))
    if chosen is not None:
        axes.axvline(chosen, color="#dd8800", linestyle="--", label=f"step {chosen}")
    if log:
        axes.set_yscale("log")
    axes.set_xlabel("step")
    axes.set_ylabel(story.tag)
    axes.grid(alpha=0.3)
    axes.legend(fontsize=8)
    with storage(f"write {path}"):
        figure.savefig(path)


def _drawn(story: Story, *, log: bool) -> tuple[list[int], list[float]]:
    """Return the steps and the smoothed values that can be drawn.

    Raises:
      UsageError: there are none.
    """
    found = _drawable(zip(story.curve.steps, story.smoothed, strict=True), log=log)
    if not found:
        how = "positive number" if log else "finite number"
        raise UsageError(f"no point of {story.tag!r} is a {how}, so there is nothing to draw.")
    return [step for step, _ in found], [value for _, value in found]


def _places(story: Story, kind: MomentKind, *, log: bool) -> tuple[list[int], list[float]]:
    """Return the places of the moments of one kind: at their steps, on the curve or in a row below it."""
    found = _drawable(((step, story.curve.at(step, story.smoothed)) for step in story.steps_of(kind)), log=log)
    steps = [step for step, _ in found]
    if kind not in _BELOW:
        return steps, [height for _, height in found]
    return steps, [_row_below(story, 1 + _BELOW.index(kind), log=log)] * len(steps)


def _row_below(story: Story, row: int, *, log: bool) -> float:
    """Return the height of a row below the curve that is drawn; the first is the highest."""
    _, values = _drawn(story, log=log)
    low, high = min(values), max(values)
    if log:
        return low * math.exp(-row * _ROW * math.log(max(high / low, 2.0)))
    return low - row * _ROW * ((high - low) or abs(low) or 1.0)


def _drawable(points: Iterable[tuple[int, float]], *, log: bool) -> list[tuple[int, float]]:
    return [(step, value) for step, value in points if math.isfinite(value) and (value > 0 or not log)]
