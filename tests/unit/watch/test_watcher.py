"""The watcher: what is new of each run is put into the queue once, whatever happens to the watcher or the files."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path

import psutil
import pytest

from tests.fake import FakeSnapshot
from trainerd.checkpoints import manifest as manifests
from trainerd.checkpoints.manifest import About
from trainerd.checkpoints.store import CheckpointStore
from trainerd.copies.status import CopyStatus
from trainerd.errors import StorageError
from trainerd.rundir import run_events
from trainerd.rundir.claim import claimed
from trainerd.rundir.paths import RunDirectory
from trainerd.rundir.run_events import EventKind, add
from trainerd.rundir.state import LastCheckpoint, Phase, State, read_state
from trainerd.watch.delivery.notes import Notes
from trainerd.watch.delivery.notice import Notice
from trainerd.watch.delivery.senders import Senders
from trainerd.watch.run_reader import Runs
from trainerd.watch.settings import WatchConfig
from trainerd.watch.summary import DAY
from trainerd.watch.watcher import Watcher


class Quiet(Senders):
    """Channels that nothing is sent to."""

    def __init__(self, *names: str) -> None:
        self.names = list(names)

    def check(self) -> None:
        pass


class World:
    """Runs in a folder, and a watcher that can be started anew."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.now = time.time()
        self.timer = 0.0
        self.paths: list[Path] = []
        self.config = WatchConfig()
        self.channels: Sequence[str] = ("one",)
        self.start()

    def start(self) -> None:
        """Start a watcher."""
        self.notes = Notes(self.folder / "notes", self.now)
        self.watcher = self.made()

    def made(self) -> Watcher:
        """A watcher with these notes."""
        return Watcher(
            self.config,
            self.notes,
            Quiet(*self.channels),
            Runs(lambda: self.paths, lambda: self.timer),
            clock=lambda: self.now,
            timer=lambda: self.timer,
        )

    def run(self, name: str) -> RunDirectory:
        """A run that is known from now on."""
        rundir = RunDirectory(self.folder / name)
        rundir.create()
        self.paths = [*self.paths, rundir.path]
        return rundir

    def look(self, times: int = 1, secs: float = 2.0) -> None:
        """Look so many times, so many seconds apart."""
        for _ in range(times):
            self.watcher.check()
            self.now += secs
            self.timer += secs

    def reported(self, channel: str = "one") -> list[str]:
        """Take what waits."""
        found = []
        while (first := self.notes.first(channel)) is not None:
            self.notes.delivered(first[0])
            found.append(first[1].title)
        return found


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


def test_what_was_before_the_first_watcher_is_not_reported(tmp_path: Path) -> None:
    rundir = RunDirectory(tmp_path / "a")
    rundir.create()
    add(rundir, EventKind.PAUSE, step=1, at=time.time() - 60)
    world = World(tmp_path)
    world.paths = [rundir.path]
    world.look()
    add(rundir, EventKind.PAUSE, step=2)
    world.look()
    assert world.reported() == ["a: paused at step 2"]


def test_each_event_is_reported_once_in_order_to_each_channel_over_restarts(world: World) -> None:
    world.channels = ("one", "two")
    world.start()
    rundir, expected = world.run("a"), []
    for step in range(60):
        add(rundir, EventKind.PAUSE if step % 2 else EventKind.SAVE_FAILED, step=step)
        expected.append(f"a: {'paused' if step % 2 else 'a save failed'} at step {step}")
        if step % 7 == 0:
            world.start()
        if step % 3 == 0:
            world.look()
    world.look()
    assert world.reported("one") == expected and world.reported("two") == expected
    world.start()
    world.look()
    assert world.reported() == []


def test_a_file_that_was_shortened_reports_nothing_twice(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run_events, "LIMIT_BYTES", 3000)
    rundir, reported = world.run("a"), []
    for step in range(200):
        add(rundir, EventKind.EVALUATION if step % 3 else EventKind.PAUSE, "x" * 40, step=step)
        world.look()
        reported += world.reported()
    assert reported == [f"a: paused at step {step}" for step in range(0, 200, 3)]


