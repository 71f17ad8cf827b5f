"""A figure: what was measured, beside whom, against which bar. Pure."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

AT_LEAST, AT_MOST = ">=", "<="


@dataclass(frozen=True)
class Bar:
    """What a figure must reach."""

    sense: str
    limit: float

    def is_met_by(self, value: float) -> bool:
        """Whether a value reaches it. What is no number never does."""
        return value >= self.limit if self.sense == AT_LEAST else value <= self.limit

    def margin(self, value: float) -> float:
        """How many times better than the bar a value is; below 1 it is missed. NaN where a ratio says nothing."""
        good, base = (value, self.limit) if self.sense == AT_LEAST else (self.limit, value)
        return good / base if good > 0 and base > 0 else math.nan


@dataclass(frozen=True)
class Figure:
    """One row of the table.

    Attributes:
      benchmark: what measured it: the NAME of `--only NAME`.
      what: what was measured, for a person.
      unit: of `ours` and `peer`.
      ours, peer: the two sides; no peer where the bar is on our own figure.
      value: what is held against the bar: a ratio, or our own figure.
      is_ratio: which of the two it is.
      low, high: the extremes of `value` over the rounds: how noisy it is.
      bar: None for what is only shown.
      note: what else to know.
    """

    benchmark: str
    what: str
    unit: str
    ours: float
    peer: float | None
    value: float
    is_ratio: bool
    low: float
    high: float
    bar: Bar | None = None
    note: str = ""

    @property
    def is_met(self) -> bool | None:
        """Whether the bar is met; None where there is none."""
        return None if self.bar is None else self.bar.is_met_by(self.value)

    def to_json(self) -> dict[str, Any]:
        """The figure as JSON's types."""
        return asdict(self) | {"is_met": self.is_met}


def compared(
    benchmark: str,
    what: str,
    unit: str,
    ours: Sequence[float],
    peer: Sequence[float],
    bar: Bar | None = None,
    *,
    note: str = "",
) -> Figure:
    """A figure from interleaved rounds: the median of the ratios of each round's pair.

    Both halves of a pair were measured one right after the other, so that what else the machine does weighs on
    both; the median leaves out the rounds where it did not.
    """
    ratios = [a / b for a, b in zip(ours, peer, strict=True)]
    return Figure(
        benchmark,
        what,
        unit,
        median(ours),
        median(peer),
        median(ratios),
        True,
        min(ratios),
        max(ratios),
        bar,
        note,
    )


def best_compared(
    benchmark: str,
    what: str,
    unit: str,
    ours: Sequence[float],
    peer: Sequence[float],
    bar: Bar | None = None,
    *,
    note: str = "",
) -> Figure:
    """A figure from durations: the ratio of the best of each side. Noise only ever makes a start slower."""
    ratios = [a / b for a, b in zip(ours, peer, strict=True)]
    best = min(ours) / min(peer)
    low, high = min([best, *ratios]), max([best, *ratios])
    return Figure(benchmark, what, unit, min(ours), min(peer), best, True, low, high, bar, note)


def alone(
    benchmark: str, what: str, unit: str, value: float, samples: Sequence[float], bar: Bar | None, *, note: str = ""
) -> Figure:
    """A figure of ours that no peer is needed for."""
    return Figure(benchmark, what, unit, value, None, value, False, min(samples), max(samples), bar, note)


def median(values: Sequence[float]) -> float:
    """The middle value, or the mean of the two."""
    return percentile(values, 50)


def percentile(values: Sequence[float], percent: float) -> float:
    """The value below which so many percent of the values lie, interpolated."""
    ordered = sorted(values)
    place = (len(ordered) - 1) * percent / 100
    below = math.floor(place)
    above = min(below + 1, len(ordered) - 1)
    return ordered[below] + (ordered[above] - ordered[below]) * (place - below)
