"""The writer of event files: what it voids, and what it does when the disk fails."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from tests.fake import FakeSession
from tests.tensorflow.boards import LOADERS, Points, serving
from tests.tensorflow.chromium import poll
from trainerd.errors import StorageError
from trainerd.events.event_file import EventFile
from trainerd.events.writer import PATIENCE_SECS, EventWriter
from trainerd.history.curves import read_curve, read_events
from trainerd.rundir.paths import RunDirectory
from trainerd.system.threads import Background


class StandIn(FakeSession):
    """A session whose weights, graph and summaries are what a test gives."""

    def __init__(self, step: int = 0) -> None:
        super().__init__()
        self.step = step
        self.kernel = tf.random.stateless_normal([3, 3, 1, 4], [1, 2])

    def weights(self) -> Mapping[str, Any]:
        return {"kernel": self.kernel}

    def write_summaries(self) -> None:
        tf.summary.scalar("own", float(self.step))


class Clock:
    """Seconds that pass when a test says so."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


class Writer(EventWriter):
    """A writer of which a test can wait for what is done in the background."""

    def __init__(self, logdir: Path, **options: Any) -> None:
        logdir.mkdir(exist_ok=True)
        self.background = Background("trainerd-events", patience=PATIENCE_SECS)
        super().__init__(logdir, background=self.background, **options)


def write(logdir: Path, begin: int, points: Mapping[str, Mapping[int, float]], *, close: bool = True) -> Writer:
    """One process's part of a run. Without `close` it is as if it had been killed right after a flush.

    Event files are named by the second in which they are made, and are read in the order of their names. Processes
    take longer than that to start.
    """
    poll(lambda: not list(logdir.glob(f"events.out.tfevents.{int(time.time())}.*")), "the next second")
    writer = Writer(logdir)
    writer.begin(begin, StandIn(begin))
    by_step = sorted((step, tag, value) for tag, values in points.items() for step, value in values.items())
    for step, tag, value in by_step:
        writer.scalars({tag: value}, step, time.time())
    writer.flush()
    assert writer.background.wait(30)
    if close:
        writer.close()
    return writer


def curves_of(logdir: Path, folder: Path, tag: str, step: int) -> dict[str, Points]:
    """What both loaders make of a run, once it has this point; curves that have no point are left out."""
    found = []
    for name, loader in LOADERS.items():
        with serving(logdir, folder / f"{name}.out", loader) as board:
            board.wait_for_step(tag, step)
            found.append({tag: points for tag, points in board.scalars().items() if points})
    fast, slow = found
    assert fast == slow
    return fast


def test_void_points_are_gone_at_once_though_nothing_took_their_place(tmp_path: Path) -> None:
    """Points on a clock fall on other steps the second time, and an evaluation may be an hour away."""
    logdir = tmp_path / "run"
    write(logdir, 0, {"loss": dict.fromkeys(range(7, 200, 7), 0.0), "val": {90: 0.0, 150: 0.0, 190: 0.0}}, close=False)
    write(logdir, 100, {"loss": {133: 1.0, 171: 1.0}})
    curves = curves_of(logdir, tmp_path, "loss", 171)
    assert curves["loss"] == [*((s, 0.0) for s in range(7, 100, 7)), (133, 1.0), (171, 1.0)]
    assert curves["val"] == [(90, 0.0)]


def test_the_curves_go_back_with_a_run_that_resumes_in_the_same_process(tmp_path: Path) -> None:
    logdir = tmp_path / "run"
    writer = write(
        logdir, 0, {"loss": dict.fromkeys(range(7, 200, 7), 0.0), "val_loss": {90: 0.0, 150: 0.0}}, close=False
    )
    writer.begin(100, StandIn(100))
    writer.scalars({"loss": 1.0}, 133, time.time())
    writer.close()
    curves = curves_of(logdir, tmp_path, "loss", 133)
    assert curves == {"loss": [*((s, 0.0) for s in range(7, 100, 7)), (133, 1.0)], "val_loss": [(90, 0.0)]}
    found = read_curve(RunDirectory(logdir), "loss")
    assert [*zip(found.steps, found.values, strict=True)] == curves["loss"]
    assert found.evaluated == {90} and [begin.passed for begin in found.begins] == [0, 196]


