"""A chart whose curves grow while a film runs."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from itertools import pairwise

_EDGES = (52.0, 50.0, 20.0, 36.0)  # left, top, right, bottom
_TICKS = (0.05, 0.1, 0.2, 0.5, 1.0, 2.0)
QUIET, _LINES = "#9aa5b5", "#2c323d"


@dataclass(frozen=True)
class Trace:
    """One curve.

    Attributes:
      points: steps and values.
      color, width: of its line.
      reached: the step that it has reached, from which second on; empty: all of it is there at once.
    """

    points: Sequence[tuple[float, float]]
    color: str
    width: float
    reached: Sequence[tuple[float, float]] = ()


@dataclass(frozen=True)
class Mark:
    """What happened at a step.

    Attributes:
      step: where.
      label: what.
      color: of its line and its label.
      at: the second from which on it is shown.
      is_before: whether the label is on the left of the line.
    """

    step: float
    label: str
    color: str
    at: float
    is_before: bool


@dataclass(frozen=True)
class Chart:
    """Curves of a metric over the steps, on a logarithmic scale.

    Attributes:
      size: width and height.
      title: of the vertical axis.
      total: after how many seconds it begins again.
    """

    size: tuple[float, float]
    title: str
    total: float

    def draw(self, traces: Sequence[Trace], marks: Sequence[Mark]) -> str:
        """The chart as a part of an SVG. The first curve has all steps and values."""
        steps, values = zip(*traces[0].points, strict=True)
        scale = _Scale(self.size, max(steps), (min(values), max(values)))
        parts = [*scale.axes(self.title)]
        parts += [self._line(f"mark{n}", mark, scale) for n, mark in enumerate(marks)]
        parts += [self._curve(f"curve{n}", trace, scale) for n, trace in enumerate(traces)]
        return "\n".join([*parts, ""])

    def _curve(self, name: str, trace: Trace, scale: _Scale) -> str:
        """A curve that is a dash as long as the part that is shown."""
        places = [(scale.x(step), scale.y(value)) for step, value in trace.points]
        lengths = [0.0]
        for before, after in pairwise(places):
            lengths.append(lengths[-1] + math.dist(before, after))
        whole = lengths[-1]
        steps = [step for step, _ in trace.points]
        moves = [
            f"{100 * at / self.total:.2f}% {{ stroke-dashoffset: "
            f"{whole - lengths[max(0, bisect_right(steps, step) - 1)]:.0f}px }}"
            for at, step in trace.reached
        ]
        style = ""
        if moves:
            style = (
                f"<style>#{name} {{ stroke-dasharray: {whole:.0f}px {whole + 9:.0f}px; animation: {name} "
                f"{self.total:g}s linear infinite }} @keyframes {name} {{ {' '.join(moves)} }}</style>"
            )
        path = "M" + "L".join(f"{x:.1f} {y:.1f}" for x, y in places)
        return (
            f'{style}<path id="{name}" d="{path}" fill="none" stroke="{trace.color}" stroke-width="{trace.width:g}" '
            'stroke-linejoin="round"/>'
        )

    def _line(self, name: str, mark: Mark, scale: _Scale) -> str:
        """A vertical line with its label, from a moment on."""
        share = 100 * mark.at / self.total
        x, (_, top, _, bottom) = scale.x(mark.step), _EDGES
        style = (
            f"<style>#{name} {{ animation: {name} {self.total:g}s steps(1, end) infinite }} "
            f"@keyframes {name} {{ 0% {{ opacity: 0 }} {share:.2f}% {{ opacity: 1 }} }}</style>"
        )
        anchor, at = ("end", x - 7) if mark.is_before else ("start", x + 7)
        return (
            f'{style}<g id="{name}"><path d="M{x:.1f} {top - 14:g}V{self.size[1] - bottom:g}" stroke="{mark.color}" '
            f'stroke-dasharray="3 3"/>{text(at, top - 3, mark.label, mark.color, anchor)}</g>'
        )


class _Scale:
    """From steps and values to places in a chart."""

    def __init__(self, size: tuple[float, float], last: float, extremes: tuple[float, float]) -> None:
        self._width, self._height = size
        self._last = last
        self._low, self._high = (math.log(value) for value in extremes)

    def x(self, step: float) -> float:
        left, _, right, _ = _EDGES
        return left + (self._width - left - right) * step / self._last

    def y(self, value: float) -> float:
        _, top, _, bottom = _EDGES
        share = (self._high - math.log(value)) / (self._high - self._low)
        return top + (self._height - top - bottom) * share

    def axes(self, title: str) -> list[str]:
        """Lines with their numbers."""
        left, top, right, bottom = _EDGES
        floor, parts = self._height - bottom, [text(14.0, 24.0, title, QUIET, "start")]
        for value in _TICKS:
            if top < (y := self.y(value)) < floor - 4:
                parts.append(f'<path d="M{left:g} {y:.1f}H{self._width - right:g}" stroke="{_LINES}"/>')
                parts.append(text(left - 8, y + 4, f"{value:g}", QUIET, "end"))
        for part in range(5):
            step = self._last * part / 4
            label = f"step {step:,.0f}" if part == 4 else f"{step:,.0f}"
            anchor = ("start", "middle", "middle", "middle", "end")[part]
            parts.append(text(self.x(step), floor + 22, label, QUIET, anchor))
        return [*parts, f'<path d="M{left:g} {floor:g}H{self._width - right:g}" stroke="{QUIET}" opacity="0.6"/>']


def text(x: float, y: float, said: str, color: str, anchor: str) -> str:
    """A text of a chart."""
    style = f"fill: {color}; font-size: 12px"
    return f'<text x="{x:.1f}" y="{y:.1f}" style="{style}" text-anchor="{anchor}">{escape(said)}</text>'
