"""The sides of a comparison of rates: a peer, and a real `trainerd run`. Each gets ready, then measures on request."""

from __future__ import annotations

import json
import math
import signal
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from benchmarks.loss import step_of
from benchmarks.processes import PATIENCE, Process

_POLL_SECS = 0.01
# A state counts as seen when it was stamped at most so long before: our clock and the daemon's then agree.
_FRESH_SECS = 0.02
_LOSS_TOLERANCE = 0.01


class Side(Protocol):
    """One side. Only one of them runs at a time."""

    def ready(self) -> None:
        """Return when it is compiled and warm, and lies still."""
        ...

    def rate(self, seconds: float) -> float:
        """Steps per second, measured now for so long."""
        ...

    def end(self) -> None:
        """End its process."""
        ...


class Peer:
    """A peer's process; see peers/contract.py.

    Args:
      arguments: after `python -m benchmarks.peers.`.
      env: added to its environment.
    """

    def __init__(self, *arguments: str, env: Mapping[str, str] | None = None) -> None:
        module, *rest = arguments
        self._process = Process(["-m", f"benchmarks.peers.{module}", *rest], env=env)
        self._setting = 0
        self.facts: dict[str, Any] = {}

    def ready(self) -> None:
        """Wait for its word, which says what else is to be known of it."""
        self.facts = self._process.answer()

    def change(self, setting: int) -> None:
        """Change to another of its settings, by its index."""
        self._setting = setting

    def rate(self, seconds: float) -> float:
        """What it measures itself, around its own loop."""
        answer = self._process.ask(f"{seconds} {self._setting}")
        return float(answer["steps"]) / float(answer["seconds"])

    def end(self) -> None:
        """End it."""
        self._process.end()


class Seen(NamedTuple):
    """A boundary as state.json told it."""

    step: int
    at: float


class Trainer:
    """`trainerd run` of a job, with everything at its default. It is stopped (SIGSTOP) while a peer is measured.

    Its rate is that between two boundaries it reported, each seen from here within 20 ms of its own time stamp, so
    that neither its count of steps per second nor its clock is taken on trust.

    Args:
      entry: the job.
      folder: an empty folder.
      env: added to its environment.
      more: further lines of its config.
      by_loss: whether the job is the tiny one, whose loss tells the step; then that is checked too.
    """

    def __init__(
        self, entry: str, folder: Path, *, env: Mapping[str, str] | None = None, more: str = "", by_loss: bool = False
    ) -> None:
        self._entry, self._folder = entry, folder
        self._process = start(write_config(folder, entry, more), env=env)
        self._state = folder / "run" / "state.json"
        self._by_loss = by_loss

    def ready(self) -> None:
        """Wait until it trains and has reported a boundary of its steady state."""
        wait_for_first_step(self._process)
        self._next()
        self._process.send(signal.SIGSTOP)

    def rate(self, seconds: float) -> float:
        """Steps per second from the outside; services that fall into the time count against it."""
        self._process.send(signal.SIGCONT)
        # The first report after a stop tells of time that was not its own.
        self._next()
        first = self._next()
        time.sleep(seconds)  # it is measured now: whoever looks takes some of the machine
        last = self._next()
        self._process.send(signal.SIGSTOP)
        return (last.step - first.step) / (last.at - first.at)

    def change(self, more: str) -> None:
        """Write its config again, with these further lines, and have it read."""
        write_config(self._folder, self._entry, more)
        self._process.send(signal.SIGHUP)

    def go_on(self) -> None:
        """Let it train while nobody measures."""
        self._process.send(signal.SIGCONT)

    def end(self) -> None:
        """End it; nothing of it is needed."""
        self._process.end()

    def _next(self) -> Seen:
        """The next boundary that is reported."""
        before = self._written()
        end = time.monotonic() + PATIENCE
        while time.monotonic() < end:
            # Polled, and not waited for: what is looked at is a file of another process.
            time.sleep(_POLL_SECS)
            if (written := self._written()) == before:
                continue
            before = written
            data = json.loads(self._state.read_bytes())
            if data["phase"] == "training" and 0 <= time.time() - data["at"] <= _FRESH_SECS:
                return self._checked(data)
        raise self._process.failure("reported no new step")

    def _written(self) -> int:
        """When state.json was written; a look that costs next to nothing."""
        try:
            return self._state.stat().st_mtime_ns
        except FileNotFoundError:
            return 0

    def _checked(self, data: dict[str, Any]) -> Seen:
        step = int(data["step"])
        if self._by_loss and not math.isclose(found := step_of(data["metrics"]["loss"]), step, abs_tol=_LOSS_TOLERANCE):
            raise self._process.failure(f"said step {step}, and its loss is that of step {found:.2f}")
        return Seen(step, data["at"])


class Setting:
    """One of several settings of one process, as a side of its own.

    Args:
      process: is ready, and ended by its owner.
      change: changes to the setting.
    """

    def __init__(self, process: Side, change: Callable[[], object]) -> None:
        self._process, self._change = process, change

    def ready(self) -> None:
        """Do nothing: the process is ready."""

    def rate(self, seconds: float) -> float:
        """Steps per second of the process in this setting."""
        self._change()
        return self._process.rate(seconds)

    def end(self) -> None:
        """Do nothing: the process is its owner's."""


def write_config(folder: Path, entry: str, more: str = "") -> Path:
    """A config that says what is trained and where, and more lines if there are some; its path."""
    path = folder / "trainerd.toml"
    path.write_text(f'entry = "{entry}"\nlogdir = "run"\n{more}', encoding="utf-8")
    return path


def start(config: Path, *, env: Mapping[str, str] | None = None) -> Process:
    """A `trainerd run`, whose log lines are read."""
    return Process(["-m", "trainerd", "run", "--config", str(config)], env=env, lines_of="stderr")


def wait_for_first_step(process: Process) -> None:
    """Read its log until the first step is done."""
    while "the first step was" not in process.line():
        pass


def interleaved(sides: list[Side], *, rounds: int, seconds: float, say: Callable[[str], None]) -> list[list[float]]:
    """Measure all sides one after the other, in rounds. The rates, in a list for each side.

    Every other round goes backwards, so that a machine that gets slower and slower favours none.
    """
    rates: list[list[float]] = [[] for _ in sides]
    for number in range(rounds):
        say(f"round {number + 1} of {rounds}")
        order = list(range(len(sides)))
        for index in order if number % 2 == 0 else reversed(order):
            rates[index].append(sides[index].rate(seconds))
    return rates
