"""A run that is killed at random, many times, is the run that never was: bit for bit, and nothing announced is lost."""

from __future__ import annotations

import os
import random
import re
import signal
import statistics
import time
from pathlib import Path

import pytest

from tests.conftest import Fork
from tests.process.conftest import Start, write_config
from tests.process.trainers import Trainer, first_steps, saved, variables
from tests.torture.conftest import Tell, amount
from tests.torture.disks import Disk, power
from tests.waiting import wait_for
from trainerd.checkpoints.manifest import Manifest
from trainerd.checkpoints.memory_tier import MemoryTier
from trainerd.rundir.paths import RunDirectory
from trainerd.system.resources import memory_folders

pytestmark = pytest.mark.long

MORE = "[checkpoint]\nsave_model_secs = 0.05\nkeep_last = 3\n"


def announced(text: str) -> list[int]:
    """The steps that a log announces as saved."""
    return [int(n) for n in re.findall(r"saved step (\d+)", text)]


def until_it_trains(run: Trainer) -> None:
    wait_for(lambda: re.search(r"training(;| from)", run.text) or not run.is_alive(), "the first step")


def until_it_saved_twice(run: Trainer) -> None:
    wait_for(lambda: len(announced(run.text)) >= 2 or not run.is_alive(), "a second checkpoint")


def until_it_saved_to_memory(run: Trainer, after: int) -> None:
    run.until(lambda state: (state.memory_step or 0) > after, "a save to memory")


def lives(start: Start, kills: int, end: int, seed: int) -> tuple[Trainer, int]:
    """Kill the run at random moments, so many times, and let it come to its end. Its last life, and the steps done."""
    chance = random.Random(seed)
    for _ in range(kills):
        run = start("run", "--max-steps", str(end))
        until_it_trains(run)
        time.sleep(chance.uniform(0.0, 0.2))
        promised = announced(run.text)
        run.signal(signal.SIGKILL)
        code = run.end()
        promised += announced(run.text)
        assert code == -signal.SIGKILL, f"it ended by itself, with {code}:\n{run.text}"
        assert not promised or saved(run.rundir)[0] >= max(promised), "an announced checkpoint was lost"
        assert len(run.rundir.stagings()) <= 1
    run = start("run", "--max-steps", str(end))
    assert run.end(3600) == 0, run.text
    return run, end


def calm(start: Start, project: Path, entry: str, end: int) -> dict[str, str]:
    """The variables at the end of a run that nothing interrupts."""
    write_config(project, entry=f"jobs:{entry}", logdir="calm", more="[checkpoint]\nsave_model_secs = 0\n")
    run = start("run", "--max-steps", str(end), rundir=project / "calm")
    assert run.end(3600) == 0, run.text
    return variables(run.rundir.prefix(end))


def test_a_run_that_is_killed_at_random_ends_as_one_that_never_was(
    start: Start, project: Path, record_property: Tell
) -> None:
    """The same bytes in every variable of the last checkpoint: weights, slots, RNG, and so every batch in between."""
    kills = amount(5, 1000)
    write_config(project, entry="jobs:exact", more=MORE)
    run, end = lives(start, kills, end=4000 * kills, seed=1)
    ours = variables(run.rundir.prefix(end))
    assert len(ours) >= 8 and ours == calm(start, project, "exact", end)
    record_property("kills", kills)
    record_property("steps", end)


@pytest.mark.parametrize("entry", ["exact", "graph_loop", "keras_endless"][: amount(1, 3)])
def test_a_run_that_saves_to_memory_loses_seconds(
    fork: Fork, start: Start, project: Path, memory: dict[str, str], record_property: Tell, entry: str
) -> None:
    """Nothing is saved to disk but what a killed process had in memory. The same bytes at the end.

    Every other kill comes after a save to memory, so that the run gets ahead however slow the machine is.
    """
    kills, chance, end = amount(2, 1000 if entry == "exact" else 100), random.Random(4), 0
    lost, again = list[float](), list[int]()  # seconds, steps
    write_config(project, entry=f"jobs:{entry}", more="[checkpoint]\nsave_model_secs = 0\nminima = false\n")
    for number in range(kills):
        run = fork(project, None, run=("run",), env=memory)
        until_it_trains(run)
        began, [first] = time.time(), first_steps(run.text)
        assert first == end + 1, f"it had step {end} in memory, and resumed at {first}"
        if number % 2 == 0:
            until_it_saved_to_memory(run, first)
        time.sleep(chance.uniform(0.0, 1.5))
        run.signal(signal.SIGKILL)
        killed_at = time.time()
        assert run.end() == -signal.SIGKILL, run.text
        found = in_memory(run.rundir, memory)
        end = found.step if found is not None else end
        lost.append(killed_at - (found.at if found is not None else began))
        again.append(max(0, run.state.step - end))
    end += 1000
    run = fork(project, None, run=("run", "--max-steps", str(end)), env=memory)
    assert run.end(3600) == 0 and first_steps(run.text) == [end - 999], run.text
    assert variables(run.rundir.prefix(end)) == calm(start, project, entry, end)
    record_property(f"kills of {entry} with a memory tier", kills)
    record_property(f"seconds lost by {entry}, median and most", f"{statistics.median(lost):.2f}, {max(lost):.2f}")
    record_property(f"steps trained again by {entry}, median and most", f"{statistics.median(again):.0f}, {max(again)}")


