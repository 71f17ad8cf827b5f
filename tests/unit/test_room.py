"""A save that finds no room, as the loop sees it: refused, told of, and made as soon as there is room."""

from __future__ import annotations

import math

import pytest

from tests.fake import FakeSession
from tests.unit.conftest import FakeTime, WriterByHand
from tests.unit.test_loop import FakeEvents
from trainerd.checkpoints.store import CheckpointStore
from trainerd.errors import StorageError
from trainerd.loop.checkpointer import Checkpointer
from trainerd.loop.flag import Flag
from trainerd.loop.recorder import Recorder
from trainerd.rundir.paths import RunDirectory
from trainerd.rundir.reporter import Reporter
from trainerd.rundir.state import State


class Disk:
    """Where there is room or not, or nobody knows."""

    def __init__(self) -> None:
        self.free: int | StorageError = 0

    def __call__(self, folder: object) -> int:
        if isinstance(self.free, StorageError):
            raise OSError(116, "Stale file handle")
        return self.free


@pytest.fixture
def disk() -> Disk:
    return Disk()


@pytest.fixture
def writer() -> WriterByHand:
    return WriterByHand()


@pytest.fixture
def reporter() -> Reporter:
    return Reporter(State(), [])


@pytest.fixture
def service(
    rundir: RunDirectory, clock: FakeTime, disk: Disk, writer: WriterByHand, reporter: Reporter
) -> Checkpointer:
    store = CheckpointStore(rundir, free=disk)
    recorder = Recorder(rundir, reporter, FakeEvents())
    return Checkpointer(rundir, store, recorder, reporter, Flag(), writer=writer, timer=clock)


@pytest.fixture
def session(service: Checkpointer) -> FakeSession:
    """One whose save was just refused."""
    made = FakeSession()
    made.run_until(10)
    service.start(made, "schedule")
    return made


def test_it_is_reported_and_tried_again_as_soon_as_there_is_room(
    service: Checkpointer, session: FakeSession, disk: Disk, clock: FakeTime, reporter: Reporter
) -> None:
    assert (
        "are free. Free some space on that file system. The run is saved as soon as there is room."
        in reporter.state.warnings[0]
    )
    service.watch()
    assert service.retry_at > clock.now
    disk.free = 1 << 30
    service.watch()
    assert service.retry_at == clock.now
    service.start(session, "retry")
    assert service.saved_step == 10 and service.retry_at == math.inf and reporter.state.warnings == []


def test_the_last_save_of_a_process_promises_no_other(
    service: Checkpointer, session: FakeSession, reporter: Reporter, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.clear()
    with pytest.raises(StorageError, match=r"Free some space on that file system\.$"):
        service.finish(session, "pause")
    [reported] = [record.getMessage() for record in caplog.records if record.levelname == "ERROR"]
    assert reported.endswith("Free some space on that file system.") and reporter.state.warnings == [reported]


def test_where_nobody_knows_of_room_training_continues(
    service: Checkpointer, session: FakeSession, disk: Disk, clock: FakeTime
) -> None:
    disk.free = StorageError("unknown")
    service.watch()
    assert clock.now < service.retry_at < math.inf


def test_a_save_that_has_begun_meanwhile_is_not_begun_again(
    service: Checkpointer, session: FakeSession, disk: Disk, writer: WriterByHand
) -> None:
    disk.free = 1 << 30
    writer.held = True
    service.start(session, "request")
    service.watch()
    assert service.retry_at == math.inf
    service.start(session, "retry")
    writer.release()
    service.finish_save(session)
    assert service.saved_step == 10 and service.retry_at == math.inf


class Changing(FakeSession):
    """What it saves may change without a step."""

    made = 0

    @property
    def changes(self) -> int:
        return super().changes + self.made


def test_what_was_refused_is_not_taken_for_saved_where_its_step_was_saved_before(
    service: Checkpointer, disk: Disk, reporter: Reporter
) -> None:
    session = Changing()
    session.run_until(10)
    disk.free = 1 << 30
    service.start(session, "schedule")
    session.made, disk.free = 1, 0
    for number in range(2):
        service.start(session, "request", [f"{number}"])
        assert reporter.state.answer is not None
        assert reporter.state.answer.step is None and "are free" in str(reporter.state.answer.error)
    with pytest.raises(StorageError):
        service.finish(session, "pause")
    disk.free = 1 << 30
    service.start(session, "retry")
    assert reporter.state.warnings == []
    session.made, disk.free = 2, 0
    service.start(session, "schedule")
    disk.free = 1 << 30
    service.finish(session, "pause")
    assert reporter.state.last_checkpoint is not None and reporter.state.last_checkpoint.reason == "pause"
