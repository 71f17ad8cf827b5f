"""Every operation of a publish fails in turn, as an error or as the end of the process. The list is the code's own."""

from __future__ import annotations

import contextlib
import errno
import os
import re
import shutil
import signal
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from unittest import mock

import pytest
import xxhash

from tests.fake import FakeSnapshot
from trainerd.checkpoints import catalogue, latest, manifest, saver_checkpoints
from trainerd.checkpoints.checkpoint_state import StateFile
from trainerd.checkpoints.disk_space import NoRoomError
from trainerd.checkpoints.manifest import About
from trainerd.checkpoints.retention import Policy
from trainerd.checkpoints.snapshot import Earlier, no_earlier
from trainerd.checkpoints.store import CheckpointStore
from trainerd.errors import StorageError
from trainerd.rundir.paths import RunDirectory

STAGES = ["room", "stage", "write", "fsync", "record", "describe", "retract", "rename", "publish", "name", "retain"]
OPERATIONS = 18
NEW = 99.0  # what is in the new checkpoint of step 6, so that it can be told from the old one


def write(rundir: RunDirectory, *steps: int) -> None:
    for step in steps:
        CheckpointStore(rundir, policy=Policy(100)).publish(FakeSnapshot(step, 2.0 * step), About("old"))


def prepare(rundir: RunDirectory) -> None:
    """A run that has gone back from 6 to 5, so that saving 6 again replaces the old one and deletes 3."""
    write(rundir, 3, 4, 5, 6)
    rundir.checkpoint_state.write_bytes(StateFile(5, (3, 4, 5, 6)).to_bytes(rundir.basename))


def publish(rundir: RunDirectory, at: Callable[[str], None]) -> None:
    CheckpointStore(rundir, policy=Policy(2), at=at).publish(FakeSnapshot(6, NEW), About("new"))


def operations(folder: Path) -> list[str]:
    """The stage of each operation of a publish, in order."""
    rundir, seen = RunDirectory(folder), list[str]()
    rundir.create()
    prepare(rundir)
    publish(rundir, seen.append)
    return seen


