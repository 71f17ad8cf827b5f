"""`trainerd doctor` over a run that has trained, and its rehearsal of an upgrade."""

from __future__ import annotations

import json
import stat
import sys
from pathlib import Path

import pytest

from tests.process.conftest import Start, write_config
from tests.unit.test_doctor import look_of

OF_THE_MACHINE = {"disk space", "inodes", "file system", "fsync", "clock", "memory", "GPU"}  # what this one is like


@pytest.mark.parametrize("is_paused", [True, False], ids=["paused", "training"])
def test_a_sound_run_has_no_problem_but_those_of_the_machine(start: Start, project: Path, is_paused: bool) -> None:
    write_config(project, more="[checkpoint]\nsave_model_secs = 0\nminima = false\n")
    trainer = start("run")
    trainer.until_training(step=100)
    if is_paused:
        assert trainer.pause() == 0
    else:
        assert start("save", "--wait").end() == 0
    before = look_of(project / "run") if is_paused else {}
    doctor = start("doctor", "--json")
    assert doctor.end() in (0, 70), doctor.text
    found = json.loads(doctor.text.splitlines()[0])
    bad = [each for each in found if each["kind"] != "ok" and each["subject"] not in OF_THE_MACHINE]
    assert not bad
    said = {each["subject"]: each["said"] for each in found}
    assert "is what was written" in said["checkpoints"] and "those of the newest checkpoint" in said["versions"]
    assert "and a snapshot of" in said["memory"] and "may read the config" in said["permissions"]
    if is_paused:
        assert look_of(project / "run") == before


@pytest.mark.long
def test_an_upgrade_is_rehearsed(start: Start, project: Path, tmp_path: Path) -> None:
    """A Python like this one gives the same bits; one whose job is another does not, and one that fails says why."""
    write_config(project, entry="jobs:upgraded", more="[checkpoint]\nminima = false\n")
    trainer = start("run", "--max-steps", "30")
    assert trainer.end() == 0, trainer.text
    before = look_of(project / "run")
    for setting, part in (
        ("", "20 steps from step 30 on"),
        ("near", "close: 20 steps"),
        ("fails", "impossible with"),
    ):
        venv = tmp_path / f"venv {setting}"
        (venv / "bin").mkdir(parents=True)
        python = venv / "bin" / "python"
        python.write_text(f'#!/bin/sh\nUPGRADED={setting} exec {sys.executable} "$@"\n')
        python.chmod(python.stat().st_mode | stat.S_IXUSR)
        doctor = start("doctor", "--json", "--python", str(venv))
        assert doctor.end(130) in (0, 70), doctor.text
        [found] = [each for each in json.loads(doctor.text.splitlines()[0]) if each["subject"] == "rehearsal"]
        assert found["said"].startswith(part), found
        if not setting:
            assert found["kind"] == "ok" and "bit for bit" in found["said"]
        elif setting == "fails":
            assert found["said"].endswith("the new version has no such thing") and found["kind"] == "problem"
        else:
            assert "two lives with this Python are the same, bit for bit" in found["said"]
    assert look_of(project / "run") == before
