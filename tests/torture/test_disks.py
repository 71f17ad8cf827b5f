"""Disks that are full, or fail late."""

from __future__ import annotations

import contextlib
import random
import re
import signal
import time
from pathlib import Path

import pytest

from tests.process.conftest import Start, write_config
from tests.process.trainers import Trainer, first_steps, saved
from tests.torture.conftest import Tell, amount
from tests.torture.disks import failing, forget_the_cache
from tests.torture.test_kills import announced
from tests.waiting import wait_for

pytestmark = pytest.mark.long


def test_a_disk_that_fails_late_has_nothing_announced_that_is_not_on_it(
    start: Start, project: Path, tmp_path: Path, record_property: Tell, as_root: None
) -> None:
    """Writes pass, fsync fails, fsync fails, and the third fsync of the same file succeeds, with the data gone."""
    promises = failures = 0
    chance = random.Random(6)
    for round_ in range(amount(1, 25)):
        folder = tmp_path / str(round_)
        folder.mkdir()
        with failing(folder) as disk:
            more = "[checkpoint]\nsave_model_secs = 0.05\nkeep_last = 4\n"
            write_config(project, entry="jobs:big", logdir=str(disk / "run"), more=more)
            run = start("run", rundir=disk / "run")
            wait_for(lambda run=run: "save failed" in run.text or not run.is_alive(), lambda run=run: run.text)  # type: ignore[misc]
            time.sleep(chance.uniform(0.2, 0.8))
            run.signal(signal.SIGKILL)
            run.end()
            promised = announced(run.text)
            forget_the_cache()
            verified = saved(run.rundir)  # every one that has a manifest
            assert set(promised[-2:]) <= set(verified), f"{promised} announced, {verified} there:\n{run.text}"
            promises += len(promised)
            failures += len(re.findall("save failed", run.text))
    record_property("announced checkpoints", promises)
    record_property("saves that failed", failures)


def fill(path: Path) -> None:
    """Take 7 MiB of a disk on which somebody else may be writing: what is not free now will be."""

    def grow() -> bool:
        with contextlib.suppress(OSError), path.open("ab") as file:
            file.write(bytes((7 << 20) - path.stat().st_size))
        return path.stat().st_size == 7 << 20

    wait_for(grow, "room for the ballast")


def until_it_failed(run: Trainer, times: int) -> None:
    wait_for(lambda: run.text.count("last save failed") >= times, lambda: run.text[-3000:])


def test_a_disk_that_is_full_for_fifty_saves(
    start: Start, project: Path, small_disk: Path, record_property: Tell
) -> None:
    more = "[checkpoint]\nsave_model_secs = 0.05\nkeep_last = 1\n[log]\nprogress_secs = 0\n"
    write_config(project, entry="jobs:big", logdir=str(small_disk / "run"), more=more)
    run = start("run", rundir=small_disk / "run")
    run.until(lambda state: state.last_checkpoint is not None, "a checkpoint")
    fill(small_disk / "ballast")
    while (failed := run.text.count("last save failed")) < 50:  # the schedule alone waits longer each time
        run.signal(signal.SIGUSR1)
        until_it_failed(run, failed + 1)
    state = run.until(lambda state: bool(state.warnings), "a warning")
    assert "are free. Free some space" in state.warnings[0]
    before = saved(run.rundir)
    run.until(lambda later: later.step > state.step, "training to go on")
    (small_disk / "ballast").unlink()
    begun = time.monotonic()
    after = run.until(
        lambda state: state.last_checkpoint is not None and state.last_checkpoint.step > before[0], "a save"
    )
    record_property("seconds from space to a checkpoint", round(time.monotonic() - begun, 2))
    run.until(lambda state: not state.warnings, "the warning to go")
    assert after.last_checkpoint is not None
    assert run.pause() == 0


def test_a_pause_without_room_says_so_and_harms_nothing(start: Start, project: Path, small_disk: Path) -> None:
    write_config(project, entry="jobs:big", logdir=str(small_disk / "run"), more="[checkpoint]\nkeep_last = 1\n")
    run = start("run", rundir=small_disk / "run")
    run.until_training()
    run.signal(signal.SIGUSR1)
    run.until(lambda state: state.last_checkpoint is not None, "a checkpoint")
    fill(small_disk / "ballast")
    before = saved(run.rundir)
    assert run.pause() == 74
    assert re.search(r"it needs 9\.0 MiB, and .* are free\. Free some space", run.text), run.text
    assert saved(run.rundir) == before
    (small_disk / "ballast").unlink()
    again = start("run", rundir=small_disk / "run")
    again.until_training()
    assert first_steps(again.text) == [before[0] + 1]
    assert again.pause() == 0
