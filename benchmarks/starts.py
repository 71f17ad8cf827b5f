"""How long a person waits: status, dashboard, resume, variables."""

from __future__ import annotations

import contextlib
import itertools
import json
import signal
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from benchmarks.figures import AT_MOST, Bar, Figure, alone, best_compared, compared, median
from benchmarks.plan import Plan
from benchmarks.processes import PATIENCE, ROOT, BenchmarkError, Process
from benchmarks.sides import start, wait_for_first_step, write_config
from trainerd.rundir.paths import RunDirectory
from trainerd.rundir.state import Phase, State

RUNS, TRAINING = 200, 10
VARIABLES = "TRAINERD_BENCH_VARIABLES"
DIGITS = "trainerd.examples.digits:job"


def status(plan: Plan) -> list[Figure]:
    """`trainerd status` of a run whose process lives, beside `import tensorflow`."""
    with _digits() as config, start(config) as trainer:
        wait_for_first_step(trainer)
        trainer.send(signal.SIGSTOP)  # it is there to be asked for, not to take the time of who asks
        command = ["-m", "trainerd", "status", "--config", str(config)]
        times = [_seconds(command) for _ in range(plan.statuses)]
        loaded = _tensorflow_modules(command)
        pairs = [(_seconds(command), _seconds(["-c", "import tensorflow"])) for _ in range(plan.imports)]
    ours, imports = zip(*pairs, strict=True)
    return [
        alone("status", "trainerd status", "s", median(times), times, Bar(AT_MOST, 0.25)),
        alone("status", "TensorFlow modules in trainerd status", "", loaded, [loaded], Bar(AT_MOST, 0)),
        compared("status", "trainerd status / import tensorflow", "s", ours, imports, Bar(AT_MOST, 0.1)),
    ]


def dashboard(plan: Plan) -> list[Figure]:
    """The time that the dashboard takes to list many runs: at first, and again after some of them have trained."""
    from trainerd.watch.page.server import Page  # only this benchmark needs the watcher's packages
    from trainerd.watch.run_reader import Runs

    with tempfile.TemporaryDirectory(prefix="trainerd-bench-") as folder:
        rundirs = [RunDirectory(Path(folder, f"run-{number:03}")) for number in range(RUNS)]
        for rundir in rundirs:
            rundir.create()
            State(Phase.PAUSED, step=1, max_steps=1000, metrics={"loss": 0.5, "accuracy": 0.9}).write(rundir.state)
        page = Page("127.0.0.1:0", Runs(lambda: [rundir.path for rundir in rundirs], timer=_each_look_reads()))
        thread = threading.Thread(target=page.serve)
        thread.start()
        try:
            first = _seconds_of_a_look(page.url)
            later = []
            for step in range(2, 2 + plan.statuses):
                for rundir in rundirs[:TRAINING]:
                    State(Phase.TRAINING, step=step, max_steps=1000, metrics={"loss": 1 / step}).write(rundir.state)
                later.append(_seconds_of_a_look(page.url))
        finally:
            page.close()
            thread.join()
    what = f"dashboard of {RUNS} runs"
    return [
        alone("dashboard", f"{what}: first look", "s", first, [first], Bar(AT_MOST, 0.15)),
        alone("dashboard", f"{what}, {TRAINING} of which train", "s", median(later), later, Bar(AT_MOST, 0.15)),
    ]


def resume(plan: Plan) -> list[Figure]:
    """From the start of `trainerd run` to the first step of a run that is resumed, beside the same by hand."""
    ours, by_hand = [], []
    with _digits() as config:
        _first_step(config)
        for number in range(plan.starts):
            plan.say(f"start {number + 1} of {plan.starts}")
            by_hand.append(_read_by_hand(config))
            ours.append(_first_step(config))
    what = "resume: start to first step / by hand"
    return [best_compared("resume", what, "s", ours, by_hand, Bar(AT_MOST, 1.25))]


