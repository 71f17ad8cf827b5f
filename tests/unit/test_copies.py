"""A copy of a run elsewhere: what is said to be copied is there, and what is fetched is whole."""

from __future__ import annotations

import contextlib
import functools
import json
import os
import random
import re
import shutil
import sys
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import IO, cast

import psutil
import pytest

from tests.fake import FakeSnapshot
from tests.unit.conftest import Cli, FakeTime
from tests.unit.test_rollback import back, steps_of, value_at, write
from trainerd.checkpoints import latest
from trainerd.checkpoints import manifest as manifests
from trainerd.checkpoints.manifest import About
from trainerd.checkpoints.retention import Policy
from trainerd.checkpoints.store import CheckpointStore
from trainerd.cli import requests
from trainerd.cli.commands.copies import move
from trainerd.config import parse as configs
from trainerd.config.destination import Destination
from trainerd.config.fingerprint import SOURCE
from trainerd.config.parse import parse
from trainerd.config.schema import CopyConfig
from trainerd.copies.beside import CopierBeside
from trainerd.copies.contents import JobFiles
from trainerd.copies.copier import FILES_SECS, CopiedRun, Copier
from trainerd.copies.fetch import FetchedRun, fetch
from trainerd.copies.layout import CopyIndex, CopyWriter, RunCopy, record_of
from trainerd.copies.process import copy_once, follow, only_copier, writer_of
from trainerd.copies.rclone import RcloneStore, require_private_credentials
from trainerd.copies.status import CopyStatus, read_copy_status
from trainerd.copies.store import PIECE, FolderStore, MissingError
from trainerd.errors import ConfigError, CopyError, DataError, InUseError, NotRunningError, UsageError
from trainerd.rundir.lock import Holder
from trainerd.rundir.paths import RunDirectory
from trainerd.rundir.state import LastCheckpoint, Phase, State, read_state

HERE, THERE = CopyWriter("here", "1", "/runs/a"), CopyWriter("there", "2", "/runs/a")


@pytest.fixture(autouse=True)
def tests_keep_their_priority(monkeypatch: pytest.MonkeyPatch) -> None:
    """A process cannot raise its priority again."""
    monkeypatch.setattr(os, "nice", lambda increment: 0)
    monkeypatch.setattr(psutil.Process, "ionice", lambda self, ioclass: None)


class MemoryStore:
    """A destination in memory.

    Args:
      contents: what is there.
      on_put: called with each name before it is written.
    """

    def __init__(
        self, contents: dict[str, bytes] | None = None, on_put: Callable[[str], None] = lambda name: None
    ) -> None:
        self.contents = {} if contents is None else contents
        self.on_put = on_put
        self.puts: list[str] = []

    def put(self, name: str, source: int, size: int, moved: Callable[[int], None]) -> bool:
        self.on_put(name)
        self.puts.append(name)
        self.contents[name] = os.pread(source, size, 0)
        moved(size)
        return False

    def read(self, name: str) -> Iterator[bytes]:
        if name not in self.contents:
            raise MissingError(f"there is no {name}.")
        yield self.contents[name]

    def sizes(self, folder: str) -> dict[str, int]:
        start = f"{folder}/"
        return {name.removeprefix(start): len(self.contents[name]) for name in self.contents if name.startswith(start)}

    def delete(self, name: str) -> None:
        self.contents.pop(name, None)

    def close(self) -> None:
        pass


class Killed(BaseException):
    """The copier is killed."""


