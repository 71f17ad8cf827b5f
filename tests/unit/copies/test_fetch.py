"""What is fetched from a copy is whole, and lies where it should."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from tests.fake import FakeSnapshot
from tests.unit.copies.stores import (
    Killed,
    MemoryStore,
    copied,
    fetched,
    identified,
    run_of,
)
from tests.unit.test_rollback import back, steps_of, write
from trainerd.checkpoints import manifest as manifests
from trainerd.checkpoints.manifest import About
from trainerd.checkpoints.retention import Policy
from trainerd.checkpoints.store import CheckpointStore
from trainerd.config.destination import Destination
from trainerd.copies.copier import Copier
from trainerd.copies.layout import CopyIndex, RunCopy, record_of
from trainerd.copies.rclone import RcloneStore
from trainerd.errors import ConfigError, CopyError, DataError, UsageError
from trainerd.rundir.paths import RunDirectory
from trainerd.rundir.state import read_state


def test_one_checkpoint_can_be_fetched(store: MemoryStore, tmp_path: Path) -> None:
    found = fetched(store, tmp_path / "one", "20")
    assert (found.resumes_at, steps_of(found.rundir)) == (20, [20])
    assert steps_of(fetched(store, tmp_path / "latest", "latest").rundir) == [30]
    with pytest.raises(UsageError, match=r"no checkpoint of step 25\. It has 10, 20, 30"):
        fetched(store, tmp_path / "none", "25")
    with pytest.raises(UsageError, match="the config names no `best`"):
        fetched(store, tmp_path / "none", "best")
    assert not (tmp_path / "none").exists()


def test_a_damaged_checkpoint_is_left_out_and_said(
    rundir: RunDirectory, store: MemoryStore, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    record = manifests.read(rundir.manifest(30)).files["model.ckpt-30.data-00000-of-00001"]
    store.contents[f"objects/{record.xxh128}"] = b"30.1"
    found = fetched(store, tmp_path / "rest")
    assert (found.resumes_at, found.steps, found.missing) == (20, [10, 20], [30])
    assert "the copy of step 30 is damaged: " in caplog.text and "is not what was written (XXH3)" in caplog.text
    assert steps_of(fetched(store, tmp_path / "latest", "latest").rundir) == [20]
    with pytest.raises(DataError, match="no checkpoint at memory is whole of those that were asked for: 30"):
        fetched(store, tmp_path / "none", "30")
    assert not (tmp_path / "none").exists()


def test_an_older_list_of_files_stands_in_for_a_damaged_one(
    rundir: RunDirectory, store: MemoryStore, tmp_path: Path
) -> None:
    write(rundir, 40)
    copied(rundir, store)
    newest = max(name for name in store.contents if name.startswith("indexes/"))
    store.contents[newest] = store.contents[newest][:-5]
    assert fetched(store, tmp_path / "back").steps == [10, 20, 30, 40]


def test_a_fetch_does_not_resume_what_a_rollback_left_behind(
    rundir: RunDirectory, store: MemoryStore, tmp_path: Path
) -> None:
    """The copier is killed after the list of files, before the checkpoint that the list names."""
    back(rundir, 10)
    write(rundir, 15)
    del store.contents["checkpoints/model.ckpt-10.json"]

    def kill(name: str) -> None:
        if name == "checkpoints/model.ckpt-15.json":
            raise Killed

    store.on_put = kill
    with pytest.raises(Killed):
        copied(rundir, store)
    for where in (None, "latest"):
        with pytest.raises(
            DataError, match=r"resumes: 15, 10\. It has others, .*: 30, 20\. .*`trainerd fetch memory DIR 30`"
        ):
            fetched(store, tmp_path / "back", where)
    assert not (tmp_path / "back").exists()
    assert fetched(store, tmp_path / "chosen", "30").resumes_at == 30


def test_a_fetch_resumes_before_what_a_killed_copier_has_not_finished(
    rundir: RunDirectory, store: MemoryStore, tmp_path: Path
) -> None:
    """It was far behind: the run has none of the checkpoints any more that the copy has."""
    for step in (100, 110):
        CheckpointStore(rundir, policy=Policy(1)).publish(FakeSnapshot(step, 1.0), About("schedule"))
    assert rundir.steps() == [110]

    def kill(name: str) -> None:
        if name == "checkpoints/model.ckpt-110.json":
            raise Killed

    store.on_put = kill
    for _ in range(2):
        with pytest.raises(Killed):
            copied(rundir, store)
    assert fetched(store, tmp_path / "back").resumes_at == 30


def test_a_fetch_while_a_copier_works_takes_the_list_that_is_new(
    rundir: RunDirectory, store: MemoryStore, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The objects of the list that it has read go meanwhile."""
    (rundir.path / "events.out.tfevents.1.x").write_bytes(b"first")
    copied(rundir, store)
    old = f"objects/{record_of(b'first').xxh128}"

    class Busy(MemoryStore):
        def read(self, name: str) -> Iterator[bytes]:
            if name == old:
                for text in (b"second", b"third", b"fourth"):
                    (rundir.path / "events.out.tfevents.1.x").write_bytes(text)
                    copied(rundir, self)
            return super().read(name)

    found = fetched(Busy(store.contents), tmp_path / "back")
    assert (found.rundir.path / "events.out.tfevents.1.x").read_bytes() == b"fourth" and found.steps == [10, 20, 30]
    assert "An older list of the run's files is used" in caplog.text


