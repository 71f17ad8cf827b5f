"""Schedules and services: tables of (last, now) to due."""

from __future__ import annotations

import math

import pytest

from trainerd.loop.schedule import Schedule, ScheduleMark, Service


def service(schedule: Schedule, last: ScheduleMark) -> Service:
    return Service("s", lambda: None, schedule, last)


@pytest.mark.parametrize(
    ("schedule", "last", "now", "due"),
    [
        (Schedule(), ScheduleMark(0, 0), ScheduleMark(10**9, 1e9), False),
        (Schedule(secs=10), ScheduleMark(0, 100.0), ScheduleMark(5, 109.9), False),
        (Schedule(secs=10), ScheduleMark(0, 100.0), ScheduleMark(5, 110.0), True),
        (Schedule(steps=100), ScheduleMark(0, 0), ScheduleMark(99, 1e6), False),
        (Schedule(steps=100), ScheduleMark(0, 0), ScheduleMark(100, 0), True),
        (Schedule(steps=100), ScheduleMark(150, 0), ScheduleMark(199, 0), False),
        (Schedule(steps=100), ScheduleMark(150, 0), ScheduleMark(200, 0), True),
        (Schedule(steps=100), ScheduleMark(100, 0), ScheduleMark(100, 0), False),
        (Schedule(secs=10, steps=100), ScheduleMark(0, 0), ScheduleMark(1, 11), True),
        (Schedule(secs=10, steps=100), ScheduleMark(0, 0), ScheduleMark(100, 1), True),
    ],
)
def test_due(schedule: Schedule, last: ScheduleMark, now: ScheduleMark, due: bool) -> None:
    assert service(schedule, last).is_due(now) is due


def test_a_service_that_ran_is_due_after_its_interval_again() -> None:
    s = service(Schedule(secs=10), ScheduleMark(0, 0))
    s.run(ScheduleMark(7, 12.5))
    assert s.last == ScheduleMark(7, 12.5)
    assert (s.next_time, s.next_step) == (22.5, math.inf)


def test_never_is_infinite() -> None:
    s = service(Schedule(), ScheduleMark(3, 4))
    assert (s.next_time, s.next_step) == (math.inf, math.inf)