@pytest.fixture(scope="module")
def sequence(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    return operations(tmp_path_factory.mktemp("sequence"))


def test_the_stages_are_all_there_are_and_in_their_order(sequence: list[str]) -> None:
    first = list(dict.fromkeys(sequence))
    assert first == STAGES
    assert len(sequence) == OPERATIONS


@pytest.mark.parametrize("nth", range(OPERATIONS))
@pytest.mark.parametrize("fault", ["SIGKILL", "EIO", "ENOSPC"])
def test_a_publish_that_ends_anywhere_harms_nothing(rundir: RunDirectory, nth: int, fault: str) -> None:
    prepare(rundir)
    calls = iter(range(1000))

    def strike(stage: str) -> None:
        if next(calls) == nth:
            if fault == "SIGKILL":
                os.kill(os.getpid(), signal.SIGKILL)
            code = getattr(errno, fault)
            raise OSError(code, os.strerror(code))

    announced = _killed(rundir, strike) if fault == "SIGKILL" else _failed(rundir, strike)
    store = CheckpointStore(rundir)
    store.clean()
    found = latest.newest_verified(rundir, store)
    assert found is not None and found.step in (5, 6)
    if announced:
        assert found.step == 6
    if found.step == 6:
        assert found.reason == "new"
    manifest.verify(manifest.read(rundir.manifest(5)), rundir.path)
    manifest.verify(manifest.read(rundir.manifest(6)), rundir.path)  # the old one, or the new one
    known = re.compile(r"checkpoint|\.writing|model\.ckpt-(\d+)\.(json|index|data-00000-of-00001)")
    for name in os.listdir(rundir.path):
        match = known.fullmatch(name)
        assert match and (match[1] is None or int(match[1]) in rundir.steps()), f"{name} was left"
    write(rundir, 7)
    assert catalogue.resume_order(rundir)[0] == 7


def test_a_reader_meets_a_first_checkpoint_before_it_is_published_or_after(rundir: RunDirectory) -> None:
    found: list[Path | None] = []

    def look(stage: str) -> None:
        found.append(saver_checkpoints.newest_readable(rundir, lambda prefix: None))

    CheckpointStore(rundir, at=look).publish(FakeSnapshot(6, NEW), About("new"))
    assert found[0] is None and found[-1] == rundir.prefix(6)
    assert set(found) == {None, rundir.prefix(6)}


@pytest.mark.parametrize("pinned", [False, True])
@pytest.mark.parametrize("fault", ["SIGKILL", "EIO"])
def test_the_only_checkpoint_is_saved_again_or_stays(rundir: RunDirectory, fault: str, pinned: bool) -> None:
    for nth in range(OPERATIONS):
        shutil.rmtree(rundir.path)
        rundir.create()
        write(rundir, 6)
        if pinned:
            rundir.pin(6).touch()
        calls = iter(range(1000))

        def strike(stage: str, nth: int = nth, calls: Iterator[int] = calls) -> None:
            if next(calls) == nth:
                if fault == "SIGKILL":
                    os.kill(os.getpid(), signal.SIGKILL)
                raise OSError(errno.EIO, os.strerror(errno.EIO))

        with contextlib.suppress(AssertionError):  # it may be over before its nth operation
            (_killed if fault == "SIGKILL" else _failed)(rundir, strike)
        store = CheckpointStore(rundir)
        store.clean()
        found = latest.newest_verified(rundir, store)
        assert found is not None and found.step == 6
        kept = rundir.replaced.is_dir()
        assert kept == (pinned and found.reason == "new")
        assert (6 in rundir.pinned()) == (pinned and not kept)
        assert not rundir.asides() and not rundir.stagings()


def _failed(rundir: RunDirectory, strike: Callable[[str], None]) -> bool:
    try:
        publish(rundir, strike)
    except StorageError as error:
        assert "step 6" in str(error)
        return False
    return True


def _killed(rundir: RunDirectory, strike: Callable[[str], None]) -> bool:
    child = os.fork()
    if child == 0:
        try:
            publish(rundir, strike)
        finally:
            os._exit(0)
    _, status = os.waitpid(child, 0)
    assert os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL
    return False


# ---------------------------------------------------------------------- space


class Disk:
    """A disk that has so much room, and gets more with each checkpoint that is deleted."""

    def __init__(self, rundir: RunDirectory, size: int) -> None:
        self._rundir = rundir
        self.size = size

    def __call__(self, folder: Path) -> int:
        assert folder == self._rundir.path
        return self.size - len(self._rundir.steps()) * (1 << 21)


def test_where_there_is_no_room_what_may_go_goes_first(rundir: RunDirectory) -> None:
    write(rundir, 1, 2, 3)
    disk = Disk(rundir, 4 << 21)
    store = CheckpointStore(rundir, policy=Policy(3), free=disk)
    store.publish(FakeSnapshot(4, 8.0), About("test"))
    assert rundir.steps() == [4, 3, 2]
    disk.size = 3 << 21
    store.publish(FakeSnapshot(5, 10.0), About("test"))
    assert rundir.steps() == [5, 4, 3], "as many as the policy says are kept"


def test_room_is_not_made_of_what_a_day_of_training_keeps(rundir: RunDirectory) -> None:
    policy = Policy(1, keep_daily=30)
    for step in (1, 2, 3):
        about = About("test", trained_secs=(step - 0.5) * 86400.0)
        CheckpointStore(rundir, policy=policy).publish(FakeSnapshot(step, 1.0), about)
    store = CheckpointStore(rundir, policy=policy, free=lambda folder: 1000)
    with pytest.raises(NoRoomError):
        store.publish(FakeSnapshot(4, 8.0), About("test", trained_secs=2.7 * 86400.0))
    assert rundir.steps() == [3, 2, 1]


def test_where_the_run_went_back_the_one_that_it_resumed_from_is_not_deleted_for_room(rundir: RunDirectory) -> None:
    write(rundir, 1, 2, 3)
    rundir.checkpoint_state.write_bytes(StateFile(1, (1, 2, 3)).to_bytes(rundir.basename))
    store = CheckpointStore(rundir, policy=Policy(1), free=lambda folder: 1000)
    for step in (2, 4):
        with pytest.raises(NoRoomError):
            store.publish(FakeSnapshot(step, 99.0), About("test"))
        assert catalogue.resume_order(rundir)[0] == 1


def test_what_the_last_checkpoint_took_is_needed_again(rundir: RunDirectory) -> None:
    """A snapshot cannot tell how large a dataset's position is before it is written."""
    big = FakeSnapshot(1, 1.0)
    CheckpointStore(rundir).publish(big, About("test"))
    found = manifest.read(rundir.manifest(1))
    record = manifest.FileRecord(50 << 20, "0" * 32)
    larger = replace(found, files=found.files | {"model.ckpt-1.extra": record})
    rundir.manifest(1).write_bytes(larger.to_bytes())
    with pytest.raises(NoRoomError, match=r"it needs 51\.0 MiB"):
        CheckpointStore(rundir, free=lambda folder: 20 << 20).publish(FakeSnapshot(2, 2.0), About("test"))


FROZEN = 4 << 20


@dataclass(frozen=True)
class TunedSnapshot(FakeSnapshot):
    """A snapshot with a large file of what does not change."""

    frozen: int = 0
    disk_is_full: bool = False

    @property
    def size(self) -> int:
        return FROZEN + 100

    def write(self, prefix: Path, moved: Callable[[int], None], earlier: Earlier = no_earlier) -> dict[str, str]:
        super().write(prefix, moved)
        path, content = prefix.with_name(prefix.name + ".frozen"), bytes([self.frozen]) * FROZEN
        digest = xxhash.xxh3_128_hexdigest(content)
        if not earlier(digest, path):
            if self.disk_is_full:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            path.write_bytes(content)
        return {path.name: digest}


def test_what_checkpoints_share_needs_no_room(rundir: RunDirectory) -> None:
    free = [100 << 20]
    store = CheckpointStore(rundir, policy=Policy(5), free=lambda folder: free[0])
    store.publish(TunedSnapshot(1, 1.0), About("test"))
    store.publish(TunedSnapshot(2, 1.0), About("test"))
    for path in rundir.path.glob("*.frozen"):
        os.utime(path, (1.0, 1.0))  # a fresh copy is due, and waits for room
    free[0] = 2 << 20
    store.publish(TunedSnapshot(3, 1.0, disk_is_full=True), About("test"))
    assert rundir.steps() == [3, 2, 1] and store.written < 1000
    with pytest.raises(NoRoomError, match=r"it needs 5\.0 MiB, and 2\.0 MiB are free"):  # what is frozen has changed
        store.publish(TunedSnapshot(4, 1.0, frozen=1, disk_is_full=True), About("test"))
    assert rundir.steps() == [3, 2, 1] and not rundir.stagings()


def test_what_cannot_be_shared_needs_room(rundir: RunDirectory, monkeypatch: pytest.MonkeyPatch) -> None:
    free, stages = [100 << 20], list[str]()
    store = CheckpointStore(rundir, policy=Policy(5), free=lambda folder: free[0], at=stages.append)
    monkeypatch.setattr(os, "link", mock.Mock(side_effect=OSError(errno.EPERM, os.strerror(errno.EPERM))))
    for step in (1, 2, 3):
        store.publish(TunedSnapshot(step, 1.0), About("test"))
    free[0] = 2 << 20
    stages.clear()
    with pytest.raises(NoRoomError):
        store.publish(TunedSnapshot(4, 1.0), About("test"))
    assert "write" not in stages


def test_where_there_is_no_room_the_newest_stays_and_the_save_is_refused(rundir: RunDirectory) -> None:
    write(rundir, 1, 2)
    rundir.pin(1).touch()
    store = CheckpointStore(rundir, policy=Policy(1), free=lambda folder: 1000)
    before = sorted(os.listdir(rundir.path))
    with pytest.raises(NoRoomError, match=r"it needs 1\.0 MiB, and 1000 B are free") as caught:
        store.publish(FakeSnapshot(3, 6.0), About("test"))
    assert sorted(os.listdir(rundir.path)) == before
    assert not store.space.has(caught.value.needed) and caught.value.needed > 1 << 20
