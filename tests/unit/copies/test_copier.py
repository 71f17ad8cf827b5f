"""A copy of a run elsewhere: what is said to be copied is there, whoever writes and whatever fails."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

import pytest

from tests.unit.conftest import FakeTime
from tests.unit.copies.stores import (
    THERE,
    MemoryStore,
    about_job,
    contents_of,
    copied,
    copy_with_faults,
    fetched,
    identified,
    run_of,
)
from tests.unit.test_rollback import back, value_at, write
from trainerd.checkpoints import latest
from trainerd.checkpoints import manifest as manifests
from trainerd.checkpoints.store import CheckpointStore
from trainerd.config.destination import Destination
from trainerd.copies.copier import FILES_SECS, Copier
from trainerd.copies.fetch import fetch
from trainerd.copies.layout import RunCopy
from trainerd.copies.process import copy_once, only_copier
from trainerd.copies.status import read_copy_status
from trainerd.copies.store import PIECE, FolderStore
from trainerd.errors import ConfigError, InUseError, NotRunningError
from trainerd.rundir.paths import RunDirectory
from trainerd.rundir.state import Phase, read_state


def test_a_run_comes_back_bit_for_bit(odd_rundir: RunDirectory, tmp_path: Path) -> None:
    write(odd_rundir, 10, 20, 30)
    identified(odd_rundir)
    odd_rundir.pin(10).touch()
    (odd_rundir.path / "events.out.tfevents.1.x").write_bytes(os.urandom(3_000_000))
    (odd_rundir.path / "eval").mkdir()
    (odd_rundir.path / "eval" / "events.out.tfevents.2.x").write_bytes(b"evaluation")
    url = Destination.parse((tmp_path / "nas").as_uri())
    assert url.path == str(tmp_path / "nas")
    copier = copy_once(run_of(odd_rundir), RunCopy(FolderStore(tmp_path / "nas"), "nas"))
    assert copier.status.steps == [10, 20, 30] and copier.status.step == 30 and copier.status.error is None
    evaluation = (odd_rundir.path / "eval" / "events.out.tfevents.2.x").read_bytes()
    shutil.rmtree(odd_rundir.path / "eval")
    before = contents_of(odd_rundir)
    shutil.rmtree(odd_rundir.path)
    found = fetch(RunCopy(FolderStore(tmp_path / "nas"), "nas"), tmp_path / "back", None, lambda said: None)
    assert (found.resumes_at, found.steps, found.missing, found.config) == (30, [10, 20, 30], [], None)
    assert (found.rundir.path / "eval" / "events.out.tfevents.2.x").read_bytes() == evaluation
    shutil.rmtree(found.rundir.path / "eval")
    assert contents_of(found.rundir) == before
    resumed = latest.newest_verified(found.rundir, CheckpointStore(found.rundir))
    state = read_state(found.rundir.state)
    assert resumed is not None and resumed.step == 30
    assert state is not None and (state.phase, state.run_id, state.step) == (Phase.PAUSED, "r1", 30)


def test_what_is_there_is_not_sent_again(rundir: RunDirectory) -> None:
    write(rundir, 10, 20)  # the same values, so the same data file
    identified(rundir)
    store = MemoryStore()
    copied(rundir, store)
    sent = len([name for name in store.puts if name.startswith("objects/")])
    assert len({name for name in store.puts if name.startswith("objects/")}) == sent
    store.puts.clear()
    copied(rundir, store)
    assert [name for name in store.puts if not name.startswith("indexes/")] == []


def test_the_manifest_is_written_last_and_makes_the_copy(rundir: RunDirectory) -> None:
    write(rundir, 10)
    identified(rundir)
    store = MemoryStore()
    copied(rundir, store)
    kinds = [name.partition("/")[0] for name in store.puts]
    assert kinds[0] == "run.json" and kinds[-1] == "checkpoints" and kinds[-2] == "indexes"


def test_the_newest_is_sent_first_and_the_copy_has_a_retention_of_its_own(rundir: RunDirectory) -> None:
    write(rundir, 10, 20, 30, 40)
    identified(rundir)
    rundir.pin(10).touch()
    store = MemoryStore()
    assert copied(rundir, store, keep=2).status.steps == [10, 30, 40]
    sent = [name for name in store.puts if name.startswith("checkpoints/")]
    assert sent == [f"checkpoints/model.ckpt-{step}.json" for step in (40, 30, 10)]
    write(rundir, 50)
    rundir.pin(10).unlink()
    assert copied(rundir, store, keep=2).status.steps == [40, 50]
    named = {record.xxh128 for step in (40, 50) for record in manifests.read(rundir.manifest(step)).files.values()}
    indexes = [json.loads(store.contents[name]) for name in store.contents if name.startswith("indexes/")]
    named |= {part["xxh128"] for index in indexes for parts in index["files"].values() for part in parts}
    assert {name.removeprefix("objects/") for name in store.contents if name.startswith("objects/")} == named
    assert len(indexes) == 2


@pytest.mark.parametrize(("has_newer", "steps"), [(True, [20]), (False, [10])])
def test_a_deletion_during_the_upload_does_not_tear_a_checkpoint(
    rundir: RunDirectory, has_newer: bool, steps: list[int]
) -> None:
    """Its files are open. It is dropped if the copy has a newer one; else a slow link would never copy any."""
    write(rundir, 10)
    identified(rundir)
    store = MemoryStore()
    if has_newer:
        write(rundir, 20)
    index = manifests.read(rundir.manifest(10)).files["model.ckpt-10.index"]

    def delete(name: str) -> None:
        if name == f"objects/{index.xxh128}" and rundir.manifest(10).exists():
            for path in rundir.path.glob("model.ckpt-10.*"):
                path.unlink()

    store.on_put = delete
    assert copied(rundir, store).status.steps == steps


def test_a_step_that_is_trained_again_replaces_its_copy(rundir: RunDirectory, tmp_path: Path) -> None:
    write(rundir, 10, 20, 30)
    identified(rundir)
    store = MemoryStore()
    copied(rundir, store)
    back(rundir, 10)
    assert copied(rundir, store).status.steps == [10, 20, 30]  # what lay ahead is kept until it is passed
    assert fetched(store, tmp_path / "first").resumes_at == 10
    write(rundir, 20, value=2.0)
    assert copied(rundir, store).status.steps == [10, 20, 30]
    found = fetched(store, tmp_path / "second")
    assert found.resumes_at == 20 and value_at(found.rundir, 20) == 2.0 and value_at(found.rundir, 30) == 1.0
    resumed = latest.newest_verified(found.rundir, CheckpointStore(found.rundir))
    assert resumed is not None and resumed.step == 20


def test_a_damaged_checkpoint_is_not_copied_and_stops_no_other(rundir: RunDirectory) -> None:
    write(rundir, 10, 20, 30)
    identified(rundir)
    rundir.index(30).write_bytes(b"31")
    store = MemoryStore()
    assert copied(rundir, store).status.steps == [10, 20]


def test_a_source_file_that_is_a_link_is_copied_as_the_file(rundir: RunDirectory, tmp_path: Path) -> None:
    folder = tmp_path / "project"
    for name in ("project", "shared"):
        (tmp_path / name).mkdir()
    (tmp_path / "shared" / "net.py").write_text("shared")
    (folder / "net.py").symlink_to(Path("..", "shared", "net.py"))
    (folder / "circle.py").symlink_to("circle.py")
    (folder / "job.py").write_text("job")
    identified(rundir)
    job = about_job(folder, rundir, "job.py", "net.py", "circle.py", "gone.py")
    store = MemoryStore()
    copy_once(run_of(rundir, job=job), RunCopy(store, "memory"))
    fetched(store, tmp_path / "back")
    back = {path.name: path.read_text() for path in (tmp_path / "back").glob("*.py")}
    assert back == {"job.py": "job", "net.py": "shared"}


def test_a_file_that_cannot_be_read_stays_as_it_was_copied_and_stops_no_checkpoint(
    rundir: RunDirectory, tmp_path: Path, clock: FakeTime, caplog: pytest.LogCaptureFixture
) -> None:
    identified(rundir)
    write(rundir, 10)
    pin, store = rundir.pin(10), MemoryStore()
    (rundir.path / "events.out.tfevents.1.x").symlink_to("/etc/passwd")
    pin.write_bytes(b"mine")
    copier = Copier(run_of(rundir), clock=clock, timer=clock)
    copier.open(RunCopy(store, "memory"), read_state(rundir.state))
    while copier.check():
        pass
    pin.unlink()
    pin.symlink_to("/etc/passwd")
    for step in (20, 30):
        write(rundir, step)
        while copier.check():
            pass
    assert copier.status.steps == [10, 20, 30] and copier.status.error is None
    unread = [record.message for record in caplog.records if "is a symbolic link" in record.message]
    assert len(unread) == 2 and all(" is not copied: cannot read " in message for message in unread)
    found = fetched(store, tmp_path / "back").rundir
    assert found.pin(10).read_bytes() == b"mine" and not (found.path / "events.out.tfevents.1.x").exists()


def test_events_are_copied_again_in_time_and_only_their_end(rundir: RunDirectory, clock: FakeTime) -> None:
    write(rundir, 10)
    identified(rundir)
    events = rundir.path / "events.out.tfevents.1.x"
    events.write_bytes(os.urandom(2_500_000))
    store = MemoryStore()
    copier = Copier(run_of(rundir), clock=clock, timer=clock)
    copier.open(RunCopy(store, "memory"), read_state(rundir.state))
    while copier.check():
        pass
    store.puts.clear()
    with events.open("ab") as file:
        file.write(b"more")
    copier.check()
    assert store.puts == []
    clock.now += FILES_SECS
    copier.check()
    assert [name.partition("/")[0] for name in store.puts] == ["objects", "indexes"]
    assert read_copy_status(rundir) == copier.status and copier.status.files_at == clock.now


def test_of_an_event_file_that_has_grown_only_the_end_is_read(
    rundir: RunDirectory, tmp_path: Path, clock: FakeTime
) -> None:
    write(rundir, 10)
    identified(rundir)
    events, store = rundir.path / "events.out.tfevents.1.x", MemoryStore()
    events.write_bytes(os.urandom(2 * PIECE + 5))
    copier = Copier(run_of(rundir), clock=clock, timer=clock)
    copier.open(RunCopy(store, "memory"), read_state(rundir.state))

    def copied_as() -> bytes:
        clock.now += FILES_SECS
        while copier.check():
            pass
        return (fetched(store, tmp_path / f"{clock.now}").rundir.path / events.name).read_bytes()

    first = copied_as()
    assert first == events.read_bytes()
    with events.open("r+b") as file:
        file.write(b"changed")
        file.seek(0, os.SEEK_END)
        file.write(b"more" * PIECE)
    assert copied_as() == first + b"more" * PIECE, "the first part was not read again"
    events.with_suffix(".new").write_bytes(b"another" * PIECE)
    events.with_suffix(".new").rename(events)
    assert copied_as() == events.read_bytes()
    events.write_bytes(b"shorter")
    assert copied_as() == b"shorter"


@pytest.mark.parametrize("seeds", [range(50), range(50, 100)], ids=["first", "second"])
def test_no_fault_leaves_a_false_copy(
    copied_rundir: RunDirectory, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seeds: range
) -> None:
    """Errors, time-outs, truncated and wrong bytes on both ways, late listings, a full bucket, a killed copier."""
    monkeypatch.setattr(os, "fsync", lambda descriptor: None)
    assert sum(copy_with_faults(copied_rundir, tmp_path / "back", seed) for seed in seeds) > 50


# ---------------------------------------------------------------------- who writes


def test_another_writer_is_refused_unless_told(rundir: RunDirectory) -> None:
    write(rundir, 10)
    identified(rundir)
    store = MemoryStore()
    copied(rundir, store)
    with pytest.raises(InUseError, match=r"is written by /runs/a on here.*--take-over"):
        copied(rundir, store, writer=THERE)
    first = Copier(run_of(rundir))
    first.open(RunCopy(store, "memory"), read_state(rundir.state))
    copy_once(run_of(rundir, writer=THERE), RunCopy(store, "memory"), takes_over=True)
    write(rundir, 20)
    with pytest.raises(InUseError, match="has taken over memory"):
        first.check()
    assert "checkpoints/model.ckpt-20.json" not in store.contents


def test_after_a_release_whoever_comes_next_writes(rundir: RunDirectory) -> None:
    write(rundir, 10)
    identified(rundir)
    store = MemoryStore()
    copied(rundir, store).release()
    copied(rundir, store, writer=THERE)
    with pytest.raises(InUseError):
        copied(rundir, store)


def test_a_copy_of_another_run_is_not_touched(rundir: RunDirectory) -> None:
    write(rundir, 10)
    identified(rundir)
    store = MemoryStore()
    copied(rundir, store)
    before = dict(store.contents)
    identified(rundir, "r2")
    with pytest.raises(ConfigError, match="memory holds the copy of another run 'digits'"):
        copied(rundir, store)
    rundir.state.unlink()
    with pytest.raises(NotRunningError, match="no identifier of a run yet"):
        copied(rundir, store)
    assert store.contents == before


@pytest.mark.parametrize("run_id", ["", "r2"], ids=["removed", "another run"])
def test_a_copy_stays_as_it_is_when_the_run_directory_is_made_again_under_a_copier(
    rundir: RunDirectory, tmp_path: Path, clock: FakeTime, run_id: str
) -> None:
    write(rundir, 10, 20)
    identified(rundir)
    store = MemoryStore()
    copier = Copier(run_of(rundir, keep=1), timer=clock)
    copier.open(RunCopy(store, "memory"), read_state(rundir.state))
    while copier.check():
        pass
    before = dict(store.contents)
    shutil.rmtree(rundir.path)
    if run_id:
        rundir.create()
        identified(rundir, run_id)
        write(rundir, 30)
    clock.now += 2 * FILES_SECS
    error, says = (ConfigError, "holds another run now") if run_id else (NotRunningError, "has no state.json any more")
    with pytest.raises(error, match=f"{says}.*`trainerd fetch memory DIR`"):
        copier.check()
    assert store.contents == before and fetched(store, tmp_path / "back").resumes_at == 20


def test_two_copiers_of_one_run_refuse_each_other(rundir: RunDirectory) -> None:
    with only_copier(rundir), pytest.raises(InUseError, match="another process copies"), only_copier(rundir):
        pass


@pytest.mark.parametrize("offset", [-3600.0, 3600.0])
def test_a_clock_that_differs_changes_nothing(
    rundir: RunDirectory, tmp_path: Path, clock: FakeTime, offset: float
) -> None:
    write(rundir, 10)
    identified(rundir)
    store = MemoryStore()
    for step in (20, 30):
        copier = Copier(run_of(rundir), clock=lambda now=offset * step: 1e9 + now, timer=clock)  # type: ignore[misc]
        copier.open(RunCopy(store, "memory"), read_state(rundir.state))
        while copier.check():
            pass
        write(rundir, step)
    assert copied(rundir, store).status.steps == [10, 20, 30]
    assert fetched(store, tmp_path / "back").resumes_at == 30
