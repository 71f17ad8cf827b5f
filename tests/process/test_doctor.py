"""`trainerd doctor` over a run that has trained, and its rehearsal of an upgrade."""

from __future__ import annotations

import json
import stat
import sys
from pathlib import Path

import pytest

from tests.process.conftest import Start, write_config
from tests.unit.test_doctor import look_of
from trainerd.config import parse as configs
from trainerd.doctor.facts import gather
from trainerd.doctor.finding import FindingKind
from trainerd.doctor.upgrade import rehearsal
from trainerd.doctor.upgrade.python import Python
from trainerd.doctor.upgrade.rehearsal import rehearse

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
    assert "verifies" in said["checkpoints"] and "those of the newest checkpoint" in said["versions"]
    assert "and a snapshot of" in said["memory"] and "may read the config" in said["permissions"]
    if is_paused:
        assert look_of(project / "run") == before


@pytest.mark.long
def test_an_upgrade_is_rehearsed(start: Start, project: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A Python like this one gives the same bits; one that computes otherwise is close."""
    monkeypatch.setattr(rehearsal, "LIMIT_SECS", 600.0)  # on the busiest machine
    config = write_config(project, entry="jobs:upgraded", more="[checkpoint]\nminima = false\n")
    trainer = start("run", "--max-steps", "30")
    assert trainer.end() == 0, trainer.text
    before = look_of(project / "run")
    facts = gather(configs.load(config), trainer.rundir)
    found = {how: rehearse(facts, python_of(tmp_path / f"a {how}", how)) for how in ("same", "near")}
    [same], [near] = map(list, found.values())
    assert (
        same.kind is FindingKind.OK
        and same.said.startswith("20 steps after step 30 with")
        and "bit for bit" in same.said
    )
    assert near.kind is FindingKind.WARNING and near.said.startswith("close: 20 steps after step 30")
    assert "two trials with this Python are the same, bit for bit" in near.said
    assert look_of(project / "run") == before


def python_of(venv: Path, how: str) -> Python:
    """This Python in another place, where the job computes otherwise."""
    program = venv / "bin" / "python"
    program.parent.mkdir(parents=True)
    program.write_text(f'#!/bin/sh\nUPGRADED={how} exec {sys.executable} "$@"\n')
    program.chmod(program.stat().st_mode | stat.S_IXUSR)
    return Python.find(venv, venv)
