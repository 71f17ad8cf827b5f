"""The digits job with the default config, killed every few minutes: nearly all of its time is training."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import psutil
import pytest

from tests.process.conftest import write_config
from tests.process.trainers import variables
from tests.torture.conftest import Tell, amount
from tests.waiting import wait_for
from trainerd.rundir.paths import RunDirectory
from trainerd.rundir.state import Phase, State, read_state

pytestmark = pytest.mark.long

Begin = Callable[..., RunDirectory]
AHEAD = 5000  # steps that a run still trains after `max_steps` is written to its config
AT_LEAST, AGAIN_AT_MOST = 0.96, 0.01
PATIENCE_SECS = 900


@pytest.fixture
def begin(tmp_path: Path, memory: dict[str, str]) -> Iterator[Begin]:
    """Start a run of the digits job in the background, in a folder of that name, on these processors.

    It is killed at the end of the test.
    """
    begun: list[int] = []

    def go(name: str, *options: str, on: list[int]) -> RunDirectory:
        folder = tmp_path / name
        folder.mkdir()
        write_config(folder, entry="trainerd.examples.digits:job")
        processors = ["taskset", "--cpu-list", ",".join(map(str, on))]
        command = [*processors, sys.executable, "-m", "trainerd", "start", *options]
        done = subprocess.run(command, cwd=folder, env=os.environ | memory, capture_output=True, text=True, check=True)
        begun.extend(int(pid) for pid in re.findall(r"\bpid (\d+)", done.stdout + done.stderr))
        return RunDirectory(folder / "run")

    yield go
    for pid in begun:
        with contextlib.suppress(psutil.NoSuchProcess):
            process = psutil.Process(pid)
            for each in (process, *process.children(recursive=True)):  # first what would start the others again
                each.kill()


@dataclass(frozen=True)
class Recovery:
    """One kill, as the files of the run show it.

    Attributes:
      reached: the step at which the process was killed.
      secs: from the kill to the first report of that step or a later one by another process.
      back: that report.
    """

    reached: int
    secs: float
    back: State


def trains(rundir: RunDirectory, not_pid: int = 0, step: int = 1) -> State:
    """Return the first report of a process that trains and has come to a step."""

    def look() -> State | None:
        state = read_state(rundir.state)
        is_so = state is not None and state.pid != not_pid and state.phase.has_begun and state.step >= step
        return state if is_so else None

    return wait_for(look, f"step {step} of {rundir.path}", PATIENCE_SECS)


def kill(rundir: RunDirectory, since: State) -> Recovery:
    """Kill the process. The step at which it was is that of its last report, and what it trained from then on."""
    os.kill(since.pid, signal.SIGKILL)
    killed_at = time.time()
    last = read_state(rundir.state)
    assert last is not None and last.pid == since.pid, "the process ended by itself"
    rate = (last.step - since.step) / (last.at - since.at)
    reached = round(last.step + rate * (killed_at - last.at))
    back = trains(rundir, not_pid=since.pid, step=reached)
    return Recovery(reached, back.at - killed_at, back)


def killed_every(secs: float, kills: int, rundir: RunDirectory) -> tuple[list[Recovery], float]:
    """Kill a run so many times. Returns what each kill took, and the seconds from the first step to the last of them.

    A process that has saved nothing to memory yet is given the time to.
    """
    since = trains(rundir)
    begun, found = since.at, list[Recovery]()

    def is_due() -> bool:
        state = read_state(rundir.state)
        has_saved = state is not None and state.memory_step is not None and state.memory_step > since.step
        return has_saved and time.time() >= begun + secs * (len(found) + 1)

    for _ in range(kills):
        wait_for(is_due, "the time of the next kill", PATIENCE_SECS)
        found.append(kill(rundir, since))
        since = found[-1].back
    return found, since.at - begun


def finished(rundir: RunDirectory) -> State:
    """Return the last report of a run, however long it takes, as long as it trains."""
    step = 0

    def look() -> State | None:
        state = read_state(rundir.state)
        return state if state is not None and (state.phase is Phase.FINISHED or state.step > step) else None

    while (state := wait_for(look, f"{rundir.path} to train or finish", PATIENCE_SECS)).phase is not Phase.FINISHED:
        step = state.step
    return state


def end_at_one_step(rundirs: list[RunDirectory]) -> int:
    """Have runs end at the same step, soon. Returns the step."""
    states = [trains(rundir) for rundir in rundirs]
    end = max(state.step for state in states) + AHEAD
    for rundir, state in zip(rundirs, states, strict=True):
        config = rundir.path.parent / "trainerd.toml"
        config.write_text(f"max_steps = {end}\n{config.read_text()}", encoding="utf-8")
        os.kill(state.pid, signal.SIGHUP)
    for rundir in rundirs:
        assert finished(rundir).step == end
    return end


def test_kills_every_few_minutes_cost_little_of_the_time(begin: Begin, record_property: Tell) -> None:
    """`start --keep-alive` starts the run again. It ends with the variables of a run beside it that nothing kills.

    Each has half of the processors.
    """
    kills, secs = amount(1, 12), amount(5, 300)
    processors = sorted(os.sched_getaffinity(0))
    half = max(1, len(processors) // 2)
    killed, calm = begin("killed", "--keep-alive", on=processors[:half]), begin("calm", on=processors[-half:])
    found, whole = killed_every(secs, kills, killed)
    goodput, last = 1 - sum(each.secs for each in found) / whole, found[-1].back
    end = end_at_one_step([killed, calm])
    assert variables(killed.prefix(end)) == variables(calm.prefix(end))
    resumed = [int(step) for step in re.findall(r"restored step (\d+)", killed.log.read_text())]
    assert len(resumed) == kills, f"{kills} kills, and it resumed from {resumed}"
    again = [max(0, each.reached - step) for each, step in zip(found, resumed, strict=True)]
    share, reported = sum(again) / end, last.goodput.percent()
    if amount(1, 0) == 0:
        assert goodput >= AT_LEAST and reported["training"] >= 100 * AT_LEAST and share < AGAIN_AT_MOST
    record_property(f"goodput of {whole:.0f} s with {kills} kills", f"{goodput:.2%}; step {end} at the end")
    record_property("seconds until it was at the step again", ", ".join(f"{each.secs:.1f}" for each in found))
    record_property("steps trained again", f"{share:.2%}: {again}; trainerd says {last.goodput.steps_again}")
    record_property("goodput that trainerd reports, in percent", reported)
