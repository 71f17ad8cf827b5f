"""The lock of a run directory: who holds it, and whether what is held is still in its place."""

from __future__ import annotations

import errno
import fcntl
import json
import os
import re
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.fake import FakeSnapshot
from tests.unit.conftest import Cli
from trainerd.checkpoints.manifest import About
from trainerd.checkpoints.store import CheckpointStore
from trainerd.errors import InUseError, StorageError
from trainerd.loop.flag import Flag, Request
from trainerd.loop.ticker import Ticker
from trainerd.rundir import lock
from trainerd.rundir.claim import warn_if_removed
from trainerd.rundir.paths import RunDirectory
from trainerd.rundir.reporter import Reporter
from trainerd.rundir.state import State, read_state
from trainerd.rundir.state_writer import StateWriter


def test_a_lock_has_one_holder(odd_rundir: RunDirectory) -> None:
    with lock.acquire(odd_rundir) as held:
        held.name_holder(os.getpid())
        with pytest.raises(InUseError, match=f"process {os.getpid()} trains in"), lock.acquire(odd_rundir):
            pass
        holder = lock.read_holder(odd_rundir)
        assert holder is not None and holder.pid == os.getpid()
    with lock.acquire(odd_rundir):
        pass


def test_a_process_holds_a_place_once_even_where_the_folder_was_removed(rundir: RunDirectory) -> None:
    """Two runs of one process would take each other's files for their own."""
    with lock.acquire(rundir) as held:
        held.name_holder(os.getpid())
        assert not lock.was_removed(rundir)
        shutil.rmtree(rundir.path)
        rundir.create()
        assert lock.was_removed(rundir)
        assert lock.is_there(rundir) and lock.is_in_place(rundir)
        assert lock.was_removed(rundir), "whose checkpoints are not in what it holds now"
        with pytest.raises(InUseError, match="That is this process"), lock.acquire(rundir):
            pass
        rundir.lock.touch()
        assert lock.was_removed(rundir)
    with lock.acquire(rundir):
        assert not lock.was_removed(rundir)


def test_a_lock_that_another_has_written_into_belongs_to_the_other(rundir: RunDirectory) -> None:
    """Where a network's file system has lost the flock: the same file, with another name in it."""
    with lock.acquire(rundir) as held:
        held.name_holder(os.getpid())
        rundir.lock.write_text(json.dumps({"pid": 1, "create_time": 0.0, "uptime_at_start": 0.0}))
        assert not lock.is_in_place(rundir)
        held.close()  # as a child that was forked does
        assert lock.is_in_place(rundir)


@pytest.mark.parametrize("code", [errno.ENOLCK, errno.EOPNOTSUPP])
def test_a_file_system_without_locks(rundir: RunDirectory, monkeypatch: pytest.MonkeyPatch, code: int) -> None:
    def refuse(*args: object) -> None:
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr(fcntl, "flock", refuse)
    with pytest.raises(StorageError, match=f"cannot lock {rundir.lock}"), lock.acquire(rundir):
        pass


def test_a_lock_that_cannot_be_written_names_its_file(rundir: RunDirectory) -> None:
    with Path("/dev/full").open("r+b", buffering=0) as full:
        held = lock.Lock(rundir.lock, full)
        with pytest.raises(StorageError, match=f"cannot write {rundir.lock}: No space left"):
            held.name_holder(os.getpid())


FOLDER = '{"pid": "self/task/../../1", "create_time": 0, "uptime_at_start": 0}'


@pytest.mark.parametrize(
    "content", ["", "garbage", "123", '{"pid": 1}', "[]", '{"pid": "x"}', FOLDER, "[" * 100_000, "\xff"]
)
def test_a_stale_or_garbled_lock_file_is_no_lock(rundir: RunDirectory, content: str) -> None:
    rundir.lock.write_text(content)
    assert lock.read_holder(rundir) is None
    with lock.acquire(rundir):
        pass


def test_who_was_removed_writes_nothing_into_what_has_taken_its_place(rundir: RunDirectory) -> None:
    flag = Flag()
    ticker, state_file, store = Ticker(flag, rundir), StateWriter(rundir), CheckpointStore(rundir)
    with lock.acquire(rundir) as held:
        held.name_holder(os.getpid())
        changes: list[Callable[[], None]] = [
            lambda: None,
            lambda: shutil.rmtree(rundir.path),
            rundir.create,
            rundir.lock.touch,
        ]
        for change in changes:
            change()
            assert lock.is_in_place(rundir) and lock.is_there(rundir) == rundir.path.exists()
        rundir.lock.write_text(json.dumps({"pid": 1, "create_time": 0.0, "uptime_at_start": 0.0}))
        rundir.pause.touch()
        with pytest.raises(StorageError, match="belongs to another run now"):
            store.publish(FakeSnapshot(1, 1.0), About("request"))
        state_file.observe(State())
        ticker.poll()
        assert flag.wants(Request.PAUSE)  # nothing can be saved any more: it ends, and says so
    assert sorted(path.name for path in rundir.path.iterdir()) == [rundir.lock.name, rundir.pause.name]
    assert lock.is_in_place(rundir)


