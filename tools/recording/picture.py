"""Frames of a terminal as one animated SVG: it needs no script, no font of another host, and shows in a README."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from html import escape
from itertools import accumulate, pairwise

LONGEST_SECS = 1.6  # what lasts longer, such as an import, is cut to this
SHORTEST_SECS = 0.3  # what lasts shorter is not shown, unless it is typed
END_SECS = 4.0
BACKGROUND = "#1b1f27"
_WIDTH, _HEIGHT, _EDGE = 8.0, 17.0, 14.0
_COLORS = {
    "default": "#d8dee9",
    "black": "#7b8494",
    "red": "#f0717b",
    "green": "#8fd48a",
    "brown": "#e8c370",
    "blue": "#7aa8f0",
    "magenta": "#cf9bea",
    "cyan": "#6fcfd8",
    "white": "#eef1f6",
}
_HEAD = """<svg xmlns="http://www.w3.org/2000/svg" role="img" aria-label="{title}"
 width="{width:g}" height="{height:g}" viewBox="0 0 {width:g} {height:g}">
<style>
text {{ font: 13px ui-monospace, "DejaVu Sans Mono", Menlo, Consolas, monospace; white-space: pre; fill: {ink} }}
@media (prefers-reduced-motion: reduce) {{ * {{ animation: none !important }} }}
</style>
"""
_FILM = """<style>
#{name} {{ transform: translateY({last:g}px); animation: {name} {total:g}s steps(1, end) infinite }}
@keyframes {name} {{ {moves} }}
</style>
"""


@dataclass(frozen=True)
class Style:
    """How a part of a row is shown."""

    color: str
    is_bold: bool


Row = tuple[tuple[Style, str], ...]
Frame = tuple[Row, ...]
TimedFrame = tuple[float, Frame]


def picture(frames: list[TimedFrame], columns: int, rows: int, title: str) -> str:
    """The animated SVG of a recording.

    Args:
      frames: what the screen showed, from which second on.
      columns: the terminal's width.
      rows: its height.
      title: what the picture shows, for those who do not see it.
    """
    shown, total = list[TimedFrame](), 0.0
    for seconds, frame in _timed(frames):
        shown.append((total, frame))
        total += seconds
    width, height = size(columns, rows)
    background = f'<rect width="100%" height="100%" rx="8" fill="{BACKGROUND}"/>\n'
    return head(width, height, title) + background + film("film", shown, (columns, rows), total) + "</svg>\n"


def size(columns: int, rows: int) -> tuple[float, float]:
    """The width and the height of a terminal, with its edges."""
    return columns * _WIDTH + 2 * _EDGE, rows * _HEIGHT + 2 * _EDGE


def head(width: float, height: float, title: str) -> str:
    """How an SVG begins, which says what text looks like."""
    return _HEAD.format(width=width, height=height, title=escape(title), ink=_COLORS["default"])


def film(name: str, frames: list[TimedFrame], size_in_text: tuple[int, int], total: float) -> str:
    """One film of a terminal, without a background. Without animations it shows the last frame.

    Args:
      name: a name that no other film of the picture has.
      frames: what is shown, from which second on; the first from 0.
      size_in_text: columns and rows.
      total: after how many seconds it begins again.
    """
    width, height = size(*size_in_text)
    rows_by_look: dict[Row, int] = {}
    shown = [
        f'<use href="#{name}{rows_by_look.setdefault(row, len(rows_by_look))}" y="{n * height + y * _HEIGHT:g}"/>'
        for n, (_, frame) in enumerate(frames)
        for y, row in enumerate(frame)
        if row
    ]
    moves = [
        f"{100 * begin / total:.3f}% {{ transform: translateY({-number * height:g}px) }}"
        for number, (begin, _) in enumerate(frames)
    ]
    style = _FILM.format(name=name, last=-(len(frames) - 1) * height, total=total, moves=" ".join(moves))
    place = f'x="{_EDGE:g}" y="{_EDGE + 13:g}"'
    defined = [f'<text id="{name}{number}" {place}>{_row(row)}</text>' for row, number in rows_by_look.items()]
    window = f'<svg width="{width:g}" height="{height:g}">'
    return style + "\n".join([window, "<defs>", *defined, "</defs>", f'<g id="{name}">', *shown, "</g>", "</svg>", ""])


def film_seconds(recorded: Sequence[list[TimedFrame]], longest: float, total: float) -> Callable[[float], float]:
    """Return what turns a time of recordings that ran beside each other into a second of their film.

    Args:
      recorded: what their screens showed.
      longest: where nothing changes for longer than so many seconds, it is cut to this.
      total: how long the film takes; it is played as fast as that needs.
    """
    times = sorted(at for frames in recorded for at, _ in _different(frames))
    seconds = dict(zip(times, accumulate(min(b - a, longest) for a, b in pairwise([times[0], *times])), strict=True))
    return lambda at: seconds[at] * total / seconds[times[-1]]


def in_film(frames: list[TimedFrame], seconds: Callable[[float], float], shortest: float) -> list[TimedFrame]:
    """Return frames by the film's seconds. What is gone at once is left out."""
    shown: list[TimedFrame] = []
    for at, frame in _different(frames):
        if shown and seconds(at) - shown[-1][0] < shortest:
            shown[-1] = (shown[-1][0], frame)
        else:
            shown.append((seconds(at) if shown else 0.0, frame))
    return shown


def _different(frames: list[TimedFrame]) -> list[TimedFrame]:
    return [(at, frame) for n, (at, frame) in enumerate(frames) if n == 0 or frame != frames[n - 1][1]]


def _timed(frames: list[TimedFrame]) -> list[TimedFrame]:
    """Each frame with the seconds for which it is shown; what is gone at once is left out."""
    different = _different(frames)
    shown: list[TimedFrame] = []
    for (at, frame), (until, _) in zip(different, [*different[1:], (different[-1][0] + END_SECS, ())], strict=True):
        seconds = min(until - at, LONGEST_SECS)
        if shown and shown[-1][0] < SHORTEST_SECS:
            shown[-1] = (shown[-1][0] + seconds, frame)
        else:
            shown.append((seconds, frame))
    return [*shown[:-1], (END_SECS, shown[-1][1])]


def _row(row: Row) -> str:
    """The text of a row. Each part has its place, so that a font of another width keeps the columns."""
    parts, column = [], 0
    for style, text in row:
        if text.strip():
            blank = len(text) - len(text.lstrip(" "))
            x = _EDGE + (column + blank) * _WIDTH
            length = len(text.strip(" ")) * _WIDTH
            parts.append(f'<tspan x="{x:g}" textLength="{length:g}"{_look(style)}>{escape(text.strip(" "))}</tspan>')
        column += len(text)
    return "".join(parts)


def _look(style: Style) -> str:
    color = _COLORS.get(style.color.removeprefix("bright"), f"#{style.color}" if len(style.color) == 6 else "")
    fill = f' fill="{color}"' if color and color != _COLORS["default"] else ""
    return fill + (' font-weight="bold"' if style.is_bold else "")
