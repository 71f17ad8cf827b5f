"""The parts of the benchmarks that measure nothing: figures, bars, the table, the JSON, and the loss as a counter."""

from __future__ import annotations

import json
import math
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from benchmarks import report
from benchmarks.figures import (
    AT_LEAST,
    AT_MOST,
    Bar,
    Figure,
    alone,
    best_compared,
    compared,
    median,
    percentile,
)
from benchmarks.loss import LEARNING_RATE, TARGET, step_of
from benchmarks.processes import BenchmarkError, Process

RATE = compared("tiny", "tiny step", "steps/s", [20000, 60000, 50000], [1000, 2000, 5000], Bar(AT_LEAST, 10))
WAIT = alone("signal", "p99", "ms", 25.0, [1.0, 25.0], Bar(AT_MOST, 20))
SHOWN = alone("signal", "p50", "ms", 1.0, [1.0, 25.0], None)


@pytest.mark.parametrize(
    ("bar", "value", "met"),
    [
        (Bar(AT_LEAST, 10), 10.0, True),
        (Bar(AT_LEAST, 10), 9.999, False),
        (Bar(AT_MOST, 0.25), 0.25, True),
        (Bar(AT_MOST, 0.25), 0.251, False),
        (Bar(AT_MOST, 0), 0, True),
        (Bar(AT_LEAST, 10), math.nan, False),
        (Bar(AT_MOST, 10), math.nan, False),
    ],
)
def test_a_bar_is_met_or_not(bar: Bar, value: float, met: bool) -> None:
    assert bar.is_met_by(value) is met


def test_the_margin_says_how_many_times_better() -> None:
    assert Bar(AT_LEAST, 10).margin(20) == 2
    assert Bar(AT_MOST, 10).margin(20) == 0.5
    assert math.isnan(Bar(AT_MOST, 0).margin(0))


def test_a_comparison_is_the_median_of_the_rounds_and_not_the_ratio_of_the_medians() -> None:
    assert (RATE.value, RATE.low, RATE.high) == (20, 10, 30)
    assert (RATE.ours, RATE.peer) == (50000, 2000)
    assert RATE.is_met is True


def test_starts_are_compared_by_their_best() -> None:
    figure = best_compared("resume", "resume", "s", [5.0, 9.0], [4.0, 10.0], Bar(AT_MOST, 1.25))
    assert (figure.value, figure.ours, figure.peer, figure.is_met) == (1.25, 5.0, 4.0, True)


def test_percentiles_are_interpolated() -> None:
    assert median([3, 1, 2]) == 2
    assert median([1, 2, 3, 4]) == 2.5
    assert percentile([7], 99) == 7
    assert percentile(list(range(101)), 99) == 99


@pytest.mark.parametrize(
    ("figure", "expected"),
    [
        (RATE, ("tiny step", "50,000 steps/s", "2,000 steps/s", "20.0 (10.0 to 30.0)", "≥ 10", "met")),
        (WAIT, ("p99", "25 ms (1 to 25)", "", "", "≤ 20 ms", "MISSED")),
        (SHOWN, ("p50", "1 ms (1 to 25)", "", "", "", "")),
    ],
)
def test_a_row_says_plainly_whether_its_bar_is_met(figure: Figure, expected: tuple[str, ...]) -> None:
    assert report.cells(figure) == expected
    assert " | ".join(expected) in report.markdown([figure])


def test_the_table_has_a_row_for_each_figure() -> None:
    assert report.table([RATE, WAIT, SHOWN]).row_count == 3


def test_the_chart_of_costs_has_a_bar_for_each_side(tmp_path: Path) -> None:
    sides = {"fit": 0.03, "a loop": 0.1}
    figures = [Figure("cost", f"ours / {name}", "µs", 1, 2, value, True, 1, 2) for name, value in sides.items()]
    report.cost_chart(figures, tmp_path / "cost.svg")
    drawn = (tmp_path / "cost.svg").read_text(encoding="utf-8")
    assert all(f"<!-- {text} -->" in drawn for text in ("ours", "fit", "a loop", "33×", "10×", "1×"))


def test_bench_json_holds_every_figure_and_its_verdict() -> None:
    data = json.loads(report.document([RATE, SHOWN], {"cores": 2}))
    assert data["cores"] == 2
    assert [figure["is_met"] for figure in data["figures"]] == [True, None]
    assert data["figures"][0]["bar"] == {"sense": ">=", "limit": 10}
    with pytest.raises(ValueError, match="not JSON compliant"):
        report.document([replace(RATE, value=math.nan)], {})


@pytest.mark.parametrize("steps", [1, 1000])
def test_the_loss_reports_the_step(steps: int) -> None:
    w = 0.0
    for _ in range(steps):
        loss = (w - TARGET) ** 2
        w -= LEARNING_RATE * 2 * (w - TARGET)
    assert step_of(loss) == pytest.approx(steps, abs=1e-3)


def test_a_process_that_fails_says_why() -> None:
    code = "import sys; print('what went wrong', file=sys.stderr); sys.exit(3)"
    with Process(["-c", code]) as process, pytest.raises(BenchmarkError, match=r"(?s)exit code 3.*what went wrong"):
        process.answer()
    with Process(["-c", "print('no json')"]) as process, pytest.raises(BenchmarkError, match="no JSON"):
        process.answer()


def test_the_side_that_measures_does_not_import_tensorflow() -> None:
    code = "import sys, benchmarks.__main__ as m; sys.exit(any(n in sys.modules for n in ('tensorflow', 'numpy')))"
    subprocess.run([sys.executable, "-c", code], check=True)
