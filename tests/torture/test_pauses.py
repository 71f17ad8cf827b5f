"""Pauses in the middle of what takes long: evaluations, and the deletion of thousands of old checkpoints."""

from __future__ import annotations

import os
import random
import re
import signal
import time
from dataclasses import replace
from pathlib import Path

import pytest

from tests.process.conftest import Start, write_config
from tests.process.trainers import saved, variables
from tests.torture.conftest import Tell, amount
from tests.torture.test_kills import announced, until_it_trains
from tests.waiting import wait_for
from trainerd.checkpoints import manifest
from trainerd.rundir.paths import RunDirectory

pytestmark = pytest.mark.long

GRACE_SECS = 10.0
EVERY = "[evaluate]\nevaluate_secs = 0\nevaluate_steps = 400\n[checkpoint]\nsave_model_steps = 300\n"


def evaluations(project: Path) -> list[str]:
    """What the job has measured, each once: what was cut short by a kill is measured again."""
    path = project / "evaluations"
    found = list(dict.fromkeys(path.read_text().splitlines()))
    path.unlink()
    return found


def end_as_a_calm_run(start: Start, project: Path, end: int) -> list[str]:
    """Train to the end, and require the variables and evaluations of a run without a stop. Its evaluations."""
    last = start("run", "--max-steps", str(end))
    assert last.end(3600) == 0, last.text
    ours, measured = variables(last.rundir.prefix(end)), evaluations(project)
    calm = start("run", "--max-steps", str(end), "--logdir", "calm", rundir=project / "calm")
    assert calm.end(3600) == 0, calm.text
    assert ours == variables(calm.rundir.prefix(end)) and measured == evaluations(project)
    return measured


def test_pauses_and_kills_of_a_run_that_evaluates_often(start: Start, project: Path, record_property: Tell) -> None:
    """It ends as a run that nothing interrupts, and has measured the same at the same steps."""
    stops, chance = amount(3, 100), random.Random(5)
    end = 2000 * (stops // 3)
    write_config(project, entry="jobs:evaluated_often", more=EVERY)
    for number in range(stops):
        run = start("run", "--max-steps", str(end))
        until_it_trains(run)
        time.sleep(chance.uniform(0.0, 0.4))
        if not run.is_alive():
            break
        if number % 3 == 1:
            run.signal(signal.SIGKILL)
            assert run.end() in (-signal.SIGKILL, 0)
        else:
            begun = time.monotonic()
            assert run.pause() == 0, run.text
            assert time.monotonic() - begun < GRACE_SECS
        promised = announced(run.text)
        assert not promised or saved(run.rundir)[0] >= max(promised)
    assert len(end_as_a_calm_run(start, project, end)) == end // 400
    record_property("pauses and kills beside evaluations", stops)


def clone(rundir: RunDirectory, count: int) -> None:
    """Make a run have so many checkpoints before its last: other names of its files."""
    last = manifest.read(rundir.manifest(rundir.steps()[0]))
    for step in range(1, count):
        files = {name.replace(f"-{last.step}.", f"-{step}."): record for name, record in last.files.items()}
        for old, new in zip(last.files, files, strict=True):
            os.link(rundir.path / old, rundir.path / new)
        record = replace(last, step=step, files=files, before=step - 1 or None)
        rundir.manifest(step).write_bytes(record.to_bytes())
    rundir.manifest(last.step).write_bytes(replace(last, before=count - 1).to_bytes())


def test_thousands_of_checkpoints_are_deleted_beside_saves_and_pauses(
    start: Start, project: Path, record_property: Tell
) -> None:
    """Where an fsync takes 3 ms. A save that waits for them would be one that hangs."""
    count = amount(500, 10_000)
    more = "[checkpoint]\nkeep_last = 20000\n"
    write_config(project, entry="jobs:on_a_slow_disk", more=more)
    first = start("run", "--max-steps", str(count))
    assert first.end() == 0, first.text
    rundir = first.rundir
    clone(rundir, count)
    assert len(rundir.steps()) == count
    more = "[checkpoint]\nkeep_last = 5\nsave_model_secs = 0.5\n[watchdog]\nsave_secs = 2\n"
    write_config(project, entry="jobs:on_a_slow_disk", more=more)
    paused = start("run")
    wait_for(lambda: len(rundir.steps()) < count - 50, paused.text)
    left, begun = len(rundir.steps()), time.monotonic()
    assert paused.pause() == 0, paused.text
    assert time.monotonic() - begun < GRACE_SECS and saved(rundir)[0] == max(announced(paused.text))
    run = start("run")
    run.until_training()
    begun = time.monotonic()
    wait_for(lambda: len(rundir.steps()) <= 6, run.text, 60)
    took = time.monotonic() - begun
    wait_for(lambda: len(announced(run.text)) >= 4, run.text)
    times = [float(found) for found in re.findall(r"saved step \d+ \(schedule\) in ([0-9.]+) s", run.text)]
    assert took < 30 and max(times) < 2
    assert run.pause() == 0 and len(rundir.steps()) == 5
    record_property("checkpoints deleted", f"{left} in {took:.1f} s; the slowest save beside it took {max(times)} s")