@pytest.mark.long
def test_a_run_that_is_killed_again_and_again_before_its_first_checkpoint(tmp_path: Path) -> None:
    logdir = tmp_path / "run"
    for mark in range(4):
        points = {step: float(mark) for step in range(mark + 1, 60 - 5 * mark, 3)}
        write(logdir, 0, {"loss": points, f"only {mark}": points}, close=False)
    curves = curves_of(logdir, tmp_path, "loss", max(points))
    assert curves == {"loss": list(points.items()), "only 3": list(points.items())}


def test_a_walk_back_over_several_processes_voids_all_of_them(tmp_path: Path) -> None:
    """`checkpoint` was edited to go back to step 50, which the first of three processes had written."""
    logdir = tmp_path / "run"
    write(logdir, 0, {"loss": {40: 0.0, 80: 0.0}, "first": {80: 0.0}})
    write(logdir, 100, {"loss": {140: 1.0}, "second": {140: 1.0}})
    write(logdir, 200, {"loss": {240: 2.0}, "third": {240: 2.0}})
    write(logdir, 50, {"loss": {60: 3.0}})
    curves = curves_of(logdir, tmp_path, "loss", 60)
    assert curves == {"loss": [(40, 0.0), (60, 3.0)]}


def test_the_curves_stand_where_older_files_were_deleted(tmp_path: Path) -> None:
    """What voids a point comes first then; it must not make its curve one that cannot be shown."""
    logdir = tmp_path / "run"
    write(logdir, 0, {"loss": {150: 0.0}})
    old = list(logdir.iterdir())
    write(logdir, 100, {"loss": {150: 1.0, 160: 1.0}})
    for path in old:
        path.unlink()
    assert curves_of(logdir, tmp_path, "loss", 160)["loss"] == [(150, 1.0), (160, 1.0)]


def test_a_record_that_was_cut_off_ends_the_reading_of_its_file(tmp_path: Path) -> None:
    write(tmp_path, 0, {"loss": {1: 0.0, 2: 0.0, 3: 0.0}})
    [path] = tmp_path.iterdir()
    whole = path.read_bytes()
    steps = [event.step for event in read_events(path) if event.HasField("summary")]
    assert steps == [1, 2, 3]
    for end in range(len(whole)):
        path.write_bytes(whole[:end])
        found = [event.step for event in read_events(path) if event.HasField("summary")]
        assert found == steps[: len(found)]


def test_nothing_is_written_before_training_has_begun(tmp_path: Path) -> None:
    writer = Writer(tmp_path)
    writer.scalars({"loss": 1.0}, 1, 0.0)
    writer.summaries(StandIn())
    writer.flush()
    writer.close()
    assert list(tmp_path.iterdir()) == []


def test_a_boundary_that_comes_twice_gives_one_point(tmp_path: Path) -> None:
    writer, session = Writer(tmp_path), StandIn(5)
    writer.begin(0, session)
    for _ in range(3):
        writer.scalars({"loss": 1.0}, 5, 0.0)
        writer.summaries(session)
    writer.scalars({"loss": 1.0, "other": 1.0}, 5, 0.0)
    writer.close()
    [path] = tmp_path.iterdir()
    tags = [value.tag for event in read_events(path) for value in event.summary.value]
    assert sorted(tags) == ["kernels/kernel", "loss", "other", "own", "weights/kernel"]


def test_a_sync_puts_on_disk_what_was_written_and_waits_for_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    synced: list[set[tuple[str, int]]] = []
    monkeypatch.setattr("trainerd.events.event_file.fsync_file", lambda path: synced.append(written(tmp_path)))
    writer = Writer(tmp_path)
    writer.sync()
    assert not synced, "training has not started, so no file exists"
    writer.begin(0, StandIn())
    writer.scalars({"loss": 1.0}, 5, 0.0)
    writer.sync()
    assert len(synced) == 1 and ("loss", 5) in synced[0]
    writer.close()


def test_calls_after_the_close_do_nothing(tmp_path: Path) -> None:
    writer = write(tmp_path, 0, {"loss": {1: 0.0}})
    writer.scalars({"loss": 1.0}, 2, 0.0)
    writer.summaries(StandIn())
    writer.flush()
    writer.close()
    assert len(list(tmp_path.iterdir())) == 1


