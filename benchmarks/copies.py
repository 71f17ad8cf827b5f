"""What a copy elsewhere costs the loop, and how far it lags behind the run."""

from __future__ import annotations

import json
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from benchmarks.figures import AT_LEAST, AT_MOST, Bar, Figure, alone, compared, median
from benchmarks.memory import DIGITS
from benchmarks.plan import Plan
from benchmarks.processes import PATIENCE, BenchmarkError, Process
from benchmarks.rates import UNIT, folder_of, rates_of_settings
from benchmarks.sides import Trainer

SAVES = "[checkpoint]\nsave_model_secs = 2\n"
_POLL_SECS = 0.02


class Copied(Trainer):
    """A trainer whose run is copied to a folder meanwhile."""

    def __init__(self, folder: Path, destination: Path) -> None:
        super().__init__(DIGITS, folder, more=SAVES)
        self._copying = ["-m", "trainerd", "copy", str(folder), "--to", f"file://{destination}"]
        self._copier: Process | None = None

    def ready(self) -> None:
        """Wait until it trains, and start to copy."""
        super().ready()
        self._copier = Process(self._copying, lines_of="stderr")

    def copy(self) -> None:
        """Let the copier continue: it has the checkpoints to copy that were saved meanwhile, too."""
        self._send(signal.SIGCONT)

    def stop_copying(self) -> None:
        """Stop the copier."""
        self._send(signal.SIGSTOP)

    def _send(self, number: signal.Signals) -> None:
        assert self._copier is not None
        self._copier.send(number)

    def end(self) -> None:
        """End both."""
        if self._copier is not None:
            self._copier.end()
        super().end()


def copies(plan: Plan) -> list[Figure]:
    """Steps per second of a run that saves every two seconds, copied and not; and the lag of its copies."""
    with folder_of() as folder, folder_of() as destination:
        run = Copied(folder, destination / "copy")
        copied, alone_ = rates_of_settings(plan, run, run.copy, run.stop_copying)
    with folder_of() as folder, folder_of() as destination, _copied(folder, destination / "copy"):
        lags = _lags(folder / "run", plan.starts)
    return [
        compared("copies", "digits step, copied elsewhere / not", UNIT, copied, alone_, Bar(AT_LEAST, 0.995)),
        alone("copies", "digits: lag of a copy", "s", median(lags), lags, Bar(AT_MOST, 2.0)),
    ]


@contextmanager
def _copied(folder: Path, destination: Path) -> Iterator[None]:
    side = Copied(folder, destination)
    try:
        side.ready()
        side.go_on()
        yield
    finally:
        side.end()


def _lags(rundir: Path, count: int) -> list[float]:
    """Wait for so many copies. For each, the seconds from its manifest to its copy."""
    lags, seen, end = list[float](), None, time.monotonic() + PATIENCE
    while len(lags) < count:
        if time.monotonic() > end:
            raise BenchmarkError(f"nothing is copied of {rundir}")
        time.sleep(_POLL_SECS)
        try:
            status = json.loads((rundir / "copy.json").read_bytes())
            made_at = (rundir / f"model.ckpt-{status['step']}.json").stat().st_mtime
        except (FileNotFoundError, ValueError):
            continue
        if status["step"] != seen and status["copied_at"]:
            seen = status["step"]
            lags.append(max(0.0, status["copied_at"] - made_at))
    return lags