def variables(plan: Plan) -> list[Figure]:
    """From the start to the first step of a job of many variables, beside TensorFlow's own first call of its step."""
    env = {VARIABLES: str(plan.variables)}
    with tempfile.TemporaryDirectory(prefix="trainerd-bench-") as folder:
        config = write_config(Path(folder), "benchmarks.jobs:many_variables")
        begun = time.perf_counter()
        with Process(["-m", "benchmarks.peers.first_call"], env=env) as script:
            script.answer()
            by_hand = time.perf_counter() - begun
        ours = _first_step(config, env=env)
    what = f"{plan.variables:,} variables: start to first step"
    return [
        alone("variables", what, "s", ours, [ours], Bar(AT_MOST, 10)),
        best_compared("variables", f"{what} / TensorFlow's first call", "s", [ours], [by_hand]),
    ]


def _each_look_reads() -> Callable[[], float]:
    """A clock that advances a minute at each reading, so that the watcher reads all states for each look."""
    minutes = itertools.count(0, 60)
    return lambda: float(next(minutes))


def _seconds_of_a_look(url: str) -> float:
    """The seconds that the document and the list of all runs take over HTTP."""
    begun = time.perf_counter()
    for path in ("", "runs.json"):
        with urllib.request.urlopen(url + path, timeout=PATIENCE) as answer:
            content = answer.read()
    seconds = time.perf_counter() - begun
    if len(json.loads(content)["runs"]) != RUNS:
        raise BenchmarkError(f"the dashboard does not list the {RUNS} runs")
    return seconds


def _first_step(config: Path, *, env: Mapping[str, str] | None = None) -> float:
    """Seconds from the start of `trainerd run` until its first step is done. Then it is paused."""
    begun = time.perf_counter()
    with start(config, env=env) as trainer:
        wait_for_first_step(trainer)
        seconds = time.perf_counter() - begun
        trainer.pause()
    return seconds


def _read_by_hand(config: Path) -> float:
    """Seconds from the start of a script until it has read the same checkpoint."""
    state: dict[str, Any] = json.loads((config.parent / "run" / "state.json").read_bytes())
    saved = state["last_checkpoint"]
    begun = time.perf_counter()
    with Process(["-m", "benchmarks.peers.by_hand", saved["path"]]) as script:
        answer = script.answer()
        seconds = time.perf_counter() - begun
        if answer["step"] != saved["step"]:
            raise script.failure(f"read step {answer['step']}, where {saved['step']} was saved")
    return seconds


@contextlib.contextmanager
def _digits() -> Iterator[Path]:
    """The config of a digits run that has not begun."""
    with tempfile.TemporaryDirectory(prefix="trainerd-bench-") as folder:
        yield write_config(Path(folder), DIGITS)


def _seconds(arguments: list[str]) -> float:
    """The wall time of a Python process."""
    begun = time.perf_counter()
    _python(arguments)
    return time.perf_counter() - begun


def _tensorflow_modules(arguments: list[str]) -> int:
    """How many modules of TensorFlow and Keras a command imports, by the interpreter's own account."""
    imported = [line.rpartition("|")[2].strip() for line in _python(["-X", "importtime", *arguments]).splitlines()]
    if "trainerd" not in imported:
        raise BenchmarkError("`python -X importtime` did not list what was imported")
    return sum(name.partition(".")[0] in ("tensorflow", "keras") for name in imported)


def _python(arguments: list[str]) -> str:
    """Run Python to its end. What it wrote to standard error."""
    try:
        done = subprocess.run(
            [sys.executable, *arguments], cwd=ROOT, capture_output=True, text=True, timeout=PATIENCE, check=True
        )
    except subprocess.CalledProcessError as error:
        raise BenchmarkError(f"{' '.join(arguments)}: exit code {error.returncode}\n{error.stderr}") from None
    except subprocess.TimeoutExpired:
        raise BenchmarkError(f"{' '.join(arguments)}: not done after {PATIENCE:.0f} s") from None
    return done.stderr
