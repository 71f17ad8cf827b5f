"""Schedules and services: tables of (last, now) to due."""

from __future__ import annotations

import math

import pytest

from trainerd.loop.schedule import Mark, Schedule, Service


def service(schedule: Schedule, last: Mark) -> Service:
    return Service("s", lambda: None, schedule, last)


@pytest.mark.parametrize(
    ("schedule", "last", "now", "due"),
    [
        (Schedule(), Mark(0, 0), Mark(10**9, 1e9), False),
        (Schedule(secs=10), Mark(0, 100.0), Mark(5, 109.9), False),
        (Schedule(secs=10), Mark(0, 100.0), Mark(5, 110.0), True),
        (Schedule(steps=100), Mark(0, 0), Mark(99, 1e6), False),
        (Schedule(steps=100), Mark(0, 0), Mark(100, 0), True),
        (Schedule(steps=100), Mark(150, 0), Mark(199, 0), False),
        (Schedule(steps=100), Mark(150, 0), Mark(200, 0), True),
        (Schedule(steps=100), Mark(100, 0), Mark(100, 0), False),
        (Schedule(secs=10, steps=100), Mark(0, 0), Mark(1, 11), True),
        (Schedule(secs=10, steps=100), Mark(0, 0), Mark(100, 1), True),
    ],
)
def test_due(schedule: Schedule, last: Mark, now: Mark, due: bool) -> None:
    assert service(schedule, last).is_due(now) is due


def test_a_service_that_ran_is_due_after_its_interval_again() -> None:
    s = service(Schedule(secs=10), Mark(0, 0))
    s.run(Mark(7, 12.5))
    assert s.last == Mark(7, 12.5)
    assert (s.next_time, s.next_step) == (22.5, math.inf)


def test_never_is_infinite() -> None:
    s = service(Schedule(), Mark(3, 4))
    assert (s.next_time, s.next_step) == (math.inf, math.inf)
