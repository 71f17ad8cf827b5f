"""The memory tier: what a killed process had in memory becomes a checkpoint, if it continues the newest one."""

from __future__ import annotations

import errno
import json
import os
import shutil
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import psutil
import pytest

from tests.fake import FakeSnapshot
from tests.unit.conftest import Cli, FakeTime, WriterByHand
from tests.unit.test_loop import Life
from tests.waiting import wait_for
from trainerd.checkpoints import catalogue, latest, manifest, memory_tier
from trainerd.checkpoints.manifest import About
from trainerd.checkpoints.memory_tier import MemoryTier
from trainerd.checkpoints.retention import Policy
from trainerd.checkpoints.store import CheckpointStore
from trainerd.errors import JobError, StorageError
from trainerd.history import rollback
from trainerd.history.rollback import RollbackRequest, RollbackTarget
from trainerd.loop.flag import Request
from trainerd.rundir.paths import RunDirectory
from trainerd.rundir.state import MemoryTierState, Phase, State, read_state
from trainerd.system.resources import control_groups, memory_folders
from trainerd.system.threads import Background

RUN = "0123456789abcdef"


def ignore(size: int) -> None:
    """Take no note of what is written."""


@pytest.fixture
def memory(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The folder in memory of this test."""
    with tempfile.TemporaryDirectory(dir="/dev/shm", prefix="trainerd-test-") as folder:
        monkeypatch.setenv(memory_folders.VARIABLE, folder)
        yield Path(folder) / f"trainerd-{os.geteuid()}"


@pytest.fixture
def run(rundir: RunDirectory, memory: Path) -> RunDirectory:
    """A run that was started once, and has a checkpoint of step 5."""
    State(run_id=RUN, logdir=str(rundir.path)).write(rundir.state)
    CheckpointStore(rundir).publish(FakeSnapshot(5, 10.0), About("schedule"))
    return rundir


def to_memory(rundir: RunDirectory, *steps: int, after: int | None = 5) -> CheckpointStore:
    """Save these steps to memory, as a process that is killed then."""
    store = CheckpointStore(rundir)
    if after is not None:
        store.resumed(after)
    for step in steps:
        saved = store.write_to_memory(FakeSnapshot(step, 2.0 * step), About("memory", {"loss": 0.5}), lambda size: None)
        assert saved.step == step
    return store


def started(rundir: RunDirectory) -> tuple[int, str]:
    """The step at which the next start resumes, and the reason of its checkpoint."""
    store = CheckpointStore(rundir)
    store.clean()
    found = latest.newest_verified(rundir, store)
    assert found is not None
    manifest.verify(found, rundir.path)
    return found.step, found.reason


def test_the_newest_state_in_memory_is_the_checkpoint_of_the_next_start(run: RunDirectory, memory: Path) -> None:
    to_memory(run, 6, 7, 8)
    assert len(list(memory.glob(f"{RUN}-*/?/state-*.json"))) == 2, "two slots"
    assert started(run) == (8, "memory")
    found = manifest.read(run.manifest(8))
    assert (found.before, found.metrics) == (5, {"loss": 0.5})
    assert run.prefix(8).with_name("model.ckpt-8.data-00000-of-00001").read_text() == "16.0"
    assert started(run) == (8, "memory"), "and once only"
    store = CheckpointStore(run)
    store.resumed(8)
    assert list(memory.iterdir()) == []


@pytest.mark.parametrize("minima", [(6,), (6, 7)])
def test_a_minimum_that_is_known_late_leaves_what_is_in_memory(run: RunDirectory, minima: tuple[int, ...]) -> None:
    store = to_memory(run, 20)
    for step in minima:
        store.publish(FakeSnapshot(step, 1.0), About("minimum"))
    assert started(run) == (20, "memory") and manifest.read(run.manifest(20)).before == minima[-1]


def test_of_two_folders_the_newest_state_counts(
    run: RunDirectory, memory: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """A process of a user's session and one of a unit may have another folder each."""
    first, second = memory / "first", memory / "second"
    memory.mkdir(exist_ok=True)
    for step, folders in ((7, [first, second]), (9, [second])):
        MemoryTier(run, partial(list, folders)).save(FakeSnapshot(step, 1.0), About("memory"), 5, ignore)
    found = MemoryTier(run, lambda: [first, second]).newest()
    assert found is not None and found.step == 9


def test_a_run_without_a_checkpoint_resumes_from_memory_too(rundir: RunDirectory, memory: Path) -> None:
    State(run_id=RUN).write(rundir.state)
    to_memory(rundir, 3, after=None)
    assert started(rundir) == (3, "memory")


def _garble(memory: Path, step: int) -> None:
    for path in memory.glob(f"{RUN}-*/?/state-{step}.json"):
        (path.parent / "state.index").write_text("other")


def _cut(memory: Path, step: int) -> None:
    for path in memory.glob(f"{RUN}-*/?/state-{step}.json"):
        path.write_bytes(path.read_bytes()[:50])


@pytest.mark.parametrize("harm", [_garble, _cut])
def test_a_slot_that_does_not_verify_leaves_the_one_before(
    run: RunDirectory, memory: Path, harm: Callable[[Path, int], None]
) -> None:
    to_memory(run, 6, 7)
    harm(memory, 7)
    assert started(run) == (6, "memory")


def _saved_since(run: RunDirectory, memory: Path) -> None:
    CheckpointStore(run).publish(FakeSnapshot(8, 16.0), About("request"))


def _went_back(run: RunDirectory, memory: Path) -> None:
    CheckpointStore(run).publish(FakeSnapshot(3, 6.0), About("request"))
    CheckpointStore(run).name(3)


def _started_over(run: RunDirectory, memory: Path) -> None:
    State(run_id="another").write(run.state)


def _rebooted(run: RunDirectory, memory: Path) -> None:
    [path] = memory.glob(f"{RUN}-*/run.json")
    path.write_text(json.dumps(json.loads(path.read_text()) | {"boot_id": "another"}))


def _saved_itself(run: RunDirectory, memory: Path) -> None:
    (run.path / "own-7.index").touch()
    run.checkpoint_state.write_text('model_checkpoint_path: "own-7"\n')


def _is_rolling_back(run: RunDirectory, memory: Path) -> None:
    run.rollback_moves.write_text("{}")


@pytest.mark.parametrize(
    "change", [_saved_since, _went_back, _started_over, _rebooted, _saved_itself, _is_rolling_back]
)
def test_what_does_not_continue_the_run_is_not_resumed(
    run: RunDirectory, memory: Path, change: Callable[[RunDirectory, Path], None]
) -> None:
    to_memory(run, 7)
    change(run, memory)
    store = CheckpointStore(run)
    store.clean()
    assert 7 not in run.steps()


def test_a_copy_of_a_run_directory_and_the_original_have_a_state_each(run: RunDirectory, tmp_path: Path) -> None:
    copy = RunDirectory(tmp_path / "copy")
    shutil.copytree(run.path, copy.path)
    to_memory(run, 7)
    assert CheckpointStore(copy).memory.newest() is None
    to_memory(copy, 8)
    assert started(copy) == (8, "memory")
    assert started(run) == (7, "memory")


def test_a_clock_that_was_set_back_in_between_does_not_matter(
    run: RunDirectory, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = to_memory(run, 6)
    with monkeypatch.context() as set_back:
        set_back.setattr(time, "time", lambda: 1.0)
        store.write_to_memory(FakeSnapshot(7, 14.0), About("memory"), lambda size: None)
    assert started(run) == (7, "memory")


@pytest.mark.parametrize("is_file", [False, True])
def test_a_rollback_of_a_killed_run_is_not_undone_by_the_next_start(run: RunDirectory, is_file: bool) -> None:
    """By the command, which makes a checkpoint of what is in memory first; and by the file, which a start serves."""
    to_memory(run, 8)
    request = RollbackRequest(RollbackTarget(5))
    store = CheckpointStore(run)
    store.clean()
    if is_file:
        request.write(run)
        rollback.finish_at_start(run, store)
    else:
        rollback.go_back(run, store, request, 1.0)
    assert started(run) == (5, "schedule")
    assert RunDirectory(run.line(1)).steps() == [8], "and it is kept"


def test_a_rollback_that_is_cut_short_before_its_restore_is_not_undone(run: RunDirectory) -> None:
    store = to_memory(run, 8)
    store.publish(FakeSnapshot(9, 18.0), About("rollback"))
    rollback.go_back(run, store, RollbackRequest(RollbackTarget(5)), 1.0)
    assert started(run) == (5, "schedule")


def test_what_another_user_has_planted_is_not_read(run: RunDirectory, memory: Path) -> None:
    to_memory(run, 8)
    os.chown(memory, 4321, 4321)
    assert started(run) == (5, "schedule")
    os.chown(memory, os.geteuid(), os.getegid())
    memory.chmod(0o777)
    assert started(run) == (5, "schedule")
    shutil.rmtree(memory)
    memory.write_text("a file stops no start")
    assert started(run) == (5, "schedule")


def test_a_file_of_a_slot_that_is_gone_fails_the_save(run: RunDirectory, memory: Path) -> None:
    class Lost(FakeSnapshot):
        def write(self, prefix: Path, *more: Any) -> dict[str, str]:
            super().write(prefix, lambda size: None)
            return {f"{prefix.name}.data-00001-of-00002": "0" * 32}

        def __init__(self) -> None:
            super().__init__(9, 18.0)

    store = to_memory(run, 7, 8)
    with pytest.raises(StorageError, match="No such file"):
        store.write_to_memory(Lost(), About("memory"), lambda size: None)
    assert started(run) == (8, "memory")


def test_saves_that_find_no_room_keep_what_is_there(run: RunDirectory, monkeypatch: pytest.MonkeyPatch) -> None:
    store = to_memory(run, 7)
    monkeypatch.setattr(psutil, "virtual_memory", lambda: SimpleNamespace(available=1))
    for _ in range(3):
        with pytest.raises(StorageError, match="two copies of the state need"):
            store.write_to_memory(FakeSnapshot(8, 16.0), About("memory"), lambda size: None)
    assert started(run) == (7, "memory")


@pytest.mark.parametrize("nth", range(11))
def test_an_error_while_it_becomes_a_checkpoint_loses_nothing(run: RunDirectory, nth: int) -> None:
    to_memory(run, 7)
    calls = iter(range(100))

    def strike(stage: str) -> None:
        if next(calls) == nth:
            raise OSError(errno.EIO, os.strerror(errno.EIO))

    with pytest.raises(StorageError, match="Input/output"):
        CheckpointStore(run, at=strike).clean()
    assert started(run) == (7, "memory")


def test_a_full_disk_refuses_the_start_and_keeps_what_is_in_memory(run: RunDirectory) -> None:
    to_memory(run, 7)
    with pytest.raises(StorageError, match=r"step 7 is in memory.*no room for its .*Free some space") as caught:
        CheckpointStore(run, free=lambda folder: 3).clean()
    assert caught.value.exit_code == 74
    assert started(run) == (7, "memory")


def test_on_a_full_disk_what_the_policy_gives_up_makes_room(run: RunDirectory) -> None:
    CheckpointStore(run).publish(FakeSnapshot(6, 12.0), About("schedule"))
    to_memory(run, 7, after=6)
    with pytest.raises(StorageError):  # the policy is not known
        CheckpointStore(run, free=lambda folder: 3).clean()
    assert run.steps() == [6, 5]
    CheckpointStore(run, policy=Policy(2), free=lambda folder: 3 if 5 in run.steps() else 1 << 30).clean()
    assert run.steps() == [7, 6]


def test_starts_that_die_soon_do_not_push_out_the_checkpoints_before(run: RunDirectory) -> None:
    for step in (7, 8, 9, 10):
        to_memory(run, step, after=catalogue.resume_order(run)[0])
        assert started(run) == (step, "memory")
    store = CheckpointStore(run, policy=Policy(keep_last=2))
    store.resumed(10)
    store.publish(FakeSnapshot(11, 22.0), About("schedule"))
    assert run.steps() == [11, 5]


# ---------------------------------------------------------------------- where it lies


def test_states_of_runs_that_are_gone_are_removed(run: RunDirectory, memory: Path, tmp_path: Path) -> None:
    gone = RunDirectory(tmp_path / "project" / "gone")
    gone.create()
    State(run_id="fedcba").write(gone.state)
    to_memory(gone, 1, after=None)
    shutil.rmtree(gone.path.parent)
    assert len(list(memory.glob("fedcba-*"))) == 1
    away = RunDirectory(tmp_path / "nas" / "away")
    (tmp_path / "nas").mkdir()
    away.create()
    State(run_id="a1").write(away.state)
    to_memory(away, 1, after=None)
    [about] = memory.glob("a1-*/run.json")
    about.write_text(json.dumps(json.loads(about.read_text()) | {"device": 1 << 40}))
    (tmp_path / "nas").rename(tmp_path / "not-mounted")
    to_memory(run, 7)
    assert sorted(path.name.partition("-")[0] for path in memory.iterdir()) == [RUN, "a1"]


def test_the_disk_of_another_run_may_hang(
    run: RunDirectory, memory: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = RunDirectory(tmp_path / "other")
    other.create()
    State(run_id="fedcba").write(other.state)
    to_memory(other, 1, after=None)
    works = threading.Event()

    def read(path: Path) -> State | None:
        if path == other.state:
            works.wait()
        return read_state(path)

    monkeypatch.setattr(memory_tier, "read_state", read)
    monkeypatch.setattr(memory_tier, "ORPHANS_SECS", 0.01)
    to_memory(run, 6)
    works.set()
    assert started(run) == (6, "memory")


def test_a_folder_that_was_removed_is_made_again(run: RunDirectory, memory: Path) -> None:
    store = to_memory(run, 6, 7)
    shutil.rmtree(memory)
    with pytest.raises(StorageError, match="No such file"):
        store.write_to_memory(FakeSnapshot(8, 16.0), About("memory"), lambda size: None)
    store.write_to_memory(FakeSnapshot(9, 18.0), About("memory"), lambda size: None)
    assert started(run) == (9, "memory")


def _of_all(memory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    memory.mkdir(mode=0o755)


def _link(memory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    memory.symlink_to("/dev/shm")


def _of_another(memory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    memory.mkdir(mode=0o700)
    os.chown(memory, 4321, 4321)


def _in_a_shared_folder(memory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    memory.parent.chmod(0o777)


def _on_disk(memory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(memory_folders.VARIABLE, tempfile.mkdtemp())


def _without_room(memory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(psutil, "virtual_memory", lambda: SimpleNamespace(available=399))


def _under_a_limit(memory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(control_groups, "memory_headroom", lambda: (1099, 9000))


@pytest.mark.parametrize(
    ("harm", "said"),
    [
        (_of_all, "not a folder of this user alone"),
        (_link, "not a folder of this user alone|make .*: File exists"),
        (_of_another, "not a folder of this user alone"),
        (_in_a_shared_folder, "other users may change what is in"),
        (_on_disk, "is not in memory: it is on"),
        (_without_room, "no more than half of the 399 B that are free"),
        (_under_a_limit, r"of the memory limit of 8\.8 KiB only 1\.1 KiB are left"),
    ],
)
def test_a_folder_that_will_not_do_is_refused_with_the_reason(
    run: RunDirectory,
    memory: Path,
    monkeypatch: pytest.MonkeyPatch,
    harm: Callable[[Path, pytest.MonkeyPatch], None],
    said: str,
) -> None:
    if harm is _of_another and os.geteuid():
        pytest.fail("this test needs root")
    harm(memory, monkeypatch)
    with pytest.raises(StorageError, match=said):
        to_memory(run, 7)
    assert started(run) == (5, "schedule")


def test_the_folder_is_that_of_the_unit_or_of_the_user(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv(memory_folders.VARIABLE, raising=False)
    monkeypatch.delenv("RUNTIME_DIRECTORY", raising=False)
    monkeypatch.setenv("XDG_RUNTIME_DIR", "/run/user/7")
    of_user = Path(f"/dev/shm/trainerd-{os.geteuid()}")
    assert memory_folders.candidates() == [Path("/run/user/7/trainerd-memory"), of_user]
    monkeypatch.setenv("RUNTIME_DIRECTORY", f"{tmp_path}:/run/other")
    assert memory_folders.candidates() == [tmp_path / "trainerd-memory"]


# ---------------------------------------------------------------------- the loop


def life(
    rundir: RunDirectory,
    clock: FakeTime,
    before_save: Callable[[int], None] | None = None,
    writer: Background | None = None,
    **checkpoint: Any,
) -> Life:
    """A run with a tenth of a second a step, whose saves cost nothing: it saves to memory every second."""
    keys = {"max_steps": 100, "checkpoint": {"save_model_secs": 0, **checkpoint}}
    found = Life(rundir, keys, timer=clock, before_save=before_save, writer=writer or WriterByHand())

    def on_step(step: int) -> None:
        clock.now += 0.1
        found.flag.raise_for(Request.TICK)

    found.session.on_step = on_step
    return found


def kill_at(found: Life, step: int) -> None:
    """Train, and die before this step."""
    tick = found.session.on_step

    class Killed(BaseException):
        pass

    def on_step(now: int) -> None:
        if now == step:
            raise Killed
        tick(now)

    found.session.on_step = on_step
    with pytest.raises(Killed):
        found.train()


def test_a_killed_run_resumes_seconds_ago_and_ends_with_nothing_in_memory(
    run: RunDirectory, memory: Path, clock: FakeTime
) -> None:
    first = life(run, clock)
    kill_at(first, 58)
    assert first.reporter.state.memory_tier.step == 55
    second = life(run, clock)
    assert second.train().phase is Phase.FINISHED
    assert run.steps() == [100, 5] and second.session.value == 200.0
    assert list(memory.iterdir()) == [] and second.reporter.state.memory_tier == MemoryTierState()


@pytest.mark.parametrize("save_model_secs", [0, "auto"])
def test_a_save_that_ends_within_one_long_step_costs_its_share_too(
    run: RunDirectory, memory: Path, clock: FakeTime, save_model_secs: Any
) -> None:
    """Steps of 3 s, each of which takes a second longer while a save is under way."""
    writer, lost = WriterByHand(held=True), 0.0
    found = life(run, clock, writer=writer, save_model_secs=save_model_secs, minima=False, disk_writes_per_day=1e6)

    def on_step(step: int) -> None:
        nonlocal lost
        clock.now += 2.9
        if writer.waiting:
            clock.now, lost = clock.now + 1.0, lost + 1.0
            writer.release()
            writer.held = True
        tick(step)

    tick, found.session.on_step = found.session.on_step, on_step
    found.run.config = replace(found.run.config, max_steps=400)
    kill_at(found, 400)
    assert 0 < lost < 0.04 * clock.now, "a share of 0.01 each, and the first ones, whose cost is not known"


def test_it_is_turned_off_by_its_overhead(run: RunDirectory, memory: Path, clock: FakeTime) -> None:
    kill_at(life(run, clock, memory_overhead=0), 58)
    assert not memory.exists()


def test_a_program_that_expects_a_checkpoint_at_each_save_has_none_in_memory(
    run: RunDirectory, memory: Path, clock: FakeTime
) -> None:
    kill_at(life(run, clock, before_save=lambda step: None), 58)
    assert not memory.exists()


def test_a_reason_why_not_is_shown_and_tried_again_after_a_minute(
    run: RunDirectory, memory: Path, clock: FakeTime, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = life(run, clock)
    monkeypatch.setattr(psutil, "virtual_memory", lambda: SimpleNamespace(available=1))
    looked = list[int]()
    real = found.run.store.write_to_memory

    def looks(*arguments: Any) -> Any:
        looked.append(found.session.step)
        return real(*arguments)

    monkeypatch.setattr(found.run.store, "write_to_memory", looks)
    kill_at(found, 50)
    assert looked == [25]
    assert "two copies of the state need" in found.reporter.state.memory_tier.off


def test_a_step_that_raises_leaves_what_is_in_memory(run: RunDirectory, memory: Path, clock: FakeTime) -> None:
    found = life(run, clock)
    tick = found.session.on_step

    def on_step(step: int) -> None:
        tick(step)
        if step == 60:
            raise JobError("the job failed in step 60", step=59, sound=False)

    found.session.on_step = on_step
    with pytest.raises(JobError, match="step 60"):
        found.train()
    assert found.run.checkpointer.next_start == "resumes from step 55"
    assert started(run) == (55, "memory")


def test_a_state_with_a_nan_ends_the_run_and_leaves_nothing_in_memory(
    run: RunDirectory, memory: Path, clock: FakeTime
) -> None:
    found = life(run, clock)
    tick = found.session.on_step

    def on_step(step: int) -> None:
        tick(step)
        if step == 60:
            found.session.value = float("nan")

    found.session.on_step = on_step
    with pytest.raises(JobError, match="holds a NaN after step 6"):
        found.train()
    assert list(memory.iterdir()) == [] and run.steps() == [5]


def test_a_checkpoint_on_disk_does_not_wait_for_one_to_memory(run: RunDirectory, clock: FakeTime) -> None:
    """The write to memory ends at its next piece, and the other save is of the boundary at which it was asked for."""
    found = life(run, clock, writer=Background("test"))
    tick, began = found.session.on_step, threading.Event()

    def endless(snapshot: Any, about: About, before: int | None, moved: Callable[[int], None]) -> Any:
        began.set()
        wait_for(lambda: moved(1), "the save that it gives way to")

    def on_step(step: int) -> None:
        tick(step)
        if step == 36:
            assert began.wait(10)
            found.flag.raise_for(Request.SAVE)

    found.run.store.memory.save = endless  # type: ignore[method-assign]
    found.session.on_step = on_step
    kill_at(found, 38)
    assert [(s, manifest.read(run.manifest(s)).reason) for s in run.steps()] == [(36, "request"), (5, "schedule")]


def test_commands_say_what_is_in_memory(run: RunDirectory, memory: Path, cli: Cli) -> None:
    to_memory(run, 1700)
    state = read_state(run.state)
    assert state is not None
    last = catalogue.as_last(run, manifest.read(run.manifest(5)))
    tier = MemoryTierState(1700, 1.0, 10, str(next(memory.glob(f"{RUN}-*"))))
    killed = replace(state, phase=Phase.TRAINING, last_checkpoint=last, memory_tier=tier, at=2.0)
    killed.write(run.state)
    assert "the next start resumes from step 1700" in cli("status", "--logdir", str(run.path))[1]
    assert "Step 1,700 is in memory" in cli("checkpoints", "--logdir", str(run.path))[1]
    replace(killed, last_checkpoint=None).write(run.state)
    run.manifest(5).unlink()
    assert cli("checkpoints", "--logdir", str(run.path)) == (
        0,
        "Step 1,700 is in memory: the next start resumes from it.\n",
    )
    CheckpointStore(run).publish(FakeSnapshot(5, 10.0), About("schedule"))
    killed.write(run.state)
    shutil.rmtree(memory)
    assert "the next start resumes from step 5" in cli("status", "--logdir", str(run.path))[1]
    assert "in memory" not in cli("checkpoints", "--logdir", str(run.path))[1]


def test_a_rollback_that_is_repeated_leaves_behind_what_was_trained_since_in_memory_alone(
    run: RunDirectory, cli: Cli
) -> None:
    logdir = ("--logdir", str(run.path))
    CheckpointStore(run).publish(FakeSnapshot(7, 14.0), About("schedule"))
    assert cli("rollback", "5", *logdir)[0] == cli("rollback", "7", "--line", "1", *logdir)[0] == 0
    to_memory(run, 9, after=7)
    assert cli("rollback", "7", "--line", "1", *logdir)[0] == 0 and started(run) == (7, "schedule")
    assert [path.name for path in run.lines.glob("*/*-9.json")] == ["model.ckpt-9.json"], "and deletes nothing"
