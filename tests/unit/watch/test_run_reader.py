"""What the watcher reads of a run: as little as there is to read, and nothing that harms it."""

from __future__ import annotations

import itertools
import math
import os
import struct
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import IO

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tensorboard.compat.proto.event_pb2 import Event, SessionLog
from tensorboard.compat.proto.summary_pb2 import Summary

from tests.unit.test_rollback import write
from tests.unit.watch.conftest import MakeRun
from trainerd.history.curves import CurveFollower, extremes, read_curve
from trainerd.history.lines import Line
from trainerd.history.story import MomentKind
from trainerd.history.timeline import TimelineEntry, present_line
from trainerd.rundir import run_events
from trainerd.rundir.paths import RunDirectory
from trainerd.rundir.state import Phase, State
from trainerd.system.regular_files import open_to_read, read_regular
from trainerd.watch.run_reader import RunDetail, Runs


def point(step: int, value: float, padding: int = 0, at: float = 0.0) -> bytes:
    """The record of one point."""
    values = [Summary.Value(tag="x" * padding), Summary.Value(tag="loss", simple_value=value)]
    return record(Event(wall_time=at, step=step, summary=Summary(value=values)))


def start(step: int, at: float = 0.0) -> bytes:
    """The record with which a process begins after a step."""
    return record(Event(wall_time=at, step=step + 1, session_log=SessionLog(status=SessionLog.START)))


def record(event: Event) -> bytes:
    """An event as the file has it. Checksums are not looked at."""
    data: bytes = event.SerializeToString()
    return struct.pack("<QI", len(data), 0) + data + b"\0" * 4


def append(rundir: RunDirectory, content: bytes, name: str = "1") -> None:
    with (rundir.path / f"events.out.tfevents.{name}").open("ab") as file:
        file.write(content)


def test_a_file_is_read_again_only_when_it_has_changed(
    make_run: MakeRun, runs: Runs, monkeypatch: pytest.MonkeyPatch
) -> None:
    rundir = make_run(step=1)
    reads: list[Path] = []

    def noting(path: Path) -> bytes:
        reads.append(path)
        return read_regular(path)

    def opening(path: Path) -> IO[bytes]:
        reads.append(path)
        return open_to_read(path)

    run_events.add(rundir, run_events.EventKind.PAUSE)
    monkeypatch.setattr("trainerd.rundir.state.read_regular", noting)
    monkeypatch.setattr("trainerd.watch.event_reader.open_to_read", opening)
    for _ in range(3):
        runs.read()
    assert reads == [rundir.state, rundir.events]
    State(Phase.PAUSED, step=2).write(rundir.state)
    [run] = runs.read()
    assert run.state is not None and run.state.step == 2 and reads[2:] == [rundir.state]


def test_the_page_takes_what_the_watcher_has_just_seen(make_run: MakeRun) -> None:
    rundir, now = make_run(step=1), [0.0]
    runs = Runs(lambda: [rundir.path], timer=lambda: now[0])
    runs.read()
    State(Phase.PAUSED, step=2).write(rundir.state)
    steps = []
    for now[0] in (1.5, 2.5):
        [run] = runs.seen()
        steps.append(run.state and run.state.step)
    assert steps == [1, 2]


def test_a_run_of_another_machine_runs_while_it_writes_its_state(make_run: MakeRun, runs: Runs) -> None:
    rundir, found = make_run(), []
    for phase, age in ((Phase.TRAINING, 60), (Phase.TRAINING, 4000), (Phase.PAUSED, 60)):
        State(phase, 1, host="another", at=time.time() - age).write(rundir.state)
        [run] = runs.read()
        assert run.state is not None
        found.append((run.is_running, run.state.phase_now(run.is_running)))
    assert found == [(True, "training"), (False, "killed"), (False, "paused")]


def test_a_run_runs_while_its_process_is_there(trained: RunDirectory, runs: Runs) -> None:
    assert [run.is_running for run in runs.read()] == [True]
    trained.lock.write_text(trained.lock.read_text().replace(str(os.getpid()), "1"))
    assert [run.is_running for run in runs.read()] == [False]
    trained.lock.write_text("[" * 100_000)
    assert [run.is_running for run in runs.read()] == [False]