def in_memory(rundir: RunDirectory, environment: dict[str, str]) -> Manifest | None:
    """The manifest of what is in memory, if it is newer than what is on disk."""
    folder = Path(environment[memory_folders.VARIABLE]) / f"trainerd-{os.geteuid()}"
    found = MemoryTier(rundir, lambda: [folder]).newest()
    return found.manifest if found is not None and found.step > max(saved(rundir), default=0) else None


OTHER_KINDS = ["graph", "graph_loop", "steps_loop", "keras_endless"]


@pytest.mark.parametrize("entry", OTHER_KINDS)
def test_other_kinds_of_entries_end_as_they_would_have(
    start: Start, project: Path, record_property: Tell, entry: str
) -> None:
    """A graph, loops of a program's own over a graph and over a function, and a Keras model."""
    kills = amount(1, 100)
    write_config(project, entry=f"jobs:{entry}", more=MORE)
    run, end = lives(start, kills, end=3000 * kills, seed=3)
    ours = variables(run.rundir.prefix(end))
    assert len(ours) >= 4 and ours == calm(start, project, entry, end)
    record_property(f"kills of {entry}", kills)


def cut_short(start: Start, project: Path, disk: Disk, entry: str, cuts: int, longest: float) -> int:
    """Cut a run's power so many times. How many checkpoints were announced.

    Each cut comes at a moment of so many seconds: every other time from the first step on, and the other times from the
    second checkpoint that is announced, so that there is something to be lost however slow the machine is.
    """
    write_config(project, entry=f"jobs:{entry}", logdir=str(disk.folder / "run"), more=MORE)
    newest, promises, chance = 0, 0, random.Random(2)
    for cut in range(cuts):
        run = start("run", rundir=disk.folder / "run")
        until_it_trains(run)
        assert first_steps(run.text) == [newest + 1], run.text
        if cut % 2 == 0:
            until_it_saved_twice(run)
        time.sleep(chance.uniform(0.05, longest))
        promised = announced(run.text)
        disk.cut_power()
        run.signal(signal.SIGKILL)
        run.end()
        disk.unmount()
        disk.mount()
        verified = saved(run.rundir)
        assert not promised or verified[0] >= max(promised), "an announced checkpoint is gone"
        assert set(promised[-2:]) <= set(verified), "an announced checkpoint is not whole"
        promises += len(promised)
        newest = verified[0] if verified else 0
    end = newest + 10
    run = start("run", "--max-steps", str(end), rundir=disk.folder / "run")
    assert run.end() == 0 and first_steps(run.text) == [newest + 1], run.text
    assert variables(run.rundir.prefix(end)) == calm(start, project, entry, end)
    return promises


def test_every_announced_step_survives_a_power_cut(
    start: Start, project: Path, tmp_path: Path, record_property: Tell, as_root: None
) -> None:
    cuts = amount(3, 200)
    with power(tmp_path) as disk:
        promises = cut_short(start, project, disk, "exact", cuts, longest=0.4)
    assert promises >= cuts, "hardly anything was announced"
    record_property("power cuts", cuts)
    record_property("announced checkpoints", promises)


@pytest.mark.parametrize("entry", OTHER_KINDS[: amount(1, len(OTHER_KINDS))])
def test_so_does_every_step_that_other_kinds_of_entries_announce(
    start: Start, project: Path, tmp_path: Path, record_property: Tell, as_root: None, entry: str
) -> None:
    cuts = amount(1, 50)
    with power(tmp_path) as disk:
        promises = cut_short(start, project, disk, entry, cuts, longest=0.8)
    assert promises >= 1, "nothing was announced"
    record_property(f"power cuts of {entry}", cuts)
    record_property(f"announced checkpoints of {entry}", promises)
