"""Small files of a run that several processes write at once: nothing that one of them wrote is lost."""

from __future__ import annotations

import itertools
import multiprocessing
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.fake import FakeSnapshot
from tests.unit.conftest import FakeTime
from trainerd.checkpoints import evaluations, manifest
from trainerd.checkpoints.manifest import About
from trainerd.checkpoints.store import CheckpointStore
from trainerd.errors import StorageError
from trainerd.rundir import run_events, shared_files
from trainerd.rundir.paths import RunDirectory
from trainerd.rundir.run_events import EventKind
from trainerd.system.durable_files import remove_temporaries, write_atomic
from trainerd.watch.event_reader import EventReader

EACH = 30


def in_processes(*functions: Callable[[], None]) -> None:
    context = multiprocessing.get_context("fork")
    processes = [context.Process(target=function) for function in functions]
    for process in processes:
        process.start()
    for process in processes:
        process.join(60)
        assert process.exitcode == 0


def test_evaluations_of_one_checkpoint_at_once_are_all_kept(rundir: RunDirectory) -> None:
    CheckpointStore(rundir).publish(FakeSnapshot(5, 10.0), About("test"))
    checkpoint = manifest.read(rundir.manifest(5))

    def evaluate(who: str) -> Callable[[], None]:
        def record() -> None:
            for number in range(EACH):
                evaluations.record(rundir, checkpoint, f"{who}{number}", {"loss": number}, 1.0, 1.0)
                evaluations.mark_exported(rundir, checkpoint, f"{who}{number}", ["a"])

        return record

    in_processes(evaluate("one"), evaluate("two"))
    found = evaluations.read(rundir, checkpoint).by_entry
    assert sorted(found) == sorted(f"{who}{number}" for who in ("one", "two") for number in range(EACH))
    assert all(each.exported == ["a"] for each in found.values())


def test_no_event_is_lost_while_the_file_is_shortened(rundir: RunDirectory, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run_events, "LIMIT_BYTES", 25_000)

    def add(kind: EventKind, said: str) -> Callable[[], None]:
        def add_all() -> None:
            for step in range(EACH):
                run_events.add(rundir, kind, said, step=step)
            run_events.flush(rundir)

        return add_all

    in_processes(add(EventKind.PAUSE, ""), add(EventKind.EVALUATION, "x" * 400), add(EventKind.EVALUATION, "x" * 400))
    paused = [event.step for event in run_events.read(rundir) if event.kind is EventKind.PAUSE]
    assert paused == list(range(EACH)), "evaluations are dropped first"
    assert rundir.events.stat().st_size < 40_000


def test_an_event_waits_for_another_writer_and_delays_nobody(rundir: RunDirectory) -> None:
    with shared_files.writing(rundir):
        run_events.add(rundir, EventKind.PAUSE, step=1)
        assert run_events.read(rundir) == []
    run_events.add(rundir, EventKind.PAUSE, step=2)
    assert [event.step for event in run_events.read(rundir)] == [1, 2]
    with shared_files.writing(rundir):
        run_events.add(rundir, EventKind.PAUSE, step=3)
    run_events.flush(rundir)
    assert [event.step for event in run_events.read(rundir)] == [1, 2, 3]


def left_by_a_kill(path: Path) -> Path:
    left = path.with_name(f".{path.name}.0123456789abcdef.tmp")
    left.touch()
    os.utime(left, (1.0, 1.0))
    return left


def test_a_start_removes_what_killed_writes_have_left_in_earlier_lines(rundir: RunDirectory) -> None:
    rundir.line(3).mkdir(parents=True)
    left = left_by_a_kill(rundir.line(3) / "line.json")
    (rundir.line(3) / "line.json").touch()
    CheckpointStore(rundir).clean()
    assert not left.exists() and (rundir.line(3) / "line.json").exists()


def test_what_killed_writes_have_left_of_one_file_is_removed(tmp_path: Path) -> None:
    path, other = tmp_path / "fork.toml", tmp_path / "other.toml"
    left, anothers = left_by_a_kill(path), left_by_a_kill(other)
    (tmp_path / ".fork.toml.swp").touch()
    is_written = tmp_path / ".fork.toml.ff.tmp"
    is_written.touch()
    remove_temporaries(tmp_path, of=path.name)
    assert not left.exists() and anothers.exists() and is_written.exists() and (tmp_path / ".fork.toml.swp").exists()


def test_a_start_removes_no_file_that_a_command_is_writing(rundir: RunDirectory) -> None:
    left = rundir.path / ".state.json.1.tmp"
    left.touch()
    os.utime(left, (1.0, 1.0))

    def write() -> None:
        for _ in range(EACH):
            write_atomic(rundir.path / "small.json", b"{}")

    def clean() -> None:
        for _ in range(EACH):
            CheckpointStore(rundir).clean()

    in_processes(write, write, clean, clean)
    assert (rundir.path / "small.json").exists() and not left.exists()


def test_a_writer_that_never_ends_is_named(rundir: RunDirectory) -> None:
    clock = FakeTime()

    def sleep(seconds: float) -> None:
        clock.now += seconds

    with (
        shared_files.writing(rundir),
        pytest.raises(StorageError, match=r"has held .*\.writing for 3 s"),
        shared_files.writing(rundir, 3.0, timer=clock, sleep=sleep),
    ):
        pass
    with shared_files.writing(rundir, 0.0):
        pass


def test_a_large_events_file_is_read_from_its_end(rundir: RunDirectory) -> None:
    """As one that a group's program has appended to, whose owner never trains again."""
    line = '{"at": 1.0, "kind": "change", "step": %d, "said": "' + "x" * 300 + '"}\n'
    text = "".join(line % step for step in itertools.islice(itertools.count(), 5000))
    rundir.events.write_text(text)
    events = run_events.read(rundir)
    assert events[-1].step == 4999 and len(events) > 1000
    reader = EventReader(rundir)
    reader.read()
    assert [event.step for event in reader.events][-1] == 4999
    with Path(rundir.events).open("a") as file:
        file.write(line % 5000)
    reader.read()
    assert reader.events[-1].step == 5000 and len(reader.events) == len({event.step for event in reader.events})