def written(folder: Path) -> set[tuple[str, int]]:
    """The tag and the step of every value in a folder."""
    return {(v.tag, e.step) for path in folder.iterdir() for e in read_events(path) for v in e.summary.value}


def storage_errors(writer: Writer, session: StandIn, rounds: int = 3) -> int:
    """Call everything for a few steps, each after what came before is done; how many calls raised StorageError."""
    failed = 0
    calls: tuple[Callable[[], None], ...] = (
        lambda: writer.scalars({"loss": 1.0}, session.step, time.time()),
        lambda: writer.summaries(session),
        writer.flush,
    )
    for _ in range(rounds):
        session.step += 1
        for call in calls:
            try:
                call()
            except StorageError:
                failed += 1
            assert writer.background.wait(30)
    return failed


def test_a_run_directory_that_was_removed_is_a_storage_error_and_the_curves_continue_when_it_is_back(
    tmp_path: Path,
) -> None:
    logdir, clock, session = tmp_path / "run", Clock(), StandIn(5)
    writer = Writer(logdir, timer=clock)
    writer.begin(0, session)
    assert storage_errors(writer, session) == 0
    shutil.rmtree(logdir)
    session.step = 100
    assert storage_errors(writer, session) >= 1
    clock.now += 600
    assert storage_errors(writer, session) >= 1
    assert not logdir.exists(), "a run that somebody has moved away gets no second folder"
    logdir.mkdir()
    clock.now += 600
    session.step = 900
    assert storage_errors(writer, session) <= 1, "at most the error of the call before"
    writer.close()
    assert ("loss", 901) in written(logdir)


# Runs with a small disk of its own, that no other process sees.
FULL_DISK = """
import os, subprocess, sys, time
from pathlib import Path
disk = Path(sys.argv[1])
subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "small", str(disk)], check=True)
from tests.tensorflow.test_event_writer import Clock, StandIn, Writer, storage_errors, written

clock, session = Clock(), StandIn(5)
writer = Writer(disk, timer=clock)
writer.begin(0, session)
assert storage_errors(writer, session) == 0
with open(disk / "filler", "wb", buffering=0) as filler:
    try:
        while filler.write(bytes(512)):
            pass
    except OSError as error:
        print(error)
session.step = 100
failed = storage_errors(writer, session, 20)
for _ in range(5):
    clock.now += 600
    failed += storage_errors(writer, session)
print("failed", failed)
assert failed >= 1
(disk / "filler").unlink()
clock.now += 600
session.step = 900
storage_errors(writer, session)
writer.close()
print("files", [(p.name, p.stat().st_size) for p in sorted(disk.iterdir())])
assert all(p.stat().st_size for p in disk.iterdir())
assert {("loss", 6), ("loss", 901), ("own", 901), ("weights/kernel", 901)} <= written(disk), written(disk)
print("passed")
"""


