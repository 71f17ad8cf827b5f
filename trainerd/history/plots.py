"""Draws the story of a run: in a terminal, or as a picture."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from trainerd.errors import UsageError
from trainerd.history.story import MomentKind, Story
from trainerd.system.durable_files import storage

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# What each kind of moment looks like: its sign in the terminal, and its sign and colour in a picture.
LOOKS = {
    MomentKind.CHECKPOINT: (".", "|", "#8a94a3"),
    MomentKind.EVALUATION: ("e", "|", "#17a2b8"),
    MomentKind.MINIMUM: ("v", "v", "#2fa35a"),
    MomentKind.BEST: ("*", "*", "#e8950c"),
    MomentKind.PAUSE: ("P", "o", "#4c8dff"),
    MomentKind.CRASH: ("x", "X", "#e5484d"),
    MomentKind.ROLLBACK: ("<", "<", "#b45fe0"),
    MomentKind.CHANGE: ("!", "D", "#c07a2c"),
}
SUFFIXES = (".png", ".svg")
# In rows at the bottom, since so many may be there that they cover the curve. The others are on the curve.
_IN_ROWS = (MomentKind.EVALUATION, MomentKind.CHECKPOINT)
_ON_CURVE = tuple(kind for kind in LOOKS if kind not in _IN_ROWS)
_LEFT = "·"  # in the terminal, what the run has gone back from
_LEFT_LABEL = "before a rollback"
_TICKS = 5  # of the steps, in the terminal
_COLUMNS = 9  # of a picture's legend
_EDGES = (10, 4)  # columns and rows of a terminal that are not the plot's
_NEAR = 0.02  # signs that are nearer to each other, as a share of a picture's width, would cover each other
_LIFT = 0.05  # by which one of them is moved up then, as a share of its height
# A picture has no background: these can be seen on a light page and on a dark one.
_INK, _LINE, _POINTS, _GRID = "#737d8b", "#4c8dff", "#4c8dff", "#8a94a3"


def in_terminal(story: Story, width: int, height: int, *, log: bool = False) -> str:
    """Return the plot and its legend as lines of text, without colours.

    Args:
      story: what is drawn; its curve has a point at least.
      width, height: in characters.
      log: whether the values are on a logarithmic scale; those that are not positive are left out then.
    """
    import plotext

    plotext.clear_figure()
    plotext.theme("clear")
    plotext.limitsize(False, False)  # to a terminal that may not be there
    plotext.plotsize(width, height - 1)
    steps, values = _drawn(story, log=log)
    if log:
        plotext.yscale("log")
    draw = plotext.plot if len(steps) > 1 else plotext.scatter  # a line through one point is none
    draw(steps, values, marker="braille" if len(steps) > 1 else "o")
    left = [found for part in story.left if (found := _drawable(part, log=log))]
    for part in left:
        plotext.plot(*zip(*part, strict=True), marker=_LEFT)
    first, last = _range_of(story, steps, left)
    columns, rows = width - _EDGES[0], height - 1 - _EDGES[1]
    scale = _Heights([*values, *(value for part in left for _, value in part)], len(_IN_ROWS) + 1, rows, log=log)
    for row, kind in enumerate(_IN_ROWS, 1):
        if at := story.steps_of(kind):
            plotext.scatter(at, [scale.moved(scale.low, -row)] * len(at), marker=LOOKS[kind][0])
    for kind, step, height_there, level in _placed(story, 1.5 * (last - first) / columns, log=log):
        plotext.scatter([step], [scale.moved(height_there, level)], marker=LOOKS[kind][0])
    limits = scale.moved(scale.low, -len(_IN_ROWS)), scale.moved(scale.high, 1)
    plotext.ylim(*(math.log10(limit) for limit in limits) if log else limits)
    ticks = sorted({round(first + (last - first) * part / (_TICKS - 1)) for part in range(_TICKS)})
    plotext.xticks(ticks, [f"{tick:,}" for tick in ticks])  # its own have fractions of steps
    plotext.xlabel("step")
    drawn = str(plotext.uncolorize(plotext.build())).rstrip("\n")
    return f"{drawn}\n{_legend(story, width)}"


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
    axes.plot(story.curve.steps, story.curve.values, color=_POINTS, alpha=0.3, linewidth=0.8)
    left = [found for part in story.left if (found := _drawable(part, log=log))]
    for number, part in enumerate(left):
        label = None if number else _LEFT_LABEL
        axes.plot(*zip(*part, strict=True), color=_INK, linewidth=1.6, linestyle=(0, (3, 1.5)), label=label)
    axes.plot(steps, values, color=_LINE, linewidth=2.2, label=f"{story.tag}, smoothed")
    scale = _Heights([*values, *(value for part in left for _, value in part)], 0, 1, log=log)
    for row, kind in enumerate(_IN_ROWS, 1):
        if at := story.steps_of(kind):
            _, sign, shade = LOOKS[kind]
            height = [(len(_IN_ROWS) + 1 - row) * _LIFT] * len(at)
            axes.scatter(at, height, s=50, marker=sign, color=shade, transform=axes.get_xaxis_transform(), label=kind)
    first, last = _range_of(story, steps, left)
    labels = set[MomentKind]()
    for kind, step, height_there, level in _placed(story, _NEAR * (last - first), log=log):
        _, sign, shade = LOOKS[kind]
        place = scale.moved(height_there, level * _LIFT * 1.5)
        label = None if kind in labels else kind
        axes.scatter([step], [place], s=80, marker=sign, color=shade, zorder=3, linewidths=0, label=label)
        labels.add(kind)
    if chosen is not None:
        axes.axvline(chosen, color=LOOKS[MomentKind.BEST][2], linestyle="--", label=f"step {chosen:,}")
    axes.set_ylim(scale.moved(scale.low, -0.3), scale.moved(scale.high, 0.1))
    _finish(figure, axes, story.tag, log=log)
    with storage(f"write {path}"):
        figure.savefig(path, transparent=True)


def _finish(figure: Figure, axes: Axes, tag: str, *, log: bool) -> None:
    """Draw the axes and the legend, in colours for light and dark pages."""
    if log:
        axes.set_yscale("log")
        axes.yaxis.set_major_formatter("{x:g}")
    axes.xaxis.set_major_formatter("{x:,.0f}")
    axes.set_xlabel("step", color=_INK)
    axes.set_ylabel(tag, color=_INK)
    axes.tick_params(which="both", colors=_INK)
    axes.spines[["top", "right"]].set_visible(False)
    axes.spines[["left", "bottom"]].set_color(_INK)
    axes.grid(color=_GRID, alpha=0.25)
    figure.legend(
        loc="outside upper left",
        ncols=_COLUMNS,
        fontsize=9,
        frameon=False,
        labelcolor=_INK,
        handlelength=1.5,
        columnspacing=1.2,
    )


def _placed(story: Story, near: float, *, log: bool) -> list[tuple[MomentKind, int, float, int]]:
    """Return kind, step and height of the moments on the curve, and how many others are below each.

    Those that are nearer to each other than `near` steps are put above each other, so that none covers another.
    """
    moments = dict.fromkeys((moment.step, moment.kind) for moment in story.moments if moment.kind in _ON_CURVE)
    taken: list[float] = []  # up to which step, at each height
    placed = []
    for step, kind in sorted(moments, key=lambda moment: (moment[0], _ON_CURVE.index(moment[1]))):
        if not _drawable([(step, height := story.curve.at(step, story.smoothed))], log=log):
            continue
        level = next((level for level, until in enumerate(taken) if until <= step), len(taken))
        taken[level:] = [step + near, *taken[level + 1 :]]
        placed.append((kind, step, height, level))
    return placed


def _legend(story: Story, width: int) -> str:
    """Return what the signs of a plot in the terminal mean, in lines of this width."""
    shown = [kind for kind in (*_ON_CURVE, *_IN_ROWS) if story.steps_of(kind)]
    lines = [f"⠒ {story.tag}, smoothed", *([f"{_LEFT} {_LEFT_LABEL}"] if story.left else [])]
    meanings = [*lines, *(f"{LOOKS[kind][0]} {kind}" for kind in shown)]
    whole = "   ".join(meaning.replace(" ", "\xa0") for meaning in meanings)  # a meaning stays in one line
    return textwrap.fill(whole, width).replace("\xa0", " ")


class _Heights:
    """Moves values up and down by rows of a plot, on its scale.

    Args:
      values: what is drawn.
      more: rows that are beside those of the values.
      rows: all of them.
      log: whether the scale is logarithmic.
    """

    def __init__(self, values: Sequence[float], more: int, rows: int, *, log: bool) -> None:
        self.low, self.high = min(values), max(values)
        self._log = log
        low, high = (math.log(self.low), math.log(self.high)) if log else (self.low, self.high)
        self._row = ((high - low) or abs(low) or 1.0) / max(1, rows - 1 - more)

    def moved(self, value: float, rows: float) -> float:
        """Return the value that is so many rows higher."""
        return value * math.exp(rows * self._row) if self._log else value + rows * self._row


def _range_of(story: Story, steps: Sequence[int], left: Sequence[Sequence[tuple[int, float]]]) -> tuple[int, int]:
    """Return the first and the last step of what is drawn."""
    shown = [*steps, *(step for part in left for step, _ in part), *(moment.step for moment in story.moments)]
    return min(shown), max(shown)


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


def _drawable(points: Iterable[tuple[int, float]], *, log: bool) -> list[tuple[int, float]]:
    return [(step, value) for step, value in points if math.isfinite(value) and (value > 0 or not log)]
