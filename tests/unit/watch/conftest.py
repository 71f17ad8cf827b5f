"""Runs as the watcher finds them, made by hand."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from trainerd.rundir import lock
from trainerd.rundir.paths import RunDirectory
from trainerd.rundir.state import Phase, State
from trainerd.watch.run_reader import Runs

MakeRun = Callable[..., RunDirectory]


@pytest.fixture
def make_run(tmp_path: Path) -> MakeRun:
    """Makes a run that says this of itself."""

    def make(name: str = "one", phase: Phase = Phase.PAUSED, **fields: object) -> RunDirectory:
        rundir = RunDirectory(tmp_path / "runs" / name)
        rundir.create()
        State(phase, **fields).write(rundir.state)  # type: ignore[arg-type]
        return rundir

    return make


@pytest.fixture
def runs(tmp_path: Path) -> Runs:
    """All runs of the test; it is looked for new ones each time."""
    moments = iter(range(0, 1_000_000, 60))
    return Runs(lambda: sorted((tmp_path / "runs").iterdir()), timer=lambda: next(moments))


@pytest.fixture
def trained(make_run: MakeRun) -> Iterator[RunDirectory]:
    """A run that this process trains."""
    rundir = make_run("trained", Phase.TRAINING, step=7, max_steps=10, metrics={"loss": 0.5}, steps_per_sec=2.0)
    with lock.acquire(rundir) as holding:
        holding.name_holder(os.getpid())
        yield rundir


ESCAPES = "\x1b[2J<script>alert(1)</script>\u202e"


def _state(**changed: object) -> bytes:
    return json.dumps(State(Phase.PAUSED, step=7, metrics={"loss": 0.5}).to_json() | changed).encode()


# What somebody may put where a state.json is, and no trainer writes.
_HUGE = 10**400
HOSTILE = {
    "empty": b"",
    "torn": _state()[:-20],
    "large": _state() + b" " * (10 << 20),
    "deep": b'{"phase": ' + b"[" * 100_000,
    "no object": b"[1, 2]",
    "wrong types": _state(step="7"),
    "huge integers": _state(step=_HUGE, max_steps=_HUGE + 1, memory_bytes=_HUGE, metrics={"loss": _HUGE}),
    "huge times": _state(max_steps=_HUGE, steps_per_sec=1e-300, at=1e300),
    "no numbers": _state(
        at=math.nan, steps_per_sec=math.inf, goodput={"seconds": {"training": math.inf, "down": -1.0}}
    ),
    "escapes": _state(warnings=[ESCAPES], job=ESCAPES, error=ESCAPES, metrics={ESCAPES: 1.0}),
    "lone surrogates": _state(error="\ud800", metrics={"\udfff": 1.0}),
    "not UTF-8": b"\xff\xfe\x00",
    "many metrics": _state(metrics={f"m{number}": 1.0 for number in range(20_000)}),
    "many devices": _state(devices=[{"name": f"{ESCAPES}{number}", "utilization": -1e308} for number in range(20_000)]),
    "long texts": _state(warnings=["x" * 100_000] * 9),
}


def hostile(kind: str) -> bytes:
    """One of them."""
    return HOSTILE[kind]
