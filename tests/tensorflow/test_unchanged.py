"""What does not change from one checkpoint to the next is stored once: for every reader each checkpoint is whole."""

from __future__ import annotations

import errno
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path
from unittest import mock

import pytest
import tensorflow as tf

import trainerd
from trainerd.checkpoints import manifest
from trainerd.checkpoints.format import bundle_writer, unchanged
from trainerd.checkpoints.format.bundle_writer import Item
from trainerd.checkpoints.manifest import About
from trainerd.checkpoints.retention import Policy
from trainerd.checkpoints.snapshot import Earlier, Kept, no_earlier
from trainerd.checkpoints.store import CheckpointStore
from trainerd.loop.flag import Flag
from trainerd.rundir.paths import RunDirectory
from trainerd.rundir.state import State
from trainerd.sessions.tf2.job_session import FunctionSession
from trainerd.system.resources import memory_folders

BACKBONE, HEAD = 4 * 40_000, 4 * 2_000  # bytes
ABOUT = About("schedule")


@pytest.fixture(autouse=True)
def all_is_large(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bundle_writer, "LARGE", 1000)
    monkeypatch.setattr(bundle_writer, "WORTHWHILE", 0)
    monkeypatch.setattr(unchanged, "WORTHWHILE", 0)


class Tuned:
    """A model whose backbone no step changes, and the store of its checkpoints."""

    def __init__(self, folder: Path, kept: Kept = "host") -> None:
        self.backbone = [tf.Variable(tf.random.stateless_normal([10_000], [1, n])) for n in range(4)]
        self.head = tf.Variable(tf.random.stateless_normal([2_000], [2, 2]))
        self.session = FunctionSession(trainerd.Job(self.step, state={"backbone": self.backbone, "head": self.head}))
        self.rundir = RunDirectory(folder / "run")
        self.rundir.create()
        self.store = CheckpointStore(self.rundir, policy=Policy(10))
        if steps := self.rundir.steps():
            self.session.restore(self.rundir.prefix(steps[0]))
            self.store.resumed(steps[0])
        self.session.bind(Flag())
        self.kept = kept
        self.saved: dict[int, list[bytes]] = {}

    def step(self) -> None:
        """Change the head alone."""
        self.head.assign_add(self.head * 1e-3)

    def save(self, times: int = 1) -> None:
        """Train and save."""
        for _ in range(times):
            self.session.run_until(self.session.step + 1)
            self.store.publish(self.session.snapshot(self.kept), ABOUT)
            values = [*self.backbone, self.head]
            self.saved[self.session.step] = [value.numpy().tobytes() for value in values]

    def disk(self) -> int:
        """The bytes that the data files take."""
        files = [path.stat() for path in self.rundir.path.glob("*.data-*")]
        return sum({found.st_ino: found.st_size for found in files}.values())

    def require_whole(self) -> None:
        """Require that every checkpoint there is has the values of its step, for trainerd and for TensorFlow."""
        for step in self.rundir.steps():
            manifest.verify(manifest.read(self.rundir.manifest(step)), self.rundir.path)
            backbone, head = [tf.Variable(tf.zeros([10_000])) for _ in range(4)], tf.Variable(tf.zeros([2_000]))
            into = tf.train.Checkpoint(backbone=backbone, head=head)
            into.read(str(self.rundir.prefix(step))).expect_partial().assert_existing_objects_matched()
            assert [value.numpy().tobytes() for value in [*backbone, head]] == self.saved[step], step


@pytest.mark.parametrize("kept", ["host", "copy"])
def test_a_frozen_backbone_is_stored_twice_for_any_number_of_checkpoints(tmp_path: Path, kept: Kept) -> None:
    tuned = Tuned(tmp_path, kept)
    tuned.save(13)
    assert len(tuned.rundir.steps()) == 10
    assert tuned.disk() <= 2.1 * BACKBONE + 10 * 1.5 * HEAD
    assert tuned.store.written < 2 * HEAD + 2_000 < BACKBONE
    tuned.require_whole()
    tuned.store.keep(Policy(1))
    tuned.save()
    assert tuned.rundir.steps() == [14]
    tuned.require_whole()


def test_a_run_that_keeps_two_checkpoints_writes_nothing_again(tmp_path: Path) -> None:
    tuned = Tuned(tmp_path)
    tuned.store.keep(Policy(2))
    tuned.save(5)
    inodes = {path.stat().st_ino for path in tuned.rundir.path.glob("*-00001-of-00002")}
    tuned.save(5)
    assert {path.stat().st_ino for path in tuned.rundir.path.glob("*-00001-of-00002")} == inodes and len(inodes) == 2
    tuned.require_whole()


