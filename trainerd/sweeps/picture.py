"""Draws a sweep as parallel coordinates: an axis for each key and one for the metric, a line for each point."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from trainerd.errors import UsageError
from trainerd.history.plots import SUFFIXES
from trainerd.sweeps.space import Range, read_space
from trainerd.sweeps.standing import SweepStanding
from trainerd.system.durable_files import storage

# A picture has no background: these can be seen on a light page and on a dark one.
_INK, _BEST = "#737d8b", "#e8950c"
_COLOURS = "viridis_r"  # the darkest is the best


class _Coordinate:
    """One axis: the values of all points, from 0 to 1.

    Args:
      label: its name.
      values: the value of each point; None if a point has none.
      is_log: whether numbers are on a logarithmic scale.
    """

    def __init__(self, label: str, values: Sequence[Any], *, is_log: bool = False) -> None:
        self.label = label
        there = [each for each in values if each is not None]
        is_number = bool(there) and all(isinstance(each, int | float) and not isinstance(each, bool) for each in there)
        is_log = is_log or (is_number and len(there) > 2 and _is_spread(there))
        words = [] if is_number else sorted({_word(each) for each in there})
        numbers = [
            None if each is None else words.index(_word(each)) if words else math.log10(each) if is_log else float(each)
            for each in values
        ]
        low, high = (f([each for each in numbers if each is not None], default=0.0) for f in (min, max))
        self.places = [None if each is None else (each - low) / (high - low) if high > low else 0.5 for each in numbers]
        self.ticks = {place: _word(each) for place, each in zip(self.places, values, strict=True) if place is not None}
        if is_number and len(self.ticks) > len(_FIFTHS):
            self.ticks = {share: _number(low + share * (high - low), is_log=is_log) for share in _FIFTHS}


_FIFTHS = (0.0, 0.25, 0.5, 0.75, 1.0)


def as_picture(standing: SweepStanding, path: Path) -> None:
    """Write the picture as a PNG or an SVG.

    Args:
      standing: the sweep.
      path: the file, whose ending says which.

    Raises:
      UsageError: it has another ending, or no point has the metric.
      StorageError: it cannot be written.
    """
    if path.suffix.lower() not in SUFFIXES:
        raise UsageError(f"--image: expected a .png or a .svg, got {path}.")
    points = [each for each in standing.points if each.metric is not None]
    if not points:
        raise UsageError(f"--image: no point has the metric {standing.goal.metric!r} yet.")
    from matplotlib import colormaps
    from matplotlib.figure import Figure

    space = read_space(standing.sweep.spec.set)
    axes = [
        _Coordinate(
            key.removeprefix("params."),
            [each.values[key] for each in points],
            is_log=isinstance(axis, Range) and axis.is_log,
        )
        for key, axis in space.items()
    ]
    metric = _Coordinate(standing.goal.metric, [each.metric for each in points])
    axes.append(metric)
    figure = Figure(figsize=(max(6.0, 2.0 * len(axes)), 5), dpi=120, layout="constrained")
    plot = figure.add_subplot()
    worst_first = sorted(range(len(points)), key=lambda at: -(metric.places[at] or 0.0) * _sign(standing))
    for at in worst_first:
        goodness = metric.places[at] or 0.0
        colour = colormaps[_COLOURS](1 - goodness if standing.goal.is_least else goodness)
        line = [math.nan if (place := each.places[at]) is None else place for each in axes]
        is_best = points[at].is_best
        plot.plot(line, color=_BEST if is_best else colour, linewidth=3 if is_best else 1.5, zorder=3 if is_best else 2)
    for number, each in enumerate(axes):
        plot.axvline(number, color=_INK, linewidth=1)
        for place, text in each.ticks.items():
            plot.annotate(text, (number, place), xytext=(4, 0), textcoords="offset points", color=_INK, fontsize=9)
    plot.set_xticks(range(len(axes)), [each.label for each in axes], color=_INK)
    plot.set_yticks([])
    plot.spines[:].set_visible(False)
    plot.margins(x=0.12)
    with storage(f"write {path}"):
        figure.savefig(path, transparent=True)


def _sign(standing: SweepStanding) -> int:
    return 1 if standing.goal.is_least else -1


def _is_spread(values: Sequence[float]) -> bool:
    """Return whether positive numbers span so much that a linear scale would hide the small ones."""
    return min(values) > 0 and max(values) / min(values) >= 10


def _word(value: Any) -> str:
    return value if isinstance(value, str) else f"{value:.4g}" if isinstance(value, float) else json.dumps(value)


def _number(value: float, *, is_log: bool) -> str:
    return f"{10**value if is_log else value:.3g}"
