"""A fork is there as a whole or not at all, and what is forked is not touched."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from tests.unit.conftest import Cli
from tests.unit.test_rollback import back, count_operations, kill_at, steps_of, value_at, write
from trainerd.checkpoints import latest
from trainerd.checkpoints import manifest as manifests
from trainerd.checkpoints.manifest import DamagedError
from trainerd.checkpoints.store import CheckpointStore
from trainerd.config import parse
from trainerd.errors import StorageError, UsageError
from trainerd.history.fork import fork, origin_of
from trainerd.history.rollback import RollbackTarget
from trainerd.rundir import registry
from trainerd.rundir.paths import RunDirectory


def resumes_at(rundir: RunDirectory) -> int:
    found = latest.newest_verified(rundir, CheckpointStore(rundir))
    assert found is not None
    return found.step


def test_a_fork_begins_at_the_checkpoint_and_says_where_it_is_from(odd_rundir: RunDirectory, tmp_path: Path) -> None:
    write(odd_rundir, 10, 20, 30)
    new = fork(odd_rundir, RollbackTarget(20), tmp_path / "ein 'neuer' Ört", {"max_steps": "40"}, clock=lambda: 5.0)
    assert resumes_at(new) == 20 and steps_of(new) == [20] and value_at(new, 20) == 1.0
    origin = origin_of(new)
    assert origin is not None and origin.logdir == str(odd_rundir.path) and origin.changes == {"max_steps": "40"}
    assert (origin.step, origin.line, origin.at) == (20, None, 5.0) and origin_of(odd_rundir) is None
    assert new.index(20).stat().st_ino == odd_rundir.index(20).stat().st_ino
    assert steps_of(odd_rundir) == [10, 20, 30] and resumes_at(odd_rundir) == 30


def test_what_training_does_in_one_does_nothing_to_the_other(rundir: RunDirectory, tmp_path: Path) -> None:
    write(rundir, 10)
    new = fork(rundir, RollbackTarget(10), tmp_path / "new", {})
    write(new, 10, 20, value=2.0)
    assert value_at(rundir, 10) == 1.0 and value_at(new, 10) == 2.0 and resumes_at(rundir) == 10


def test_an_earlier_line_can_be_forked(rundir: RunDirectory, tmp_path: Path) -> None:
    write(rundir, 10, 20)
    back(rundir, 10)
    new = fork(rundir, RollbackTarget(20, 1), tmp_path / "new", {})
    assert resumes_at(new) == 20
    with pytest.raises(UsageError, match=r"no checkpoint of step 20\. The nearest is 10"):
        fork(rundir, RollbackTarget(20), tmp_path / "other", {})


def test_a_checkpoint_that_goes_while_it_is_forked_leaves_nothing(
    rundir: RunDirectory, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(rundir, 10)

    def verify(found: object, folder: Path) -> None:
        if folder != rundir.path:
            raise DamagedError("model.ckpt-10.index: missing")

    monkeypatch.setattr(manifests, "verify", verify)
    with pytest.raises(StorageError, match="the checkpoint of step 10 cannot be forked: "):
        fork(rundir, RollbackTarget(10), tmp_path / "new", {})
    assert not (tmp_path / "new").exists()


def test_another_file_system_gets_copies(rundir: RunDirectory, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(rundir, 10)

    def no_link(*arguments: object, **options: object) -> None:
        raise OSError(errno.EXDEV, os.strerror(errno.EXDEV))

    monkeypatch.setattr(os, "link", no_link)
    new = fork(rundir, RollbackTarget(10), tmp_path / "new", {})
    assert resumes_at(new) == 10 and new.index(10).stat().st_ino != rundir.index(10).stat().st_ino


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files away")
def test_of_another_users_run_root_gets_copies(rundir: RunDirectory, tmp_path: Path) -> None:
    """Its owner could change a file that both have, and root would not trust it."""
    write(rundir, 10)
    for path in (rundir.path, *rundir.path.iterdir()):
        os.chown(path, 12345, 12345)
    new = fork(rundir, RollbackTarget(10), tmp_path / "new", {})
    assert resumes_at(new) == 10 and {path.stat().st_uid for path in new.path.iterdir()} == {0}


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EIO])
def test_a_disk_that_is_full_leaves_nothing(
    rundir: RunDirectory, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    write(rundir, 10)

    def full(*arguments: object, **options: object) -> None:
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr(os, "link", full)
    with pytest.raises(StorageError, match=f"cannot make .*new: {os.strerror(code)}"):
        fork(rundir, RollbackTarget(10), tmp_path / "new", {})
    assert sorted(path.name for path in tmp_path.iterdir()) == ["run"]


def test_a_kill_at_any_operation_leaves_a_whole_fork_or_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rundir = RunDirectory(tmp_path / "run")
    rundir.create()
    write(rundir, 10, 20)
    with monkeypatch.context() as patch:
        operations = count_operations(patch, lambda number: None)
        fork(rundir, RollbackTarget(20), tmp_path / "whole", {})
        total = operations()
    made = set[bool]()
    for nth in range(total):
        folder = tmp_path / f"fork {nth}"
        kill_at(nth, monkeypatch, lambda folder=folder: fork(rundir, RollbackTarget(20), folder, {}))  # type: ignore[misc]
        made.add(folder.exists())
        if folder.exists():
            assert resumes_at(RunDirectory(folder)) == 20
        else:
            assert resumes_at(fork(rundir, RollbackTarget(20), folder, {})) == 20
            assert not list(tmp_path.glob(f".{folder.name}.*")), "what the killed one left is gone"
    assert made == {True, False} and resumes_at(rundir) == 20


# ---------------------------------------------------------------------- the command


def project(tmp_path: Path) -> RunDirectory:
    (tmp_path / "trainerd.toml").write_text(
        '# mine\nentry = "job:job"  # the job\nlogdir = "run"\nmax_steps = 50\n[copy]\nto = "s3://bucket/digits"\n'
    )
    rundir = RunDirectory(tmp_path / "run")
    rundir.create()
    write(rundir, 10, 20)
    return rundir


def test_the_config_of_a_fork_is_the_config_with_its_changes(cli: Cli, tmp_path: Path) -> None:
    project(tmp_path)
    code, printed = cli("fork", "20", "runs/b", "--set", "max_steps=70", "--set", "checkpoint.best=min loss")
    assert code == 0 and "run --config b.toml" in printed
    text = (tmp_path / "b.toml").read_text()
    assert "# mine" in text and "# the job" in text
    config = parse.load(tmp_path / "b.toml")
    assert config.max_steps == 70 and config.checkpoint.best == "min loss" and config.rundir == tmp_path / "runs" / "b"
    assert config.copy.to == "s3://bucket/digits-b", "two runs share no copy"
    assert parse.load(tmp_path / "trainerd.toml").max_steps == 50


def test_the_config_of_a_fork_is_made_of_that_of_the_run_and_not_of_the_one_that_is_here(
    cli: Cli, tmp_path: Path
) -> None:
    (tmp_path / "there" / "sweeps").mkdir(parents=True)
    rundir = project(tmp_path / "there")
    config = tmp_path / "there" / "sweeps" / "001.toml"
    config.write_text('entry = "job:job"\nlogdir = "run"\njob_folder = ".."\nseed = 7\n')
    (tmp_path / "trainerd.toml").write_text('entry = "other:job"\nlogdir = "other"\n')
    registry.remember(rundir, config)
    assert cli("fork", "run", "20", "new", "--set", "max_steps=70")[0] == 0
    found = parse.load(tmp_path / "there" / "sweeps" / "new.toml")
    assert (found.entry, found.seed, found.max_steps) == ("job:job", 7, 70)
    assert (found.folder, found.rundir) == (tmp_path / "there", tmp_path / "new")


def test_without_changes_there_is_no_other_config(cli: Cli, tmp_path: Path) -> None:
    project(tmp_path)
    code, printed = cli("fork", "20", "b")
    assert code == 0 and f"run --logdir {tmp_path}/b" in printed and not (tmp_path / "b.toml").exists()


def test_a_kill_at_any_operation_leaves_no_fork_without_its_config(
    cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    project(tmp_path)
    with monkeypatch.context() as patch:
        operations = count_operations(patch, lambda number: None)
        assert cli("fork", "20", "whole", "--set", "max_steps=70")[0] == 0
        total = operations()
    made = set[tuple[bool, bool]]()
    for nth in range(total):
        command = ["fork", "20", f"fork{nth}", "--set", "max_steps=70"]
        kill_at(nth, monkeypatch, lambda command=command: cli(*command))  # type: ignore[misc]
        folder, config = tmp_path / f"fork{nth}", tmp_path / f"fork{nth}.toml"
        made.add((folder.exists(), config.exists()))
        if not folder.exists():
            assert cli(*command)[0] == 0, "the same command again makes it whole"
        assert parse.load(config).rundir == folder and resumes_at(RunDirectory(folder)) == 20
    assert made == {(False, False), (False, True), (True, True)}


@pytest.mark.parametrize(
    ("arguments", "code", "says"),
    [
        (["15", "b"], 64, "The nearest are 10, 20"),
        (["20", "run"], 64, "exists and is not empty"),
        (["20", "b", "--set", "max_steps"], 64, "--set: expected KEY=VALUE, such as max_steps=3000, got 'max_steps'"),
        (
            ["20", "b", "--set", "max_step=3"],
            78,
            "--set max_step=3: this key does not exist. Did you mean `max_steps`?",
        ),
        (["20", "b", "--set", "max_steps=many"], 78, '--set max_steps="many": expected a whole number'),
        (["20", "b", "--set", "foo.x=1"], 78, "--set foo.x=1: this table does not exist"),
        (
            ["20", "b", "--set", "entry.deep=3"],
            64,
            "--set entry.deep=3: `entry` is a key of the config and",
        ),
        (["20", "b", "--set", "name=-"], 78, '--set name="-": '),
        (["20", "b", "--set", "script.adopt=true"], 78, "--set script.adopt=true: this table is for an `entry` that"),
        (["20", "b", "--set", "logdir=c"], 64, "NEWDIR is the run directory"),
        (["20", "taken", "--set", "max_steps=3"], 64, "taken.toml exists: name another NEWDIR, or move that file"),
    ],
)
def test_the_command_says_what_is_wrong_and_makes_nothing(
    cli: Cli, tmp_path: Path, arguments: list[str], code: int, says: str
) -> None:
    project(tmp_path)
    (tmp_path / "taken.toml").touch()
    before = sorted(path.name for path in tmp_path.rglob("*"))
    found, printed = cli("fork", *arguments)
    assert found == code and says in printed
    assert sorted(path.name for path in tmp_path.rglob("*")) == before