def test_counts_of_events_never_fall(make_run: MakeRun, runs: Runs) -> None:
    rundir = make_run()
    for _ in range(2):
        run_events.add(rundir, run_events.EventKind.START, at=1.0)
    run_events.add(rundir, run_events.EventKind.KILL, at=3.0)
    assert runs.read()[0].event_counts == {"start": 2, "killed": 1}
    lines = rundir.events.read_bytes().splitlines()
    rundir.events.write_bytes(lines[-1])  # its older half was dropped
    run_events.add(rundir, run_events.EventKind.START, at=2.0)
    [run] = runs.read()
    assert run.event_counts == {"start": 3, "killed": 1} and len(run.events) == 2


def test_a_run_that_cannot_be_read_says_so_and_the_others_are_there(make_run: MakeRun, runs: Runs) -> None:
    planted = make_run("planted")
    planted.state.rename(planted.path / "elsewhere")
    planted.state.symlink_to(planted.path / "elsewhere")
    make_run("sound", step=3)
    first, second = runs.read()
    assert first.state is None and "symbolic link" in first.unread
    assert second.state is not None and not second.unread


def test_runs_come_and_go(make_run: MakeRun, runs: Runs) -> None:
    first = make_run("one")
    make_run("two")
    assert [run.name for run in runs.read()] == ["one", "two"]
    first.path.rename(first.path.with_name("three"))
    assert [run.name for run in runs.read()] == ["three", "two"] and runs.detail(first.path) is None


@given(
    st.lists(
        st.tuples(st.sampled_from("11122"), st.booleans(), st.integers(0, 50), st.floats(-9, 9, width=32)), max_size=40
    ),
    st.lists(st.integers(1, 400), max_size=8),
    st.integers(1, 9),
)
def test_what_is_followed_is_what_is_read_at_once(
    tmp_path_factory: pytest.TempPathFactory,
    told: list[tuple[str, bool, int, float]],
    cuts: list[int],
    at_once: int,
) -> None:
    """However the file grows, in the middle of a record too, and however little is read at a time."""
    rundir = RunDirectory(tmp_path_factory.mktemp("run"))
    follower = CurveFollower(rundir, ["loss"], most=1000, at_once=at_once)
    for name in "12":
        content = b"".join(start(s) if is_start else point(s, v) for n, is_start, s, v in told if n == name)
        places = sorted({0, *(cut for cut in cuts if cut < len(content)), len(content)})
        for begin, end in itertools.pairwise(places):
            append(rundir, content[begin:end], name)
            follower.read()
        while not follower.is_complete:
            follower.read()
    assert follower.read() == {"loss": read_curve(rundir, "loss")}


@pytest.mark.parametrize(
    ("values", "size", "kept"),
    [
        ([1.0, 9.0, 5.0, 2.0, 4.0, 3.0], 3, [0, 1, 3, 4]),  # the lowest and the highest of each three
        ([9.0, 1.0, 5.0, 7.0], 3, [0, 1, 3]),  # in their order, and a part that is not full
        ([2.0, 2.0, 2.0], 3, [0, 2]),
        ([math.nan, 3.0, math.inf, 1.0, 2.0], 5, [1, 3]),
        ([math.nan, math.inf, math.nan], 3, [0, 2]),
        ([], 4, []),
    ],
)
def test_the_extremes_of_each_part_are_kept(values: list[float], size: int, kept: list[int]) -> None:
    assert extremes(values, size) == kept


def test_a_long_curve_keeps_its_spikes_and_ends_with_its_newest_point(rundir: RunDirectory) -> None:
    follower = CurveFollower(rundir, ["loss"], most=100)
    spikes = {1234: 50.0, 5678: -50.0, 9876: 60.0}
    for first in range(0, 10_000, 1000):
        steps = range(first, first + 1000)
        append(rundir, b"".join(point(step, spikes.get(step, 6.0 * (step % 7 == 0))) for step in steps))
        curve = follower.read()["loss"]
        assert len(curve.steps) < 200 and curve.steps == sorted(set(curve.steps)) and curve.steps[-1] == steps[-1]
    found = dict(zip(curve.steps, curve.values, strict=True))
    assert spikes.items() <= found.items() and set(found.values()) - {0.0, 6.0} <= {*spikes.values(), curve.values[-1]}
    assert max(after - before for before, after in itertools.pairwise(curve.steps)) <= 2 * 128  # of two parts
    assert abs(sum(curve.means) / len(curve.means) - 6 / 7) < 0.2  # the mean of all values, not that of the extremes