def test_what_changes_the_backbone_later_is_saved_whatever_it_is(tmp_path: Path) -> None:
    """A callback, `set` or a person writes to a variable that no op of the step writes; then all is trained."""
    tuned = Tuned(tmp_path)
    tuned.save(5)
    tuned.backbone[1].assign(tf.ones([10_000]))
    tuned.save(3)
    for value in tuned.backbone[2:]:
        value.assign_add(tf.ones([10_000]))
    tuned.save(1)
    tuned.require_whole()
    for _ in range(3):
        for value in tuned.backbone:
            value.assign_add(tf.ones([10_000]))
        tuned.save()
    tuned.require_whole()
    names = [path.name for path in tuned.rundir.path.glob(f"model.ckpt-{tuned.session.step}.data-*")]
    assert names == [f"model.ckpt-{tuned.session.step}.data-00000-of-00001"]


def test_a_damaged_file_takes_half_of_the_checkpoints_at_most(tmp_path: Path) -> None:
    tuned = Tuned(tmp_path)
    tuned.save(13)
    newest = tuned.rundir.steps()[0]
    shared = tuned.rundir.path / f"model.ckpt-{newest}.data-00001-of-00002"
    content = bytearray(shared.read_bytes())
    content[100] ^= 1
    shared.write_bytes(content)  # in place: under every name of the file

    def is_whole(step: int) -> bool:
        try:
            manifest.verify(manifest.read(tuned.rundir.manifest(step)), tuned.rundir.path)
        except manifest.DamagedError:
            return False
        return True

    whole = [step for step in tuned.rundir.steps() if is_whole(step)]
    assert len(whole) >= 5 and newest - 1 in whole


def test_another_copy_is_written_after_a_day(tmp_path: Path) -> None:
    tuned = Tuned(tmp_path)
    tuned.save(8)
    inodes = {path.stat().st_ino for path in tuned.rundir.path.glob("*-00001-of-00002")}
    for path in tuned.rundir.path.glob("*-00001-of-00002"):
        os.utime(path, (1.0, 1.0))
    tuned.save(2)
    fresh = {path.stat().st_ino for path in tuned.rundir.path.glob("*-00001-of-00002")} - inodes
    assert len(inodes) == 2 and len(fresh) == 1
    tuned.require_whole()


def test_a_restarted_process_shares_the_files_of_the_one_before(tmp_path: Path) -> None:
    before = Tuned(tmp_path)
    before.save(13)
    after = Tuned(tmp_path)
    after.saved = dict(before.saved)
    for _ in range(3):
        after.save()
        assert after.store.written < BACKBONE
    after.require_whole()
    again = Tuned(tmp_path)
    again.saved = dict(after.saved)
    again.backbone[1].assign(tf.ones([10_000]))
    again.save(4)
    again.require_whole()


def test_a_save_that_is_repeated_makes_nothing_a_candidate(tmp_path: Path) -> None:
    frozen, known, prefix = tf.ones([1_000]), unchanged.Unchanged(), tmp_path / "a"

    def save(head: float, earlier: Earlier = no_earlier) -> None:
        values = {"frozen": frozen, "head": tf.fill([4_000], head), "small": tf.constant(1.0)}
        items = [Item(key, "", value) for key, value in values.items()]
        bundle_writer.write(prefix, items, lambda size: None, refuse_nan=True, unchanged=known, earlier=earlier)

    for step in (1.0, 2.0):
        save(step)
    with pytest.raises(OSError, match="full"):
        save(3.0, mock.Mock(side_effect=OSError(errno.ENOSPC, "full")))
    for step in (3.0, 4.0):
        save(step)
        assert bundle_writer.keys_of_unchanged(prefix) == ["frozen"]


@pytest.fixture
def memory(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    with tempfile.TemporaryDirectory(dir="/dev/shm", prefix="trainerd-test-") as folder:
        monkeypatch.setenv(memory_folders.VARIABLE, folder)
        yield Path(folder)


def test_it_is_not_written_to_memory_again_either(tmp_path: Path, memory: Path) -> None:
    tuned = Tuned(tmp_path)
    State(run_id="1f").write(tuned.rundir.state)
    tuned.save(3)
    for _ in range(4):
        tuned.session.run_until(tuned.session.step + 1)
        tuned.store.write_to_memory(tuned.session.snapshot(), ABOUT, lambda size: None)
    shared = sorted(memory.glob("*/*/*/state.data-00001-of-00002"))
    before = [path.stat().st_mtime_ns for path in shared]
    assert len(shared) == 2
    values = [value.numpy().tobytes() for value in [*tuned.backbone, tuned.head]]
    tuned.saved[tuned.session.step + 1] = values
    tuned.save()
    tuned.session.run_until(tuned.session.step + 1)
    tuned.store.write_to_memory(tuned.session.snapshot(), ABOUT, lambda size: None)
    tuned.saved[tuned.session.step] = [value.numpy().tobytes() for value in [*tuned.backbone, tuned.head]]
    assert [path.stat().st_mtime_ns for path in shared] == before
    CheckpointStore(tuned.rundir).clean()
    assert tuned.rundir.steps()[0] == tuned.session.step
    tuned.require_whole()
