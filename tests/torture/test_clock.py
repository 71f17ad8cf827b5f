"""A wall clock that jumps: saves come as often as before, and the newest checkpoint is that of the highest step."""

from __future__ import annotations

import itertools
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.process.conftest import write_config
from tests.process.trainers import saved
from tests.waiting import wait_for
from trainerd.checkpoints import manifest
from trainerd.rundir.paths import RunDirectory

pytestmark = pytest.mark.long

HOUR, YEAR = 3600, 31_557_600


def library() -> str:
    """libfaketime; where it is not installed the test is left out, except in CI."""
    found = list(Path("/usr/lib").glob("*/faketime/libfaketimeMT.so.1"))
    if not found:
        assert not os.environ.get("CI"), "install the package libfaketime"
        pytest.skip("needs the package libfaketime")
    return str(found[0])


def test_the_wall_clock_jumps(project: Path) -> None:
    """By an hour and by ten years, forth and back."""
    write_config(project, more="[checkpoint]\nsave_model_secs = 0.3\nkeep_last = 1000\n")
    clock, output, rundir = project / "clock", project / "output", RunDirectory(project / "run")
    environment = os.environ | {
        "LD_PRELOAD": library(),
        "FAKETIME_TIMESTAMP_FILE": str(clock),
        "FAKETIME_DONT_FAKE_MONOTONIC": "1",
        "FAKETIME_NO_CACHE": "1",
        "TF_CPP_MIN_LOG_LEVEL": "3",
    }
    clock.write_text("+0")
    with output.open("wb") as file:
        command = [sys.executable, "-m", "trainerd", "run"]
        process = subprocess.Popen(command, cwd=project, stdout=file, stderr=file, env=environment)
    try:
        for offset in (0, HOUR, -HOUR, 10 * YEAR, -10 * YEAR, 0):
            clock.write_text(f"{offset:+d}")
            there = len(rundir.steps())
            wait_for(lambda there=there: len(rundir.steps()) >= there + 2, lambda: output.read_text()[-2000:])  # type: ignore[misc]
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 0, output.read_text()
    finally:
        process.kill()
        process.wait()
    steps = saved(rundir)
    assert steps == sorted(steps, reverse=True)
    seconds = [manifest.read(rundir.manifest(step)).trained_secs for step in reversed(steps)]
    gaps = [later - earlier for earlier, later in itertools.pairwise(seconds)]
    assert all(0 <= gap < 5 for gap in gaps), "the cadence followed the wall clock"
    years = {int(manifest.read(rundir.manifest(step)).at / YEAR) for step in steps}
    assert len(years) >= 3, "the clock did not jump"
    clock.write_text(f"{-10 * YEAR:+d}")
    again = subprocess.run(
        [*command, "--max-steps", str(steps[0] + 5)], cwd=project, env=environment, capture_output=True, text=True
    )
    assert again.returncode == 0 and re.search(f"restored step {steps[0]} ", again.stdout + again.stderr), again.stderr