def test_a_curve_is_read_again_when_the_run_went_back_or_a_file_has_changed(rundir: RunDirectory) -> None:
    append(rundir, start(0, at=1.0) + point(10, 1.0, at=1.0) + point(20, 2.0, at=1.0))
    follower = CurveFollower(rundir, ["loss"])
    assert follower.read()["loss"].steps == [10, 20]
    Line(1, began_at=10, ended_at=20, at=5.0, target=10).write(rundir)
    append(rundir, start(10, at=6.0) + point(15, 3.0, at=6.0), "2")
    assert follower.read()["loss"].steps == [10, 15]
    file = rundir.path / "events.out.tfevents.2"
    file.write_bytes(point(12, 3.0))
    assert follower.read()["loss"].steps == [10, 12]
    file.unlink()
    assert follower.read() == {"loss": read_curve(rundir, "loss")}


def test_pictures_are_passed_over(rundir: RunDirectory) -> None:
    append(rundir, point(1, 1.0) + point(2, 2.0, padding=1 << 20) + point(3, 3.0))
    assert CurveFollower(rundir, ["loss"]).read()["loss"].steps == [1, 3]


def test_a_detail_has_checkpoints_and_what_happened(make_run: MakeRun, runs: Runs) -> None:
    rundir = make_run(metrics={"mse": 1.0})
    write(rundir, 20)
    run_events.add(rundir, run_events.EventKind.KILL, "it ended", step=25)
    append(rundir, record(Event(step=20, summary=Summary(value=[Summary.Value(tag="mse", simple_value=2.0)]))))
    runs.read()
    detail = runs.detail(rundir.path)
    assert detail is not None and detail.tag == "mse" and detail.curves["mse"].steps == [20] and detail.is_complete
    assert [entry.step for entry in detail.checkpoints] == [20]
    assert [(moment.kind, moment.step) for moment in detail.moments] == [
        (MomentKind.CHECKPOINT, 20),
        (MomentKind.CRASH, 25),
    ]
    write(rundir, 30)
    detail = runs.detail(rundir.path)
    assert detail is not None and [entry.step for entry in detail.checkpoints] == [20, 30]
    rundir.manifest(30).write_text("{")
    detail = runs.detail(rundir.path)
    assert detail is not None and [entry.reason for entry in detail.checkpoints][1] == ""


def test_a_detail_that_takes_long_keeps_no_look_and_no_other_detail_waiting(
    make_run: MakeRun, runs: Runs, monkeypatch: pytest.MonkeyPatch
) -> None:
    logdir = make_run(metrics={"loss": 1.0})
    write(logdir, 20)
    runs.read()
    found: list[RunDetail | None] = []

    def take_long(rundir: RunDirectory) -> list[TimelineEntry]:
        looking = threading.Thread(target=runs.read, daemon=True)
        looking.start()
        looking.join(10)
        assert not looking.is_alive()
        found.append(runs.detail(logdir.path))
        return present_line(rundir)

    monkeypatch.setattr("trainerd.watch.run_reader.present_line", take_long)
    detail = runs.detail(logdir.path)
    assert detail is not None and len(detail.checkpoints) == 1 and detail.is_complete
    [meanwhile] = found
    assert meanwhile is not None and not meanwhile.is_complete, "the page asks again"


def test_the_watcher_reads_curves_without_tensorflow(rundir: RunDirectory) -> None:
    append(rundir, point(1, 1.0))
    code = (
        "import sys, pathlib, trainerd.watch.page.server\n"
        "from trainerd.watch.run_reader import Runs\n"
        "runs = Runs(lambda: [pathlib.Path(sys.argv[1])])\n"
        "assert runs.detail(runs.read()[0].rundir.path).curves['loss'].steps == [1]\n"
        "bad = [m for m in ('tensorflow', 'keras', 'numpy') if m in sys.modules]\n"
        "assert not bad, bad\n"
    )
    subprocess.run([sys.executable, "-c", code, str(rundir.path)], check=True)
