"""The rehearsal of an upgrade: what a difference means, and Pythons that are none."""

from __future__ import annotations

import json
import math
import os
import stat
import sys
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

import pytest

from tests.fake import FakeSnapshot
from tests.unit.conftest import Cli
from trainerd.checkpoints.manifest import About
from trainerd.checkpoints.store import CheckpointStore
from trainerd.config.schema import ClusterConfig, Config
from trainerd.doctor.facts import Facts, gather
from trainerd.doctor.finding import Finding, FindingKind
from trainerd.doctor.upgrade import rehearsal
from trainerd.doctor.upgrade.python import Python, TimedOutError, TrialDifference
from trainerd.doctor.upgrade.rehearsal import furthest_metric, judge, rehearse
from trainerd.errors import StorageError
from trainerd.rundir.paths import RunDirectory
from trainerd.rundir.state import State

HERE = Python(Path(sys.executable))


def program(path: Path, text: str) -> Path:
    """A program of the shell."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return path


@pytest.mark.parametrize(
    ("far", "own", "kind", "said"),
    [
        (
            TrialDifference(1e-6, "w", 3),
            TrialDifference(0.0, "", 3),
            FindingKind.WARNING,
            "differ from those of this Python, by 1e-06",
        ),
        (TrialDifference(0.5, "w", 3), TrialDifference(0.0, "", 3), FindingKind.PROBLEM, "not close"),
        (
            TrialDifference(math.inf, "w", 3),
            TrialDifference(0.0, "", 3),
            FindingKind.PROBLEM,
            "by inf at most, in w; two trials with this Python are",
        ),
        (
            TrialDifference(0.5, "w", 3),
            TrialDifference(0.4, "v", 3),
            FindingKind.WARNING,
            "two trials with this Python differ too, by 0.4 in v",
        ),
        (TrialDifference(0.5, "w", 3), None, FindingKind.PROBLEM, "a second trial with this Python failed"),
    ],
)
def test_what_a_difference_means(
    far: TrialDifference, own: TrialDifference | None, kind: FindingKind, said: str
) -> None:
    found = judge("20 steps", far, own)
    assert found.kind is kind and said in found.said and "installed here" in found.cure


def test_the_metric_that_differs_most() -> None:
    one = {"loss": 1.0, "a": 2.0, "val_loss": 1.0, "nan": math.nan, "zero": 0.0}
    assert furthest_metric(one, one, 7) == TrialDifference(0.0, "", 7)
    other = one | {"loss": 1.5, "a": 2.5, "val_loss": 9.0}
    assert furthest_metric(one, other, 7) == TrialDifference(0.5 / 1.5, "the metric loss", 7)
    assert furthest_metric(one, one | {"a": math.nan}, 7).relative == math.inf
    assert furthest_metric(one, {name: one[name] for name in one if name != "a"}, 7).relative == math.inf


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (None, "does not exist"),
        ("exit 1", "is not a Python that can list its installed packages"),
        ("echo '[1, 2]'", "is not a Python that can list"),
        ("""echo '{"python": "3.12.1"}'""", "trainerd is not installed there"),
    ],
)
def test_a_python_that_is_none_is_a_mistake_of_the_command_line(
    rundir: RunDirectory, cli: Cli, tmp_path: Path, text: str | None, said: str
) -> None:
    venv = tmp_path / "venv"
    venv.mkdir()
    if text is not None:
        program(venv / "bin" / "python", text)
    code, printed = cli("doctor", "--logdir", str(rundir.path), "--python", str(venv))
    assert code == 64 and said in printed
    code, printed = cli("doctor", "--logdir", str(rundir.path), "--python", str(venv / "bin" / "python"))
    assert code == 64 and said in printed


def test_a_virtual_environment_is_not_resolved(tmp_path: Path) -> None:
    """Its python is a link, by which it is known."""
    link = tmp_path / "venv" / "bin" / "python"
    link.parent.mkdir(parents=True)
    link.symlink_to(program(tmp_path / "real", """echo '{"python": "3.12.1", "trainerd": "0.1.0"}'"""))
    found = Python.find(tmp_path / "venv", tmp_path)
    assert found.program == link and str(found) == f"{link} (trainerd 0.1.0, python 3.12.1)"


@pytest.fixture
def facts(rundir: RunDirectory) -> Facts:
    """A run with a checkpoint at step 5."""
    CheckpointStore(rundir).publish(FakeSnapshot(5, 10.0), About("test"))
    return gather(Config(entry="a:b", logdir=str(rundir.path)), rundir)


def only(findings: Iterable[Finding]) -> Finding:
    [found] = findings
    assert found.cure
    return found


def test_what_cannot_be_rehearsed_is_reported(facts: Facts, monkeypatch: pytest.MonkeyPatch) -> None:
    assert "none yet" in only(rehearse(replace(facts, newest=None), HERE)).said
    cluster = replace(facts.config, cluster=ClusterConfig(workers=("a:1", "b:2")))
    assert "several workers" in only(rehearse(replace(facts, config=cluster), HERE)).said
    monkeypatch.setattr(rehearsal, "free_bytes", lambda path: 1)
    assert "TMPDIR" in only(rehearse(facts, HERE)).cure


def test_the_error_of_a_python_that_cannot_resume(
    facts: Facts, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    broken = program(tmp_path / "broken", "echo first; echo No module named trainerd >&2; exit 3")
    monkeypatch.setattr(sys, "executable", str(broken))
    found = only(rehearse(facts, HERE))
    assert found.kind is FindingKind.PROBLEM and found.said.endswith("resumes from step 5: No module named trainerd")


def test_the_error_of_another_python_is_that_of_the_rehearsal(
    facts: Facts, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "executable", str(program(tmp_path / "here", "exit 0")))
    state = tmp_path / "state.json"
    state.write_text(json.dumps(State(error="the new version has no such thing\nmore").to_json()))
    other = Python(program(tmp_path / "other", f"cp {state} $5/state.json; exit 70"))  # $5 is the run directory
    found = only(rehearse(facts, other))
    assert found.kind is FindingKind.PROBLEM and found.said.startswith(f"impossible with {other}")
    assert found.said.endswith("the new version has no such thing")


def test_what_takes_too_long_is_ended_with_all_that_it_started(rundir: RunDirectory, tmp_path: Path) -> None:
    held = tmp_path / "held"  # by every one of its processes
    os.mkfifo(held)
    reader = os.open(held, os.O_RDONLY | os.O_NONBLOCK)
    slow = Python(program(tmp_path / "slow", f"exec 3> {held}; sleep 100 & sleep 100"))
    with pytest.raises(TimedOutError, match="had not begun"):
        slow.train([], rundir, tmp_path, 0.5)
    os.set_blocking(reader, True)
    assert os.read(reader, 1) == b""  # when the last of them has ended
    os.close(reader)


def test_ends_that_cannot_be_compared_are_reported(tmp_path: Path) -> None:
    broken = Python(program(tmp_path / "broken", "echo no module; exit 3"))
    with pytest.raises(StorageError, match="the final checkpoints could not be compared: no module"):
        broken.compare(tmp_path / "one", tmp_path / "other", tmp_path, 10.0)


def test_a_checkpoint_that_goes_before_it_is_copied_is_reported(facts: Facts) -> None:
    facts.rundir.index(5).unlink()
    with pytest.raises(StorageError, match=r"the checkpoint of step 5 is gone, or damaged: .* Run the command again\."):
        list(rehearse(facts, HERE))


def test_a_life_speaks_for_no_service_and_is_no_run_that_is_listed(
    rundir: RunDirectory, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NOTIFY_SOCKET", "/run/none")
    seen = tmp_path / "seen"
    asked = Python(program(tmp_path / "asked", f"env > {seen}"))
    assert asked.train([], rundir, tmp_path, 10.0) == ""
    found = dict(line.split("=", 1) for line in seen.read_text().splitlines() if "=" in line)
    assert "NOTIFY_SOCKET" not in found and found["XDG_STATE_HOME"] == str(tmp_path / "state")
    assert found["PWD"] == str(tmp_path) and os.environ["NOTIFY_SOCKET"] == "/run/none"
