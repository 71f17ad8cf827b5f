"""The chart of what a step costs under trainerd and under its peers, measured in turns."""

from __future__ import annotations

import os
import tempfile
from dataclasses import replace

from benchmarks import rates, report
from benchmarks.plan import FULL
from tools.recording.studio import IMAGES


def cost() -> None:
    """Measure and draw it."""
    with tempfile.TemporaryDirectory() as folder:
        os.environ["XDG_STATE_HOME"] = folder  # `trainerd list` is to show none of these runs
        figures = rates.cost(replace(FULL, say=print))
    report.cost_chart(figures, IMAGES / "cost.svg")
    print(report.markdown(figures))
