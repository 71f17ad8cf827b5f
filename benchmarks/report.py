"""What a run of the benchmarks leaves behind: a table, bench.json and bench.png."""

from __future__ import annotations

import json
import math
import os
import platform
from collections.abc import Mapping, Sequence
from importlib.metadata import version
from pathlib import Path

from rich.table import Table

from benchmarks.figures import AT_LEAST, Figure

_OURS, _PEER, _INK = "#3fa66b", "#8a94a3", "#737d8b"  # seen on light and dark pages
HEADINGS = ("what", "ours", "peer", "ratio", "bar", "")


def number(value: float, unit: str = "") -> str:
    """A number with three or so digits that count."""
    text = f"{value:,.0f}" if abs(value) >= 1000 or value == int(value) else f"{value:.3g}"
    return f"{text} {unit}".rstrip()


def cells(figure: Figure) -> tuple[str, ...]:
    """One row of the table, as text."""
    digits = 3 if figure.value < 2 else 1
    ratio = f"{figure.value:.{digits}f} ({_range(figure, f'.{digits}f')})" if figure.is_ratio else ""
    ours = number(figure.ours, figure.unit)
    if not figure.is_ratio and figure.low < figure.high:
        ours += f" ({_range(figure, '.3g')})"
    bar = ""
    if figure.bar is not None:
        sense = "≥" if figure.bar.sense == AT_LEAST else "≤"
        bar = f"{sense} {figure.bar.limit:g}" + ("" if figure.is_ratio else f" {figure.unit}").rstrip()
    verdict = {True: "met", False: "MISSED", None: ""}[figure.is_met]
    peer = "" if figure.peer is None else number(figure.peer, figure.unit)
    return (figure.what, ours, peer, ratio, bar, verdict)


def _range(figure: Figure, digits: str) -> str:
    return f"{figure.low:{digits}} to {figure.high:{digits}}"


def table(figures: Sequence[Figure]) -> Table:
    """All rows, for a terminal."""
    result = Table(*HEADINGS, show_lines=False)
    for figure in figures:
        style = {True: "green", False: "bold red", None: "dim"}[figure.is_met]
        *texts, verdict = cells(figure)
        result.add_row(*texts, f"[{style}]{verdict}[/]")
    return result


def markdown(figures: Sequence[Figure]) -> str:
    """All rows, for a page of the documentation."""
    lines = ["| " + " | ".join(HEADINGS) + " |", "|" + "---|" * len(HEADINGS)]
    lines += ["| " + " | ".join(cells(figure)) + " |" for figure in figures]
    return "\n".join(lines)


def machine() -> dict[str, str | int]:
    """What it was measured on. No name of a host, no path."""
    return {
        "cores": len(os.sched_getaffinity(0)),
        "cpu": _cpu(),
        "python": platform.python_version(),
        "tensorflow": version("tensorflow"),
        "keras": version("keras"),
        "trainerd": version("trainerd"),
    }


def _cpu() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return platform.machine()
    return next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), "unknown")


def document(figures: Sequence[Figure], facts: Mapping[str, object]) -> str:
    """bench.json."""
    data = {**facts, "figures": [figure.to_json() for figure in figures]}
    return json.dumps(data, indent=1, allow_nan=False) + "\n"


def chart(figures: Sequence[Figure], path: Path) -> None:
    """bench.png: how many times better than its bar each figure is, on a logarithmic axis."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    drawn = [(f, f.bar.margin(f.value)) for f in reversed(figures) if f.bar is not None]
    drawn = [(figure, margin) for figure, margin in drawn if math.isfinite(margin)]
    chart, axes = pyplot.subplots(figsize=(10, 1.2 + 0.45 * len(drawn)), layout="constrained")
    colours = ["#2a7" if margin >= 1 else "#c33" for _, margin in drawn]
    # Each bar begins at 1: to the right is better than what is claimed.
    bars = axes.barh([f.what for f, _ in drawn], [m - 1 for _, m in drawn], left=1, color=colours)
    axes.bar_label(bars, [_label(figure) for figure, _ in drawn], padding=4)
    axes.axvline(1, color="black", linewidth=1)
    axes.set_xscale("log", base=2)
    axes.set_xlim(min([0.5, *(m * 0.8 for _, m in drawn)]), max([4, *(m * 3 for _, m in drawn)]))
    axes.set_xlabel("times better than the bar (log₂)")
    axes.spines[["top", "right"]].set_visible(False)
    chart.savefig(path, dpi=120)
    pyplot.close(chart)


def cost_chart(figures: Sequence[Figure], path: Path) -> None:
    """What a step costs under each peer, as a multiple of what it costs under ours. It has no background.

    Args:
      figures: each "ours / peer", of the time of a step.
      path: an SVG.
    """
    from matplotlib.figure import Figure as Picture

    ours, _, _ = figures[0].what.partition(" / ")
    costs = {ours: 1.0, **{figure.what.partition(" / ")[2]: 1 / figure.value for figure in figures}}
    names = sorted(costs, key=costs.__getitem__, reverse=True)
    colours = [_OURS if name.startswith("trainerd") else _PEER for name in names]
    picture = Picture(figsize=(8, 1.3 + 0.4 * len(names)), layout="constrained")
    axes = picture.add_subplot()
    bars = axes.barh(names, [costs[name] for name in names], color=colours, height=0.62)
    multiples = [f"{costs[name]:.0f}×" if costs[name] >= 10 else f"{costs[name]:.2g}×" for name in names]
    axes.bar_label(bars, multiples, padding=5, color=_INK, fontsize=11)
    axes.set_title(f"Overhead of a training step, compared with {ours}", loc="left", color=_INK, fontsize=12, pad=10)
    axes.set_xlabel("A model with one parameter, so nearly all of a step is overhead. Shorter is better.", loc="left")
    axes.xaxis.label.set(color=_INK, fontsize=9)
    axes.set_xlim(0, 1.1 * max(costs.values()))
    axes.set_xticks([])
    axes.tick_params(axis="y", length=0, labelcolor=_INK, labelsize=11)
    axes.spines[:].set_visible(False)
    picture.savefig(path, transparent=True, metadata={"Date": None})


def _label(figure: Figure) -> str:
    value = f"{figure.value:.3g}×" if figure.is_ratio else number(figure.value, figure.unit)
    return f"{value} (bar {cells(figure)[4]})"
