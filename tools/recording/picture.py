"""Frames of a terminal as one animated SVG: it needs no script, no font of another host, and shows in a README."""

from __future__ import annotations

from dataclasses import dataclass
from html import escape

LONGEST_SECS = 1.6  # what lasts longer, such as an import, is cut to this
SHORTEST_SECS = 0.3  # what lasts shorter is not shown, unless it is typed
END_SECS = 4.0
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
#film {{ animation: film {total:g}s steps(1, end) infinite }}
@media (prefers-reduced-motion: reduce) {{ #film {{ animation: none; transform: translateY({last:g}px) }} }}
@keyframes film {{ {moves} }}
</style>
<rect width="100%" height="100%" rx="8" fill="#1b1f27"/>
"""


@dataclass(frozen=True)
class Style:
    """How a part of a row is shown."""

    color: str
    is_bold: bool


Row = tuple[tuple[Style, str], ...]
Frame = tuple[Row, ...]


def picture(frames: list[tuple[float, Frame]], columns: int, rows: int, title: str) -> str:
    """The animated SVG of a recording.

    Args:
      frames: what the screen showed, from which second on.
      columns: the terminal's width.
      rows: its height.
      title: what the picture shows, for those who do not see it.
    """
    shown = _timed(frames)
    total = sum(seconds for seconds, _ in shown)
    width, height = columns * _WIDTH + 2 * _EDGE, rows * _HEIGHT + 2 * _EDGE
    moves, at = [], 0.0
    for number, (seconds, _) in enumerate(shown):
        moves.append(f"{100 * at / total:.3f}% {{ transform: translateY({-number * height:g}px) }}")
        at += seconds
    rows_by_look: dict[Row, int] = {}
    film = [
        f'<use href="#r{rows_by_look.setdefault(row, len(rows_by_look))}" y="{n * height + y * _HEIGHT:g}"/>'
        for n, (_, frame) in enumerate(shown)
        for y, row in enumerate(frame)
        if row
    ]
    head = _HEAD.format(
        width=width,
        height=height,
        title=escape(title),
        ink=_COLORS["default"],
        total=total,
        last=-(len(shown) - 1) * height,
        moves=" ".join(moves),
    )
    place = f'x="{_EDGE:g}" y="{_EDGE + 13:g}"'
    defined = [f'<text id="r{number}" {place}>{_row(row)}</text>' for row, number in rows_by_look.items()]
    return "\n".join([head, "<defs>", *defined, "</defs>", '<g id="film">', *film, "</g>", "</svg>", ""])


def _timed(frames: list[tuple[float, Frame]]) -> list[tuple[float, Frame]]:
    """Each frame with the seconds for which it is shown; what is gone at once is left out."""
    different = [(at, frame) for n, (at, frame) in enumerate(frames) if n == 0 or frame != frames[n - 1][1]]
    shown: list[tuple[float, Frame]] = []
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