def test_evaluations_that_are_not_reported_are_noted_once_a_minute(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    rundir, noted = world.run("a"), []
    take = world.notes.take

    def counting(run: str, lines: Sequence[str], *rest: Sequence[Notice]) -> list[Notice]:
        noted.append(len(lines))
        return take(run, lines, *rest)  # type: ignore[arg-type]

    monkeypatch.setattr(world.notes, "take", counting)
    for step in range(30):
        add(rundir, EventKind.EVALUATION, step=step)
        world.look(secs=5)
    assert noted == [1, 13, 25]
    add(rundir, EventKind.PAUSE, step=30)
    world.look()
    assert world.reported() == ["a: paused at step 30"] and noted == [1, 13, 25, 31]
    world.config = replace(world.config, events=(*world.config.events, "evaluation"))
    world.start()
    world.look()
    assert world.reported() == []


def test_what_was_reported_long_ago_is_not_reported_again(world: World) -> None:
    rundir = world.run("a")
    State(Phase.TRAINING, step=9, at=world.now).write(rundir.state)
    world.look(3)
    assert world.reported() == ["a: was killed at step 9 or later"]
    world.now += 100 * DAY
    world.start()
    world.look(3)
    assert world.reported() == []


def test_a_run_that_another_machine_trains_was_not_killed(world: World) -> None:
    rundir = world.run("a")
    for step in range(5):
        State(Phase.TRAINING, 1, step=step, host="another", at=time.time()).write(rundir.state)
        world.look()
    assert world.reported() == []


def test_each_run_is_reported_a_reboot(world: World) -> None:
    for rundir in (world.run("a"), world.run("b")):
        State(Phase.TRAINING, at=psutil.boot_time() - 5).write(rundir.state)
        world.now = 0.0
        with claimed(rundir, "jobs:job"):
            pass
    world.config = replace(world.config, events=("reboot",))
    world.notes.begun_at = 0.0
    world.watcher = world.made()
    world.look()
    assert len(world.reported()) == 2


def test_a_kill_is_reported_once_though_the_next_start_notes_it_too(world: World) -> None:
    old, rundir = world.run("old"), world.run("a")
    State(Phase.TRAINING, step=8, pid=1 << 22, at=world.now - 60).write(old.state)  # before the first watcher
    State(Phase.TRAINING, step=9, pid=1 << 22, at=world.now + 1).write(rundir.state)
    world.look(2)
    assert world.reported() == ["a: was killed at step 9 or later"]
    world.start()
    world.look(3)
    with claimed(rundir, "jobs:job") as reporter:
        world.look(2)
        reporter.update(phase=Phase.FAILED, step=12, error="my own mistake")
    world.look(2)
    assert world.reported() == ["a: failed at step 12"]


def test_a_process_that_seems_to_have_gone_is_looked_at_again_soon(world: World) -> None:
    State(Phase.TRAINING, step=9, at=world.now).write(world.run("a").state)
    waits = [world.watcher.check() for _ in range(3)]
    assert waits[0] < waits[1] == waits[2]


def test_a_run_that_ends_in_order_was_not_killed(world: World) -> None:
    rundir = world.run("a")
    with claimed(rundir, "jobs:job") as reporter:
        reporter.update(phase=Phase.TRAINING, step=5)
        world.look(3)
        reporter.update(phase=Phase.FINISHED, step=6, ended="max_steps = 6 is reached")
    world.look(3)
    assert world.reported() == ["a: finished at step 6"]


def test_a_run_that_makes_no_step_is_reported_once_each_time(world: World) -> None:
    world.config = WatchConfig(no_progress_mins=10, events=("no progress",))
    world.start()
    rundir = world.run("a")
    with claimed(rundir, "jobs:job") as reporter:
        training = replace(reporter.state, phase=Phase.TRAINING, at=world.now)

        def look_at(step: int, minutes: int) -> None:
            replace(training, step=step).write(rundir.state)
            world.look(minutes, secs=60.0)

        look_at(5, 30)
        world.start()
        look_at(5, 30)
        look_at(6, 8)
        look_at(7, 30)
    assert world.reported() == ["a: has made no step for 10 min"] * 2


def test_a_copy_that_falls_behind_is_reported_once_each_time(world: World) -> None:
    world.config = WatchConfig(copy_behind_mins=10, events=("copy behind",))
    world.start()
    rundir = world.run("a")

    def look_at(saved: int, copied: int, minutes: int) -> None:
        last = LastCheckpoint(saved, "", "schedule", 1.0, 10, world.now)
        State(Phase.PAUSED, step=saved, last_checkpoint=last).write(rundir.state)
        CopyStatus(to="s3://b/a", step=copied, copied={copied: 5.0}, copied_at=float(copied)).write(rundir)
        world.look(minutes, secs=60.0)

    look_at(5, 5, 30)
    look_at(6, 5, 8)
    look_at(7, 5, 30)  # saves alone do not help
    look_at(8, 7, 8)
    look_at(8, 8, 30)
    look_at(9, 8, 30)
    assert world.reported() == ["a: has copied nothing for 10 min"] * 2


def test_a_copy_of_a_step_that_was_trained_again_is_behind(world: World) -> None:
    world.config = WatchConfig(copy_behind_mins=10, events=("copy behind",))
    world.start()
    rundir = world.run("a")
    CheckpointStore(rundir).publish(FakeSnapshot(5, 1.0), About("schedule"))
    at = manifests.read(rundir.manifest(5)).at
    last = LastCheckpoint(5, "", "schedule", 1.0, 10, world.now)
    State(Phase.PAUSED, step=5, last_checkpoint=last).write(rundir.state)
    for copied_at, reports in ((at, 0), (at - 60.0, 1)):
        CopyStatus(to="s3://b/a", step=5, copied={5: copied_at}, copied_at=5.0).write(rundir)
        world.look(30, secs=60.0)
        assert len(world.reported()) == reports


def test_only_what_is_wanted_is_reported(world: World) -> None:
    world.config = WatchConfig(events=("paused",), runs=("b",))
    world.start()
    for name in ("a", "b", "other/b"):
        rundir = world.run(name)
        add(rundir, EventKind.PAUSE, step=1)
        add(rundir, EventKind.FINISH, step=2)
    world.look()
    assert sorted(world.reported()) == [f"{world.folder}/b: paused at step 1", "b@other: paused at step 1"]


def test_a_run_that_was_moved_reports_nothing_twice(world: World) -> None:
    rundir = world.run("a")
    add(rundir, EventKind.PAUSE, step=1)
    world.look(2)
    shutil.move(rundir.path, world.folder / "b")
    world.paths = [world.folder / "b"]
    add(RunDirectory(world.folder / "b"), EventKind.PAUSE, step=2)
    world.look(2)
    assert world.reported() == ["a: paused at step 1", "b: paused at step 2"]


def test_a_full_disk_loses_nothing(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    rundir, take = world.run("a"), Notes.take
    world.look()

    def full(self: Notes, *arguments: object) -> list[Notice]:
        raise StorageError("database or disk is full")

    monkeypatch.setattr(Notes, "take", full)
    add(rundir, EventKind.PAUSE, step=1)
    world.look(3)
    monkeypatch.setattr(Notes, "take", take)
    world.look()
    assert world.reported() == ["a: paused at step 1"]


def test_what_others_have_broken_disturbs_nothing(world: World) -> None:
    for number, content in enumerate((b"", b"{", b"[" * 100_000, b'{"phase": 3}', b"\xff" * 10_000_000)):
        rundir = world.run(f"hostile{number}")
        rundir.state.write_bytes(content)
        rundir.events.write_bytes(content)
    fifo = world.run("link")
    fifo.events.symlink_to("/dev/zero")
    fifo.state.symlink_to("/dev/zero")
    world.paths = [*world.paths, world.folder / "not there"]
    add(world.run("a"), EventKind.PAUSE, step=1)
    world.look(3)
    assert world.reported() == ["a: paused at step 1"]


def test_a_clock_that_jumps_spoils_nothing(world: World) -> None:
    rundir = world.run("a")
    add(rundir, EventKind.PAUSE, step=1, at=world.now + 1e6)
    world.look()
    add(rundir, EventKind.PAUSE, step=2, at=world.now - 1e6)
    world.look()
    assert world.reported() == ["a: paused at step 1", "a: paused at step 2"]


def test_channels_that_the_settings_no_longer_have_are_forgotten(world: World) -> None:
    add(world.run("a"), EventKind.PAUSE, step=1)
    world.look()
    world.notes.drop_others(["two"])
    assert world.notes.waiting() == {}


def test_the_summary_is_sent_once_a_day(world: World) -> None:
    world.config = WatchConfig(summary_at="08:00")
    world.now = (datetime.now().replace(hour=12) + timedelta(days=1)).timestamp()
    world.start()
    world.look(100, secs=3600.0)
    reported = world.reported()
    assert len(reported) == 5 and all("0 of 0 runs are training" in each for each in reported)
    world.start()
    world.look()
    assert world.reported() == []


def test_notes_that_are_no_database_are_an_error(tmp_path: Path) -> None:
    (tmp_path / "watch.db").write_bytes(b"garbage" * 1000)
    with pytest.raises(StorageError, match="Move it away"):
        Notes(tmp_path, 0.0)


def best_of(tries: int, act: Callable[[], object]) -> float:
    """The processor time of the quickest try."""
    took = list[float]()
    for _ in range(tries):
        began = time.process_time()
        act()
        took.append(time.process_time() - began)
    return min(took)


@pytest.mark.no_cover  # which takes as long again
def test_a_thousand_runs_that_stand_still_cost_little(world: World) -> None:
    """No more than a few times what it takes to read their states: no events, no manifests."""
    runs = [world.run(f"run{number}") for number in range(1000)]
    for step, run in enumerate(runs):
        State(Phase.PAUSED, step=step, at=1.0).write(run.state)
    world.look()
    reading = best_of(5, lambda: [read_state(run.state) for run in runs])
    looking = best_of(5, lambda: world.look(secs=0.1))
    assert looking < 4 * reading
