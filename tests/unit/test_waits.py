"""Waits and due times do not depend on the wall clock, which may be set at any moment."""

from __future__ import annotations

import time

import pytest

from tests.unit.conftest import FakeTime
from trainerd.programs.estimator.waiting import Waiting
from trainerd.system.elapsed import Elapsed


def test_elapsed_counts_on_after_the_wall_clock_is_set() -> None:
    wall, timer = FakeTime(1e9), FakeTime(50.0)
    elapsed = Elapsed(wall, timer)
    assert elapsed.secs_since(1e9 - 30) == 30
    wall.now -= 86400
    timer.now += 12
    assert elapsed.secs_since(1e9 - 30) == 42
    wall.now += 2 * 86400
    assert elapsed.secs_since(1e9 - 30) == 42


def test_elapsed_takes_a_time_in_the_future_as_now() -> None:
    wall, timer = FakeTime(1e9), FakeTime(50.0)
    elapsed = Elapsed(wall, timer)
    assert elapsed.secs_since(1e9 + 3600) == 0
    timer.now += 600
    assert elapsed.secs_since(1e9 + 3600) == 600


def test_sleep_ends_in_its_time_although_the_clock_is_set_back(monkeypatch: pytest.MonkeyPatch) -> None:
    wall, timer = FakeTime(1e9), FakeTime(50.0)

    def sleep(secs: float) -> None:
        wall.now -= 3600
        timer.sleep(secs)
        assert timer.now < 100, "it does not end"

    monkeypatch.setattr(time, "time", wall)
    monkeypatch.setattr(time, "monotonic", timer)
    monkeypatch.setattr(time, "sleep", sleep)
    Waiting().sleep(2.0)
    assert timer.now == pytest.approx(52.0)
