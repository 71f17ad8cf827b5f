"""Disks that fill up, memory that grows, the time of the summary: time and figures are passed in."""

from __future__ import annotations

import random
from collections.abc import Callable
from datetime import datetime
from pathlib import Path

import pytest

from trainerd.rundir.paths import RunDirectory
from trainerd.rundir.run_events import Event, EventKind
from trainerd.rundir.state import LastCheckpoint, Phase, State
from trainerd.watch.delivery.notice import Notice
from trainerd.watch.resources import SAMPLE_SECS, Disks, Memory
from trainerd.watch.run_reader import RunView
from trainerd.watch.summary import MOST_RUNS, due_since, summary
from trainerd.watch.trend import Trend

GIB = float(1 << 30)


def told_of_disk(free: Callable[[float], float], hours: float = 24.0, minutes: int = 300) -> list[Notice]:
    now = 0.0
    disks = Disks(hours, lambda path: int(free(now)), lambda path: 7)
    found = []
    for _ in range(minutes):
        found += disks.check({"a": Path("/runs/a"), "b": Path("/runs/b")}, now, 1e9 + now)
        now += SAMPLE_SECS
    return found


def test_a_disk_that_fills_up_within_a_day_is_reported() -> None:
    found = told_of_disk(lambda now: 100 * GIB - now * GIB / 400)
    assert found and len({notice.key for notice in found}) == 1
    assert "GiB an hour" in found[0].body and "the disk of a is full in 9 h 06 min" in found[0].title


@pytest.mark.parametrize(
    "free",
    [
        lambda now: 100 * GIB,
        lambda now: 100 * GIB - now * GIB / 4000,  # in four days
        lambda now: 50 * GIB + now * GIB / 400,
        lambda now: 60 * GIB - (now % 3600) * GIB / 400,  # checkpoints that are deleted again
        lambda now: 60 * GIB - min(now, 3000) * GIB / 400,  # until retention begins
        lambda now: 20 * GIB + random.Random(now).random() * GIB,
    ],
)
def test_other_disks_are_not(free: Callable[[float], float]) -> None:
    assert not told_of_disk(free)


def test_a_run_whose_folder_is_gone_disturbs_nothing() -> None:
    def disk(path: Path) -> int:
        raise FileNotFoundError(path)

    assert Disks(24.0, lambda path: 1, disk).check({"a": Path("/gone")}, 0.0, 0.0) == []
    assert Disks(24.0, disk, lambda path: 1).check({"a": Path("/gone")}, 0.0, 0.0) == []


def told_of_memory(used: Callable[[float], float], minutes: int = 300) -> list[Notice]:
    memory, found = Memory(24.0, lambda: int(16 * GIB)), []
    for minute in range(minutes):
        now = minute * SAMPLE_SECS
        state = State(Phase.TRAINING, create_time=3.0, memory_bytes=int(used(now)))
        found += memory.check({"a": state}, now, now)
    return found


def test_memory_that_grows_without_end_is_reported() -> None:
    found = told_of_memory(lambda now: 2 * GIB + now * GIB / 3600)
    assert found and found[0].at >= 1800 and "more each hour" in found[0].body
    assert len({notice.key for notice in found}) == 1


@pytest.mark.parametrize(
    "used",
    [
        lambda now: 2 * GIB,
        lambda now: 2 * GIB + min(now, 1200) * GIB / 600,  # it begins
        lambda now: 2 * GIB + now * GIB / 360000,  # a little
        lambda now: 2 * GIB + random.Random(now).random() * GIB,
    ],
)
def test_other_memory_is_not(used: Callable[[float], float]) -> None:
    assert not told_of_memory(used)


def test_a_trend_forgets_what_is_long_past() -> None:
    trend = Trend(window_secs=3600.0)
    for minute in range(120):
        trend.add(minute * 60.0, float(min(minute, 50)))
    assert trend.per_sec() is None  # the last hour is level


@pytest.mark.parametrize(
    ("now", "due"),
    [
        (datetime(2026, 3, 2, 8, 0), datetime(2026, 3, 2, 8, 0)),
        (datetime(2026, 3, 2, 7, 59), datetime(2026, 3, 1, 8, 0)),
        (datetime(2026, 3, 2, 23, 0), datetime(2026, 3, 2, 8, 0)),
    ],
)
def test_when_the_summary_is_due(now: datetime, due: datetime) -> None:
    assert due_since("08:00", now) == due


def test_the_summary_reports_each_run() -> None:
    saved = LastCheckpoint(90, "", "schedule", 1.0, 1, 100.0)
    state = State(Phase.TRAINING, step=100, metrics={"loss": 0.5}, last_checkpoint=saved)
    events = [Event(1, EventKind.SAVE_FAILED)] * 2
    runs = [
        RunView(RunDirectory(Path(f"/r/{number}")), state, is_running=True, name=f"run\x1b{number}", events=events)
        for number in range(40)
    ]
    found = summary(runs, datetime(2026, 3, 2, 8, 0), now=160.0)
    assert "40 of 40 runs are training" in found.title and found.key == "summary 2026-03-02"
    assert "step 100, loss 0.5" in found.body and "60 s ago" in found.body and "save failed 2×" in found.body
    assert f"and {40 - MOST_RUNS} more" in found.body and "\x1b" not in found.body and len(found.pictures) == 3
    assert "No run trained" in summary([], datetime(2026, 3, 2, 8, 0), 0.0).body