def test_a_process_whose_run_directory_was_emptied_is_found_again(rundir: RunDirectory) -> None:
    with lock.acquire(rundir) as held:
        held.name_holder(os.getpid())
        for path in rundir.path.iterdir():
            path.unlink()
        assert lock.read_holder(rundir) is None
        warn_if_removed(rundir, Reporter(State(), []))
        holder = lock.read_holder(rundir)
        assert holder is not None and holder.pid == os.getpid() and lock.is_in_place(rundir)
        with rundir.lock.open() as another, pytest.raises(BlockingIOError):
            fcntl.flock(another, fcntl.LOCK_EX | fcntl.LOCK_NB)


@pytest.mark.parametrize("is_replaced", [False, True])
def test_a_run_whose_directory_is_moved_ends_and_says_where_it_is(
    rundir: RunDirectory, tmp_path: Path, is_replaced: bool
) -> None:
    flag, old, new = Flag(), rundir.path, tmp_path / "an other" / "place"
    new.parent.mkdir()
    ticker, store = Ticker(flag, rundir), CheckpointStore(rundir)
    with lock.acquire(rundir) as held:
        held.name_holder(os.getpid())
        old.rename(new)
        if is_replaced:
            old.mkdir()
        ticker.poll()
        assert flag.wants(Request.PAUSE)
        with pytest.raises(StorageError, match=re.escape(f"{old} was moved to {new}")):
            store.publish(FakeSnapshot(1, 1.0), About("request"))
        assert not is_replaced or not list(old.iterdir())
        new.rename(old)
        store.publish(FakeSnapshot(1, 1.0), About("request"))
    assert rundir.steps() == [1]


def test_a_run_directory_that_is_removed_is_reported_at_once_and_may_be_made_again(
    rundir: RunDirectory, cli: Cli, caplog: pytest.LogCaptureFixture
) -> None:
    states, store = list[State](), CheckpointStore(rundir)
    with lock.acquire(rundir) as held:
        held.name_holder(os.getpid())
        reporter = Reporter(State(), [states.append])
        shutil.rmtree(rundir.path)
        warn_if_removed(rundir, reporter)
        assert "was removed while a process trains in it" in caplog.text
        assert "the run directory was removed: " in states[-1].warnings[0]
        with pytest.raises(StorageError, match=r"was removed while.* Create it again"):
            store.publish(FakeSnapshot(1, 1.0), About("request"))
        code, text = cli("status", "--logdir", str(rundir.path))
        assert code == 0 and f"pid {os.getpid()}" in text and "was removed while" in text
        rundir.create()
        warn_if_removed(rundir, reporter)
        assert states[-1].warnings == []
        holder = lock.read_holder(rundir)
        assert holder is not None and holder.pid == os.getpid(), "commands find it again"
        store.publish(FakeSnapshot(2, 1.0), About("request"))
        with pytest.raises(InUseError), lock.acquire(RunDirectory(rundir.path)):
            pass
    assert rundir.steps() == [2]
    shutil.rmtree(rundir.path)
    assert cli("status", "--logdir", str(rundir.path))[0] == 69


def test_a_lock_or_a_state_that_may_not_be_read_does_not_pass_for_none(
    rundir: RunDirectory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another user's run: nothing may be said of it, least of all that nothing trains there."""

    def refuse(*args: object, **kwargs: object) -> str:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(os, "open", refuse)
    monkeypatch.setattr(os, "listdir", refuse)
    for look in (lambda: lock.read_holder(rundir), lambda: read_state(rundir.state), rundir.steps):
        with pytest.raises(StorageError, match=r"Permission denied.*sudo"):
            look()


def test_a_pid_that_belongs_to_another_process_now_is_not_the_holder(rundir: RunDirectory) -> None:
    with lock.acquire(rundir) as held:
        held.name_holder(os.getpid())
    content = json.loads(rundir.lock.read_text())
    content["uptime_at_start"] -= 3600
    rundir.lock.write_text(json.dumps(content))
    assert lock.read_holder(rundir) is None


def test_a_lock_that_cannot_be_made(rundir: RunDirectory, tmp_path: Path) -> None:
    rundir.lock.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(StorageError), lock.acquire(rundir):
        pass
    assert not (tmp_path / "elsewhere").exists()


def test_a_holder_whose_name_is_not_written_yet_is_respected(rundir: RunDirectory) -> None:
    with rundir.lock.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        with pytest.raises(InUseError, match="another process"), lock.acquire(rundir):
            pass