def test_without_a_list_of_files_nothing_is_fetched(store: MemoryStore, tmp_path: Path) -> None:
    indexes = [name for name in store.contents if name.startswith("indexes/")]
    for name in indexes:
        store.contents[name] = b"{"
    with pytest.raises(DataError, match=f"none of the {len(indexes)} lists of files at memory is whole"):
        fetched(store, tmp_path / "back")
    for name in indexes:
        store.delete(name)
    with pytest.raises(DataError, match="memory has no checkpoint yet: its first copy has not ended"):
        fetched(store, tmp_path / "back")


def test_contents_that_differ_at_each_read_or_are_too_large_are_an_error(store: MemoryStore) -> None:
    class Noise(MemoryStore):
        reads = 0

        def read(self, name: str) -> Iterator[bytes]:
            self.reads += 1
            yield b"%d" % self.reads
            yield from (bytes(1 << 20) for _ in range(65 * (self.reads > 2)))

    copy = RunCopy(Noise(), "memory")
    with pytest.raises(CopyError, match=r"run.json at memory gave other bytes when it was read again"):
        copy.about()
    with pytest.raises(CopyError, match=r"run.json at memory is larger than 64.0 MiB, the most that trainerd reads"):
        copy.about()


def test_an_upload_ends_where_the_copier_is_stopped(rundir: RunDirectory) -> None:
    write(rundir, 10)
    identified(rundir)
    copier = Copier(run_of(rundir), stopped=lambda: True)
    with pytest.raises(CopyError, match="the copy to memory was stopped"):
        copier.open(RunCopy(MemoryStore(), "memory"), read_state(rundir.state))
        copier.check()


@pytest.mark.parametrize(
    ("script", "kind", "says"),
    [
        (None, ConfigError, "copies to this destination need rclone, which is not installed. Install it with `"),
        ("#!/bin/sh\necho bad flag\nexit 1\n", CopyError, r"rclone \(.*/rclone\) did not start: bad flag"),
    ],
)
def test_an_rclone_that_does_not_start_is_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, script: str | None, kind: type[Exception], says: str
) -> None:
    if script is not None:
        (tmp_path / "rclone").write_text(script)
        (tmp_path / "rclone").chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(tmp_path / "python"))
    monkeypatch.setenv("PATH", f"{tmp_path}:/bin" if script else str(tmp_path))
    monkeypatch.setenv("HOME", str(tmp_path))
    with pytest.raises(kind, match=says):
        RcloneStore(Destination.parse("sftp://host/run"))


def test_nothing_is_fetched_into_a_folder_that_has_something(store: MemoryStore, tmp_path: Path) -> None:
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "mine").touch()
    with pytest.raises(UsageError, match="exists and is not empty"):
        fetched(store, tmp_path / "full")
    assert [path.name for path in (tmp_path / "full").iterdir()] == ["mine"]


def test_what_a_newer_version_wrote_is_refused(rundir: RunDirectory, store: MemoryStore, tmp_path: Path) -> None:
    copy = RunCopy(store, "memory")
    about = copy.about()
    assert about is not None
    store.contents["run.json"] = replace(about, format=2).to_bytes()
    with pytest.raises(DataError, match="has format 2, and this trainerd reads format 1: a newer version"):
        fetched(store, tmp_path / "back")
    with pytest.raises(DataError, match="a newer version"):
        copied(rundir, store)


@pytest.mark.parametrize("contents", [{}, {"run.json": b"{", "indexes/1.json": b"{}"}])
def test_what_is_no_copy_is_refused(contents: dict[str, bytes], tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"holds no copy of a run|run\.json is damaged"):
        fetched(MemoryStore(contents), tmp_path / "back")


@pytest.mark.parametrize("name", ["../outside", "/etc/cron.d/x", "job/../../x", "a//b"])
def test_a_copy_writes_nothing_outside_of_the_folder(store: MemoryStore, tmp_path: Path, name: str) -> None:
    copy = RunCopy(store, "memory")
    index = copy.index(max(copy.index_numbers()))
    assert index is not None
    copy.put_index(replace(index, number=index.number + 1, files={name: [copy.put_part(b"evil")]}))
    with pytest.raises(DataError, match="outside of the run"):
        fetched(store, tmp_path / "back")
    assert not (tmp_path / "back").exists()


def test_an_index_keeps_its_numbers() -> None:
    assert json.loads(CopyIndex(1, 3, "r1", "model.ckpt", 5.0).to_bytes())["number"] == 3
