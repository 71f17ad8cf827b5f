"""What several workers cost, and how soon they act as one: workers."""

from __future__ import annotations

import contextlib
import json
import os
import random
import re
import signal
import socket
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.figures import AT_MOST, Bar, Figure, alone, compared, median, percentile
from benchmarks.plan import Plan
from benchmarks.processes import PATIENCE, BenchmarkError, Process
from benchmarks.sides import write_config

COUNT = 2
ENTRY = "benchmarks.jobs:two_workers"
_POLL_SECS = 0.001
_SAVED = re.compile(r"saved step (\d+) \(request\)")


def workers(plan: Plan) -> list[Figure]:
    """Two workers on this machine: their steps, a signal to one of them, a stop of both, and the loss of one."""
    return [*_steps(plan), *_signals(plan), *_ends(plan)]


def _steps(plan: Plan) -> list[Figure]:
    """The rates of the three sides, as the chief measures them."""
    env = {"TRAINERD_WORKERS": _addresses()}
    arguments = [str(plan.long_seconds), str(plan.long_rounds)]
    with contextlib.ExitStack() as stack:
        processes = [
            stack.enter_context(Process(["-m", "benchmarks.peers.workers", str(rank), *arguments], env=env))
            for rank in range(COUNT)
        ]
        answers = [processes[0].answer() for _ in range(plan.long_rounds)]
    seconds = {name: [1 / float(answer[name]) for answer in answers] for name in answers[0]}
    ours, step = seconds["ours"], "2 workers, tiny Keras step"
    return [
        compared("workers", f"{step}: agreeing / not", "s", ours, seconds["bare"], Bar(AT_MOST, 1.03)),
        compared("workers", f"{step}: in the graph / from Python", "s", ours, seconds["python"], Bar(AT_MOST, 0.4)),
    ]


@dataclass
class _Run:
    """Two workers of one run."""

    processes: list[Process]
    folder: Path

    def state(self) -> dict[str, Any]:
        """What the chief says of the run."""
        try:
            return dict(json.loads((self.folder / "run" / "state.json").read_bytes()))
        except (OSError, ValueError):
            return {}

    def until(self, holds: Callable[[dict[str, Any]], bool], what: str) -> float:
        """Wait until the run's state is so. Returns when it was seen."""
        end = time.monotonic() + PATIENCE
        while time.monotonic() < end:
            if holds(self.state()):
                return time.monotonic()
            time.sleep(_POLL_SECS)
        raise self.processes[0].failure(f"did not come to {what}")

    def until_over(self) -> float:
        """Wait until all processes have ended. Returns when they had."""
        end = time.monotonic() + PATIENCE
        while not all(process.is_over for process in self.processes):
            if time.monotonic() > end:
                raise self.processes[0].failure("did not end")
            time.sleep(_POLL_SECS)
        return time.monotonic()


@contextlib.contextmanager
def _run(folder: Path) -> Iterator[_Run]:
    """Two workers that train."""
    addresses = _addresses()
    with contextlib.ExitStack() as stack:
        processes = []
        for rank in range(COUNT):
            env = {"TRAINERD_WORKERS": addresses, "TRAINERD_RANK": str(rank)}
            config = str(folder / "trainerd.toml")
            command = ["-m", "trainerd", "run", "--config", config]
            processes.append(stack.enter_context(Process(command, env=env, lines_of="stderr")))
        run = _Run(processes, folder)
        pid = processes[0].pid
        run.until(lambda state: state.get("pid") == pid and state.get("phase") == "training", "its first step")
        yield run


def _signals(plan: Plan) -> list[Figure]:
    """From SIGUSR1 to either worker to the snapshot that it asks for, on all: the chief announces when it was taken."""
    moments = random.Random(1)
    samples = []
    with tempfile.TemporaryDirectory(prefix="trainerd-bench-") as name:
        write_config(Path(name), ENTRY, "[checkpoint]\nkeep_last = 999\nminima = false\n")
        with _run(Path(name)) as run:
            for number in range(plan.signals // 4):
                time.sleep(moments.uniform(0.05, 0.15))
                sent = time.time()
                run.processes[number % COUNT].send(signal.SIGUSR1)
                while (saved := _SAVED.search(run.processes[0].line())) is None:
                    pass
                manifest = json.loads((Path(name) / "run" / f"model.ckpt-{saved[1]}.json").read_bytes())
                samples.append((manifest["at"] - sent) * 1000)
    note = f"{len(samples)} signals, to each in turn"
    what = "2 workers: signal to one boundary of all"
    return [
        alone("workers", f"{what}, {which}", "ms", percentile(samples, share), samples, bar, note=note)
        for which, share, bar in (("p50", 50, None), ("p99", 99, Bar(AT_MOST, 100)))
    ]


def _ends(plan: Plan) -> list[Figure]:
    """A stop of both; and the loss of one, until the other knows and until both train again."""
    stops, known, again = [], [], []
    rounds = max(1, plan.starts // 2)
    with tempfile.TemporaryDirectory(prefix="trainerd-bench-") as name:
        folder = Path(name)
        write_config(folder, ENTRY, "[checkpoint]\nsave_model_secs = 1\n")
        for number in range(rounds):
            plan.say(f"round {number + 1} of {rounds}")
            with _run(folder) as run:
                time.sleep(1.0)
                sent = time.monotonic()
                for process in run.processes:
                    process.send(signal.SIGTERM)
                stops.append(run.until_over() - sent)
                if run.state()["phase"] != "paused":
                    raise BenchmarkError(f"the stop ended with {run.state()['phase']}")
            with _run(folder) as run:
                time.sleep(1.0)
                victim = number % COUNT
                sent = time.monotonic()
                os.kill(run.processes[victim].pid, signal.SIGKILL)
                known.append(run.until_over() - sent)
            begun = time.monotonic()
            with _run(folder):
                again.append(time.monotonic() - begun)
    return [
        alone("workers", "2 workers: SIGTERM to all to all exited", "s", median(stops), stops, Bar(AT_MOST, 1)),
        alone("workers", "2 workers: SIGKILL of one to the other's end", "s", max(known), known, Bar(AT_MOST, 1)),
        alone("workers", "2 workers: start to training again", "s", median(again), again, Bar(AT_MOST, 15)),
    ]


def _addresses() -> str:
    """Ports that nobody listens at."""
    with contextlib.ExitStack() as stack:
        ports = []
        for _ in range(COUNT):
            free = stack.enter_context(socket.socket())
            free.bind(("127.0.0.1", 0))
            ports.append(free.getsockname()[1])
    return ",".join(f"127.0.0.1:{port}" for port in ports)
