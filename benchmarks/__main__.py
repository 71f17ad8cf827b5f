"""`python -m benchmarks`: measure, print the table, write bench.json and bench.png.

A bar that is missed is said, and is no failure: on a busy machine it says little. A benchmark that does not run is.
"""

from __future__ import annotations

import os
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import click
from rich.console import Console

from benchmarks import copies, experiments, latency, memory, past, rates, report, stalls, starts, workers
from benchmarks.figures import Figure
from benchmarks.plan import FULL, SHORT, Plan
from benchmarks.processes import BenchmarkError

BUSY = 0.5  # a load average from which on other programs are in the way
MIN_WIDTH = 120
RESULTS = Path(__file__).resolve().parent / "results"
BENCHMARKS: dict[str, Callable[[Plan], list[Figure]]] = {
    "cost": rates.cost,
    "tiny": rates.tiny,
    "keras": rates.keras,
    "digits_keras": rates.digits_keras,
    "fit": rates.fit,
    "two_devices": rates.two_devices,
    "digits": rates.digits,
    "graph": rates.graph,
    "fifty_ms": rates.fifty_ms,
    "signal": latency.signal_to_boundary,
    "status": starts.status,
    "dashboard": starts.dashboard,
    "resume": starts.resume,
    "variables": starts.variables,
    "minima": past.minima,
    "memory": memory.memory,
    "copies": copies.copies,
    "listing": past.listing,
    "evaluating": past.evaluating,
    "going_back": past.going_back,
    "experiment": experiments.experiment,
    "workers": workers.workers,
    "checkpoints": stalls.checkpoints,
}


@click.command()
@click.option("--short", is_flag=True, help="Fewer and shorter rounds, for CI.")
@click.option(
    "--only", "names", multiple=True, type=click.Choice([*BENCHMARKS]), help="Only this one; may be repeated."
)
@click.option("--markdown", is_flag=True, help="Print the table for a page of the documentation too.")
def main(short: bool, names: tuple[str, ...], markdown: bool) -> None:
    """Measure what trainerd claims, beside its peers, in one run."""
    console, begun, load = Console(), time.monotonic(), os.getloadavg()[0]
    console.width = max(console.width, MIN_WIDTH)
    plan = replace(SHORT if short else FULL, say=lambda text: console.print(f"  {text}", style="dim", highlight=False))
    with tempfile.TemporaryDirectory(prefix="trainerd-bench-") as folder:
        os.environ["XDG_STATE_HOME"] = folder  # `trainerd list` is to show none of these runs
        figures, failed = _measure(plan, names or tuple(BENCHMARKS), console)
    console.print(report.table(figures))
    if markdown:
        click.echo(report.markdown(figures))
    facts: dict[str, object] = {"short": short, "seconds": round(time.monotonic() - begun), "load_at_start": load}
    _write(figures, facts | {"failed": failed})
    if load > BUSY:
        console.print(f"The machine was busy with other things (load {load:.1f}): the figures are less reliable.")
    missed = [figure.what for figure in figures if figure.is_met is False]
    console.print(f"{len(missed)} bars missed" + (": " + "; ".join(missed) if missed else ""), highlight=False)
    sys.exit(1 if failed else 0)


def _measure(plan: Plan, names: tuple[str, ...], console: Console) -> tuple[list[Figure], list[str]]:
    """Run benchmarks; the figures, and the names of those that failed. One that fails does not end the others."""
    figures: list[Figure] = []
    failed: list[str] = []
    for name in names:
        console.print(name, style="bold")
        try:
            figures += BENCHMARKS[name](plan)
        except BenchmarkError as error:
            console.print(f"{name} failed to run: {error}", style="bold red", markup=False, highlight=False)
            failed.append(name)
    return figures, failed


def _write(figures: list[Figure], facts: dict[str, object]) -> None:
    RESULTS.mkdir(exist_ok=True)
    (RESULTS / "bench.json").write_text(report.document(figures, facts | report.machine()), encoding="utf-8")
    report.chart(figures, RESULTS / "bench.png")


if __name__ == "__main__":
    main()