class FaultyStore(MemoryStore):
    """A destination that fails at random.

    Args:
      contents: what is there.
      chance: decides.
      rate: how often.
    """

    def __init__(self, contents: dict[str, bytes], chance: random.Random, rate: float) -> None:
        super().__init__(contents)
        self._chance, self._rate = chance, rate
        self._full = 0  # so many writes fail

    def _fault(self, *kinds: str) -> str:
        return self._chance.choice(kinds) if self._chance.random() < self._rate else ""

    def _damaged(self, content: bytes) -> bytes:
        at = self._chance.randrange(len(content)) if content else 0
        if self._chance.random() < 0.5:
            return content[:at]
        return content[:at] + bytes([content[at] ^ 1]) + content[at + 1 :] if content else b"x"

    def put(self, name: str, source: int, size: int, moved: Callable[[int], None]) -> bool:
        content = os.pread(source, size, 0)
        fault = self._fault("error", "late error", "damage", "damage and error", "full", "kill", "kill after")
        self._full = 5 if fault == "full" else max(0, self._full - 1)
        if self._full or fault == "error":
            raise CopyError("503 Slow Down, or the bucket is full.")
        if fault == "kill":
            raise Killed
        self.contents[name] = self._damaged(content) if "damage" in fault else content
        if fault == "kill after":
            raise Killed
        if "error" in fault:
            raise CopyError("the connection timed out.")
        moved(size)
        return False

    def read(self, name: str) -> Iterator[bytes]:
        fault = self._fault("error", "damage", "cut", "missing", "kill")
        if fault == "kill":
            raise Killed
        if fault == "error":
            raise CopyError("the connection was reset.")
        if fault == "missing":
            raise MissingError(f"there is no {name}.")
        for part in super().read(name):
            yield self._damaged(part) if fault == "damage" else part[: len(part) // 2] if fault == "cut" else part

    def sizes(self, folder: str) -> dict[str, int]:
        fault = self._fault("error", "late", "kill")
        if fault == "kill":
            raise Killed
        if fault == "error":
            raise CopyError("the request timed out.")
        found = super().sizes(folder)
        return {name: size for name, size in found.items() if fault != "late" or self._chance.random() < 0.5}

    def delete(self, name: str) -> None:
        fault = self._fault("error", "late error", "kill")
        if fault == "kill":
            raise Killed
        if fault == "error":
            raise CopyError("403.")
        super().delete(name)
        if fault == "late error":
            raise CopyError("the connection timed out.")


def identified(rundir: RunDirectory, run_id: str = "r1") -> None:
    State(Phase.TRAINING, run_id=run_id, name="digits", step=30).write(rundir.state)


def run_of(rundir: RunDirectory, *, keep: int = 5, writer: CopyWriter = HERE, job: JobFiles | None = None) -> CopiedRun:
    return CopiedRun(rundir, job, Policy(keep), writer)


def copied(rundir: RunDirectory, store: MemoryStore, *, keep: int = 5, writer: CopyWriter = HERE) -> Copier:
    return copy_once(run_of(rundir, keep=keep, writer=writer), RunCopy(store, "memory"))


def fetched(store: MemoryStore, folder: Path, where: str | None = None) -> FetchedRun:
    return fetch(RunCopy(store, "memory"), folder, where, lambda said: None)


def contents_of(rundir: RunDirectory) -> dict[str, bytes]:
    names = {"lock", "copy.json", ".copying", "state.json", "checkpoint"}
    return {path.name: path.read_bytes() for path in rundir.path.iterdir() if path.name not in names}


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


def about_job(folder: Path, rundir: RunDirectory, *names: str) -> JobFiles:
    """Return the files of a job of these source files; a checkpoint of it is written."""
    source = "; ".join(f"{name} 0123456789abcdef" for name in names)
    CheckpointStore(rundir).publish(FakeSnapshot(10, 1.0), About("schedule", fingerprint={SOURCE: source}))
    return JobFiles(folder, 'entry = "job:job"\n', "run")


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


@pytest.fixture(scope="module")
def copied_rundir(tmp_path_factory: pytest.TempPathFactory) -> RunDirectory:
    """A run directory with some checkpoints and events."""
    rundir = RunDirectory(tmp_path_factory.mktemp("run"))
    for step in (10, 20, 30, 40):
        write(rundir, step, value=float(step))
    identified(rundir)
    (rundir.path / "events.out.tfevents.1.x").write_bytes(os.urandom(100_000))
    return rundir


def require_no_false_claim(rundir: RunDirectory, contents: dict[str, bytes], steps: list[int]) -> None:
    for step in steps:
        assert contents[f"checkpoints/model.ckpt-{step}.json"] == rundir.manifest(step).read_bytes()
        for record in manifests.read(rundir.manifest(step)).files.values():
            assert record_of(contents[f"objects/{record.xxh128}"]) == record


def copy_with_faults(rundir: RunDirectory, folder: Path, seed: int) -> int:
    """Copy a run to a destination that fails at random, by copiers that are killed. Nothing false is said of it.

    Returns:
      How many tries ended with an error or a kill.
    """
    chance, contents, failed = random.Random(seed), dict[str, bytes](), 0
    rate = chance.choice([0.01, 0.03, 0.1])
    run = run_of(rundir, keep=chance.choice([1, 2, 5]))
    rundir.copy.unlink(missing_ok=True)
    for attempt in range(5):
        copier = Copier(run)
        try:
            copier.open(RunCopy(FaultyStore(contents, chance, rate), "faulty"), read_state(rundir.state))
            while copier.check():
                require_no_false_claim(rundir, contents, copier.status.steps)
        except (CopyError, Killed):
            failed += 1
        status = read_copy_status(rundir) or CopyStatus()
        require_no_false_claim(rundir, contents, status.steps)
        if attempt == 2:
            require_whole(rundir, MemoryStore(dict(contents)), folder, status.steps)
    calm = copy_once(run, RunCopy(MemoryStore(contents), "calm"))
    require_no_false_claim(rundir, contents, calm.status.steps)
    assert max(calm.status.steps) == max(steps_of(rundir)), "once the destination is well again, the copy is complete"
    return failed


def require_whole(rundir: RunDirectory, store: MemoryStore, folder: Path, steps: list[int]) -> None:
    """Require that what is said to be copied comes back, and that all that comes back is whole."""
    try:
        found = fetched(store, folder)
    except DataError:
        assert steps == []
        return
    assert set(steps) <= {*found.steps}
    for step in found.steps:
        for name in manifests.read(rundir.manifest(step)).files:
            assert (found.rundir.path / name).read_bytes() == (rundir.path / name).read_bytes()
    shutil.rmtree(folder)


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


class Stop(threading.Event):
    """Is set after so many waits; does what is to happen in each."""

    def __init__(self, *steps: Callable[[], object]) -> None:
        super().__init__()
        self.steps, self.waits = list(steps), list[float]()

    def wait(self, timeout: float | None = None) -> bool:
        self.waits.append(timeout or 0.0)
        if self.steps:
            self.steps.pop(0)()
        else:
            self.set()
        return self.is_set()


def test_a_destination_that_fails_is_tried_again_and_the_run_is_followed(
    rundir: RunDirectory, caplog: pytest.LogCaptureFixture
) -> None:
    write(rundir, 10)
    identified(rundir)
    contents, errors = dict[str, bytes](), [CopyError("503."), CopyError("503."), CopyError("503.")]

    def open_it() -> RunCopy:
        if errors:
            raise errors.pop()
        return RunCopy(MemoryStore(contents, on_put), "memory")

    def on_put(name: str) -> None:
        if name == "checkpoints/model.ckpt-20.json" and not failed:
            failed.append(name)
            raise CopyError("the connection was reset.")

    failed, seen = list[str](), list[CopyStatus | None]()
    look = functools.partial(read_copy_status, rundir)
    steps = [lambda: seen.append(look())] * 4 + [lambda: write(rundir, 20), lambda: seen.append(look())]
    stop = Stop(*steps)
    follow(run_of(rundir), open_it, stop)
    assert stop.waits == [2.0, 4.0, 8.0, 1.0, 1.0, 2.0, 1.0]
    assert "the copy failed: 503. It is tried again in 8 s" in caplog.text
    assert [(each.steps, each.error) for each in seen if each is not None] == [
        ([], "503."),
        ([], "503."),
        ([], "503."),
        ([10], None),
        ([10], "the connection was reset."),
    ]
    status = look()
    assert status is not None and (status.steps, status.error) == ([10, 20], None)


def test_what_is_copied_is_known_while_a_new_process_cannot_connect(rundir: RunDirectory) -> None:
    write(rundir, 10)
    identified(rundir)
    copied(rundir, MemoryStore())

    def open_it() -> RunCopy:
        raise CopyError("503.")

    for to, steps in (("memory", [10]), ("elsewhere", [])):
        follow(replace(run_of(rundir), to=to), open_it, Stop())
        status = read_copy_status(rundir)
        assert status is not None and (status.to, status.steps, status.error) == (to, steps, "503.")


@pytest.mark.parametrize("ended_by", ["all is copied", "failures"])
def test_a_copy_while_training_ends_after_the_run(rundir: RunDirectory, ended_by: str) -> None:
    """What the run saved last is copied, also if it is started again and ends during the copy."""
    identified(rundir)
    contents, ends = dict[str, bytes](), [False, True, False, True, True]

    def open_it() -> RunCopy:
        if ended_by == "failures":
            raise CopyError("503.")
        return RunCopy(MemoryStore(contents), "memory")

    def is_over() -> bool:
        if len(ends) > 1:  # until then it trains now and again
            write(rundir, 10 * len(ends))
        return ends.pop(0) if len(ends) > 1 else ends[0]

    stop = Stop(*[lambda: None] * 20)
    if ended_by == "failures":
        with pytest.raises(CopyError):
            follow(run_of(rundir), open_it, stop, is_over=is_over)
        assert sum(stop.waits) > 250
    else:
        follow(run_of(rundir), open_it, stop, is_over=is_over)
        status = read_copy_status(rundir)
        assert status is not None and status.steps == [20, 30, 40, 50]


class FakeProcess:
    """A copier that has ended with this code, or runs."""

    code: int | None = None

    def __init__(self, command: list[str], **options: object) -> None:
        self.command, self.options = command, options
        processes.append(self)

    @property
    def returncode(self) -> int | None:
        """The exit code."""
        return self.code

    def poll(self) -> int | None:
        """The same."""
        return self.code

    def end(self, code: int, said: bytes = b"") -> None:
        """Write to standard error, and end."""
        os.write(cast(IO[bytes], self.options["stderr"]).fileno(), said)
        self.code = code


processes: list[FakeProcess] = []


def test_the_trainer_starts_the_copy_of_its_run(
    tmp_path: Path, clock: FakeTime, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Once it trains, and again with growing pauses; what is wrong is logged once."""
    path = tmp_path / "trainerd.toml"
    path.write_text('entry = "job:job"\nlogdir = "run"\n[copy]\nto = "file:///mnt/nas/digits"\n', encoding="utf-8")
    config = configs.load(path)
    monkeypatch.setattr("subprocess.Popen", FakeProcess)
    processes.clear()
    beside = CopierBeside(config, timer=clock)
    for phase in (Phase.STARTING, Phase.TRAINING, Phase.TRAINING):
        beside.observe(State(phase))
    [first] = processes
    assert first.command[3:] == [
        *("copy", "--config", str(path), "--to", "file:///mnt/nas/digits", "--max-mbit", "0.0", "--while-training")
    ]
    config.rundir.mkdir()
    CopyStatus(to="file:///mnt/nas/digits", error="the URL holds the copy of another run.").write(
        RunDirectory(config.rundir)
    )
    for count in (2, 3):
        processes[-1].end(78)
        beside.observe(State(Phase.TRAINING))
        clock.now += 30.0 * count
        assert len(processes) == count - 1
        clock.now += 31.0 * count
        beside.observe(State(Phase.TRAINING))
        assert len(processes) == count
    processes[-1].end(0)
    beside.observe(State(Phase.FINISHED))
    assert [record.message for record in caplog.records] == [
        "the run is not copied: the URL holds the copy of another run."
    ]


def test_a_copier_that_ends_before_it_copies_is_said_and_one_that_lived_is_soon_started_again(
    tmp_path: Path, clock: FakeTime, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "trainerd.toml"
    path.write_text('entry = "job:job"\nlogdir = "run"\n[copy]\nto = "file:///mnt/nas/digits"\n', encoding="utf-8")
    monkeypatch.setattr("subprocess.Popen", FakeProcess)
    processes.clear()
    beside = CopierBeside(configs.load(path), timer=clock)
    for code, said, wait in (
        (78, b"Traceback:\n  unknown key \x1bto_\n\n", 60.0),
        (75, b"another process copies it", 120.0),
        (-9, b"", 240.0),
        (0, b"done", 60.0),
    ):
        beside.observe(State(Phase.TRAINING))
        clock.now += 3600.0 * (not code)
        processes[-1].end(code, said)
        count = len(processes)
        for secs, starts in ((0.0, 0), (wait - 1.0, 0), (1.0, 1)):
            clock.now += secs
            beside.observe(State(Phase.TRAINING))
            assert len(processes) == count + starts
    assert [record.message for record in caplog.records] == [
        "the run is not copied: `trainerd copy` ended with exit code 78: unknown key \\x1bto_",
        "the run is not copied: `trainerd copy` ended with exit code -9: it said nothing",
    ]
    processes[-1].end(0)
    beside.observe(State(Phase.FINISHED))


def test_a_run_elsewhere_a_worker_and_a_service_start_no_copy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "trainerd.toml"
    path.write_text('entry = "job:job"\nlogdir = "run"\n[copy]\nto = "file:///mnt/nas/digits"\n', encoding="utf-8")
    config = configs.load(path)
    monkeypatch.setattr("subprocess.Popen", FakeProcess)
    processes.clear()
    for other in (replace(config, logdir="trial"), replace(config, rank=1), replace(config, copy=CopyConfig())):
        CopierBeside(other).observe(State(Phase.TRAINING))
    monkeypatch.setenv("NOTIFY_SOCKET", "/run/systemd/notify")
    CopierBeside(config).observe(State(Phase.TRAINING))
    assert processes == []


# ---------------------------------------------------------------------- fetch


@pytest.fixture
def store(rundir: RunDirectory) -> MemoryStore:
    """The copy of a run with three checkpoints."""
    for step in (10, 20, 30):
        write(rundir, step, value=float(step))
    identified(rundir)
    store = MemoryStore()
    copied(rundir, store)
    return store


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


# ---------------------------------------------------------------------- what is configured


@pytest.mark.parametrize(
    ("url", "host", "path"),
    [
        ("s3://bucket/runs/digits", "bucket", "runs/digits"),
        ("gs://bucket/runs/a%20b/", "bucket", "runs/a b"),
        ("file:///mnt/nas/run", "", "/mnt/nas/run"),
        ("sftp://me@host:2222/srv/run", "host", "srv/run"),
        ("webdavs://[::1]:8443/run", "::1", "run"),
        ("rclone://crypt/run", "crypt", "run"),
    ],
)
def test_a_url_is_read(url: str, host: str, path: str) -> None:
    found = Destination.parse(url)
    assert (found.host, found.path) == (host, path) and Destination.parse(str(found)) == found


@pytest.mark.parametrize(
    ("url", "message"),
    [
        ("bucket/runs", "expected a URL that begins with s3://, gs://"),
        ("ftp://host/run", "expected a URL that begins with"),
        ("s3://key:hunter2@bucket/run", "may not hold credentials"),
        ("az://box/run?sig=hunter2", "may not hold credentials"),
        ("webdav://me:hunter2@host/run", "Credentials go into the environment or into a file"),
        ("s3://bucket", "needs a path"),
        ("s3://bucket/../x", "needs a path"),
        ("s3:///run", "needs a bucket"),
        ("file://nas/run", "takes an absolute path, such as file:///nas/run"),
        ("sftp://host:port/run", "it is not a URL"),
        ("s3://bucket:9/run", "neither a user nor a port"),
    ],
)
def test_a_wrong_url_is_named_without_its_secret(url: str, message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        parse({"entry": "job:job", "logdir": "run", "copy": {"to": url}})
    assert "copy.to: " in str(caught.value) and message in str(caught.value) and "hunter2" not in str(caught.value)


def test_credentials_that_others_may_read_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    file = tmp_path / "credentials"
    file.touch(0o644)
    require_private_credentials("s3", {"AWS_SHARED_CREDENTIALS_FILE": str(file), "RCLONE_CONFIG": "/none"})
    file.write_text("[default]")
    with pytest.raises(ConfigError, match=f"{file} holds credentials, and others may read it. Type `chmod 600"):
        require_private_credentials("s3", {"AWS_SHARED_CREDENTIALS_FILE": str(file)})
    require_private_credentials("sftp", {"AWS_SHARED_CREDENTIALS_FILE": str(file), "RCLONE_CONFIG": "/none"})
    file.chmod(0o600)
    require_private_credentials("s3", {"AWS_SHARED_CREDENTIALS_FILE": str(file), "RCLONE_CONFIG": str(file)})


@pytest.mark.parametrize(
    ("scheme", "name", "environ"),
    [
        ("s3", "{home}/.aws/credentials", {}),
        ("s3", "{home}/.aws/config", {}),
        ("s3", "{home}/aws", {"AWS_CONFIG_FILE": "{home}/aws"}),
        ("gs", "{home}/.config/gcloud/application_default_credentials.json", {}),
        ("sftp", "{home}/xdg/rclone/rclone.conf", {"XDG_CONFIG_HOME": "{home}/xdg"}),
        ("sftp", "{home}/.config/rclone/rclone.conf", {"XDG_CONFIG_HOME": "{home}/xdg"}),
        ("sftp", "{home}/.rclone.conf", {}),
    ],
)
def test_credentials_are_searched_where_the_tools_of_a_service_have_them(
    scheme: str, name: str, environ: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    file, given = Path(name.format(home=tmp_path)), {key: each.format(home=tmp_path) for key, each in environ.items()}
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text("[default]\naws_secret_access_key = x\n")
    file.chmod(0o640)
    with pytest.raises(ConfigError, match=f"{file} holds credentials, and others may read it"):
        require_private_credentials(scheme, given)
    file.chmod(0o600)
    require_private_credentials(scheme, given)


def test_an_aws_config_without_secrets_may_be_read_by_all(tmp_path: Path) -> None:
    (tmp_path / "config").write_text("[default]\nregion = eu-west-1\n")
    environ = {"RCLONE_CONFIG": "/none", "AWS_SHARED_CREDENTIALS_FILE": "/none"}
    require_private_credentials("s3", environ | {"AWS_CONFIG_FILE": str(tmp_path / "config")})


def test_a_limit_slows_the_upload(tmp_path: Path, clock: FakeTime) -> None:
    source = os.open(tmp_path / "big", os.O_RDWR | os.O_CREAT)
    os.truncate(source, 4 << 20)
    FolderStore(tmp_path / "nas", float(1 << 20), timer=clock, sleep=clock.sleep).put(
        "objects/a", source, 4 << 20, lambda sent: None
    )
    os.close(source)
    assert clock.now == 1004.0


def test_a_folder_that_is_not_mounted_is_not_filled(tmp_path: Path, rundir: RunDirectory) -> None:
    write(rundir, 10)
    identified(rundir)
    with pytest.raises(CopyError, match=r"the directory .*/nas does not exist\. Mount it, or create it"):
        copy_once(run_of(rundir), RunCopy(FolderStore(tmp_path / "nas" / "run"), "nas"))
    assert not (tmp_path / "nas").exists()
    status = read_copy_status(rundir)
    assert status is not None and "does not exist" in str(status.error)


def test_the_status_says_what_is_copied(rundir: RunDirectory, store: MemoryStore) -> None:
    status = read_copy_status(rundir)
    assert status is not None
    at = manifests.read(rundir.manifest(30)).at
    newest, newer = (LastCheckpoint(step, "", "", None, 0, at) for step in (30, 40))
    assert not status.is_behind(newest) and status.is_behind(newer) and not status.is_behind(None)
    assert status.line(newest, at + 60) == "step 30, 60 s old; to memory"
    assert status.line(newer, at + 60) == "step 30, 60 s old; step 40 is not copied yet; to memory"
    sending = replace(status, sending=40, sent_bytes=1, total_bytes=4)
    assert "; sending step 40 (25 %); to memory" in sending.line(newer, at)
    assert CopyStatus(to="s3://b/c").line(newest, at) == "no checkpoint yet; step 30 is not copied yet; to s3://b/c"


@pytest.mark.parametrize(
    "fields",
    [
        {"step": 5},
        {"step": 5, "copied": {"5": 10**400}},
        {"copied": {"5": 1.0}},
        {"at": 1e300},
        {"sent_bytes": -(10**30)},
    ],
)
def test_a_status_that_no_copier_wrote_is_none(rundir: RunDirectory, fields: dict[str, object]) -> None:
    rundir.copy.write_text(json.dumps({"to": "s3://b/c"}))
    assert read_copy_status(rundir) is not None
    rundir.copy.write_text(json.dumps({"to": "s3://b/c", **fields}))
    assert read_copy_status(rundir) is None


def test_status_and_checkpoints_show_the_copy(cli: Cli, rundir: RunDirectory, store: MemoryStore) -> None:
    write(rundir, 40)
    logdir = str(rundir.path)
    assert "copied  step 30, " in cli("status", logdir)[1]
    assert json.loads(cli("status", logdir, "--json")[1])["copy"]["step"] == 30
    shown = json.loads(cli("checkpoints", logdir, "--json")[1])
    assert ["copied" in entry["marks"] for entry in shown] == [True, True, True, False]
    back(rundir, 10)
    write(rundir, 20, value=5.0)
    shown = json.loads(cli("checkpoints", logdir, "--json")[1])
    of_this_line = [entry for entry in shown if entry["line"] is None]
    assert ["copied" in entry["marks"] for entry in of_this_line] == [True, False], "another one of step 20 is copied"
    saved = LastCheckpoint(20, "", "", None, 0, 0.0)
    State(Phase.PAUSED, run_id="r1", last_checkpoint=saved).write(rundir.state)
    assert "step 20 is not copied yet" in cli("status", logdir)[1]
    copied(rundir, store)
    assert "is not copied yet" not in cli("status", logdir)[1]


def test_a_move_needs_a_paused_run_and_frees_the_copy(cli: Cli, rundir: RunDirectory, tmp_path: Path) -> None:
    write(rundir, 10)
    identified(rundir)
    url, logdir = (tmp_path / "nas").as_uri(), str(rundir.path)
    code, text = cli("move", logdir, url)
    assert code == 69 and "the run is not paused: it ended while training, without a save" in text
    State(Phase.PAUSED, run_id="r1").write(rundir.state)
    code, text = cli("move", logdir, url)
    assert code == 0 and f"trainerd fetch {url} run" in text and rundir.manifest(10).exists()
    with contextlib.closing(RunCopy(FolderStore(tmp_path / "nas"), url)) as copy:
        about = copy.about()
        assert about is not None and about.writer is None
        copy_once(run_of(rundir, writer=THERE), copy)
    assert cli("move", logdir, url)[0] == 75


@pytest.mark.parametrize("is_training", [False, True])
def test_a_move_that_another_copier_stops_says_that_it_has_paused_the_run(
    cli: Cli, rundir: RunDirectory, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_training: bool
) -> None:
    State(Phase.PAUSED, run_id="r1").write(rundir.state)

    def no_patience(rundir: RunDirectory, secs: float) -> contextlib.AbstractContextManager[None]:
        return only_copier(rundir)

    monkeypatch.setattr(move, "only_copier", no_patience)
    monkeypatch.setattr(move, "read_holder", lambda rundir: Holder(1, 0.0, 0.0) if is_training else None)
    monkeypatch.setattr(requests, "wait_for_end", lambda holder: None)
    with only_copier(rundir):
        code, text = cli("move", str(rundir.path), (tmp_path / "nas").as_uri())
    assert code == 75 and "or pause the run if the trainer started it. Then run" in text
    resumes = rf"the run is paused, and is not moved. `.* start --logdir {rundir.path}` resumes it here\."
    assert bool(re.search(resumes, text)) == is_training, text


def test_without_a_checkpoint_nothing_is_moved_and_a_copy_says_so(
    cli: Cli, rundir: RunDirectory, tmp_path: Path
) -> None:
    State(Phase.PAUSED, run_id="r1").write(rundir.state)
    url, logdir = (tmp_path / "nas").as_uri(), str(rundir.path)
    code, text = cli("copy", logdir, "--to", url, "--once")
    assert code == 0 and f"copied the files of the run to {url}, and no checkpoint" in text
    code, text = cli("move", logdir, url)
    assert code == 69 and "has no whole checkpoint: the run is copied, and not moved. Start it" in text
    with contextlib.closing(RunCopy(FolderStore(tmp_path / "nas"), url)) as copy:
        about = copy.about()
        assert about is not None and about.writer is not None, "the copy stays this machine's"


def test_a_move_does_not_take_an_old_copy_of_the_step_for_the_step(
    cli: Cli, rundir: RunDirectory, tmp_path: Path
) -> None:
    write(rundir, 10, 20)
    identified(rundir)
    url = (tmp_path / "nas").as_uri()
    copy_once(run_of(rundir, writer=writer_of(rundir)), RunCopy(FolderStore(tmp_path / "nas"), url))
    back(rundir, 10)
    write(rundir, 20, value=5.0)
    (rundir.path / "model.ckpt-20.data-00000-of-00001").write_bytes(b"5.1")
    saved = LastCheckpoint(20, "", "", None, 0, 0.0)
    State(Phase.PAUSED, run_id="r1", last_checkpoint=saved).write(rundir.state)
    code, text = cli("move", str(rundir.path), url)
    assert code == 65 and "the checkpoint of step 20 is damaged: the run is copied, and not moved" in text


def test_the_commands_say_what_is_wrong(cli: Cli, rundir: RunDirectory, tmp_path: Path) -> None:
    write(rundir, 10)
    identified(rundir)
    logdir = str(rundir.path)
    code, text = cli("copy", logdir, "--once")
    assert code == 78 and "nothing says where this run is copied to" in text
    code, text = cli("copy", logdir, "--once", "--to", "s3://a:b@c/d")
    assert code == 64 and "--to: the URL may not hold credentials" in text
    url = (tmp_path / "nas").as_uri()
    code, text = cli("copy", logdir, "--once", "--to", url)
    assert code == 0 and f"The copy at {url} is complete: 1 checkpoint, newest step 10." in text
    code, text = cli("fetch", url, "back")
    assert code == 0 and "resumes the run from step 10" in text and "were not copied" in text
    assert f" --to {url} --take-over` continues the copy from here" in text
    code, text = cli("fetch", url, "back")
    assert code == 64 and "is not empty. Fetch into a new folder" in text
    code, text = cli("fetch", url + "x", "other")
    assert code == 65 and "holds no copy of a run" in text
    assert cli("copy", str(tmp_path / "none"), "--to", url)[0] == 69


def test_a_copy_before_the_first_start_says_what_starts_the_run(cli: Cli, tmp_path: Path) -> None:
    assert cli("init", "new")[0] == 0
    code, text = cli("copy", "--config", "new/trainerd.toml", "--to", (tmp_path / "nas").as_uri())
    assert code == 69 and re.search(r"\S+ has no run yet\. `.*run --config new/trainerd\.toml` starts it", text)