@pytest.mark.long
def test_a_full_disk_is_a_storage_error_and_the_curves_continue_when_there_is_room(tmp_path: Path) -> None:
    unshare = ["unshare", "--mount", *([] if os.geteuid() == 0 else ["--map-root-user"])]
    command = [*unshare, sys.executable, "-c", FULL_DISK, str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0 and "passed" in done.stdout, done.stdout + done.stderr


def test_what_cannot_be_drawn_does_not_end_the_curves(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    session = StandIn(3)
    session.kernel = tf.zeros([0, 3, 1, 4])
    writer = Writer(tmp_path)
    writer.begin(0, session)
    assert storage_errors(writer, session, 1) == 1
    writer.scalars({"loss": 1.0}, 4, time.time())
    writer.close()
    assert "an error of trainerd's own" in caplog.text
    assert ("loss", 4) in written(tmp_path)


def test_an_event_file_that_somebody_removes_is_followed_by_a_new_one(tmp_path: Path) -> None:
    clock, session = Clock(), StandIn(5)
    writer = Writer(tmp_path, timer=clock)
    writer.begin(0, session)
    assert storage_errors(writer, session) == 0
    [path] = tmp_path.iterdir()
    path.unlink()
    assert storage_errors(writer, session) >= 1
    clock.now += 600
    session.step = 900
    storage_errors(writer, session)
    writer.close()
    assert ("loss", 901) in written(tmp_path)


def test_a_histogram_of_many_weights_is_one_of_some_of_them(tmp_path: Path) -> None:
    """From all over the matrix: its columns have values of their own."""
    session = StandIn(3)
    session.kernel = tf.tile(tf.range(1024.0)[None], [3 * 1024, 1])
    writer = Writer(tmp_path)
    writer.begin(0, session)
    writer.summaries(session)
    writer.close()
    [path] = tmp_path.iterdir()
    values = [each for event in read_events(path) for each in event.summary.value if each.tag == "weights/kernel"]
    buckets = tf.make_ndarray(values[0].tensor)
    assert buckets[0, 0] == 0.0 and buckets[-1, 1] == 1023.0
    assert buckets[:, 2].sum() == 2**20 and buckets[:, 2].std() < 0.02 * buckets[:, 2].mean()


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_weights_that_are_no_numbers_are_a_storage_error_at_most(tmp_path: Path, value: float) -> None:
    session = StandIn(3)
    session.kernel = tf.fill([3, 3, 1, 4], value)
    writer = Writer(tmp_path)
    writer.begin(0, session)
    storage_errors(writer, session, 1)
    writer.scalars({"loss": 1.0}, 4, time.time())
    writer.close()
    assert ("loss", 4) in written(tmp_path)


def test_the_jobs_own_error_in_its_summaries_is_not_taken_for_the_disks(tmp_path: Path) -> None:
    class Broken(StandIn):
        def write_summaries(self) -> None:
            raise ZeroDivisionError

    writer = Writer(tmp_path)
    writer.begin(0, Broken(1))
    with pytest.raises(ZeroDivisionError):
        writer.summaries(Broken(1))
    writer.close()


def test_while_the_disk_hangs_nothing_piles_up_and_the_loop_continues(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    session, disk, flush = StandIn(5), threading.Event(), EventFile.flush

    def hang(file: EventFile) -> None:
        assert disk.wait(60)
        flush(file)

    monkeypatch.setattr(EventFile, "flush", hang)
    monkeypatch.setattr("trainerd.events.writer.PATIENCE_SECS", 0.1)
    monkeypatch.setattr("trainerd.events.writer.CLOSE_SECS", 0.1)
    background = Background("hangs", bound=10, patience=0.1)
    writer = EventWriter(tmp_path, background=background)
    writer.begin(0, session)
    before = time.monotonic()
    for _ in range(5):
        with pytest.raises(StorageError, match="takes too long"):
            writer.summaries(session)
    for step in range(1000):
        try:
            writer.scalars({"loss": 1.0}, step, 0.0)
        except StorageError as error:
            assert "takes too long" in str(error)
    assert not background.submit(lambda: None), "the queue takes no more than its ten"
    assert time.monotonic() - before < 10
    disk.set()
    assert poll(lambda: background.wait(1), "the queue to be empty")
    writer.scalars({"loss": 1.0}, 2000, 0.0)
    writer.close()
    assert ("loss", 2000) in written(tmp_path)


def test_a_disk_that_hangs_at_the_end_does_not_keep_the_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk, end = threading.Event(), EventFile.close

    def hang(file: EventFile) -> None:
        assert disk.wait(60)
        end(file)

    monkeypatch.setattr(EventFile, "close", hang)
    monkeypatch.setattr("trainerd.events.writer.CLOSE_SECS", 0.1)
    writer = Writer(tmp_path)
    writer.begin(0, StandIn())
    with pytest.raises(StorageError, match="takes too long"):
        writer.close()
    disk.set()


def test_the_background_keeps_the_first_error_raises_it_once_and_continues() -> None:
    done: list[int] = []

    def fail(text: str) -> None:
        raise ValueError(text)

    background = Background("test")
    background.submit(lambda: fail("first"))
    background.submit(lambda: fail("second"))
    background.submit(lambda: done.append(1))
    assert background.wait(30)
    with pytest.raises(ValueError, match="first"):
        background.raise_first_error()
    background.raise_first_error()
    assert done == [1]
    assert background.close(30)
