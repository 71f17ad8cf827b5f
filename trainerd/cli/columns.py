"""Texts in columns."""

from __future__ import annotations

from collections.abc import Collection, Sequence

GAP = "  "


def width(column: Sequence[str]) -> int:
    """Return the length of its longest text."""
    return max(map(len, column))


def lines(rows: Sequence[Sequence[str]], left: Collection[int]) -> list[str]:
    """Return the rows of a table, one at least, as lines.

    Args:
      rows: the texts; each row has as many.
      left: the columns that begin at the left; the others, such as numbers, end at the right.
    """
    rows = [[text.replace("\n", " ") for text in row] for row in rows]  # what a job writes may hold line breaks
    widths = [width(column) for column in zip(*rows, strict=True)]
    return [
        GAP.join(
            text.ljust(room) if place in left else text.rjust(room)
            for place, (text, room) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in rows
    ]
