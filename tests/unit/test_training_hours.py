"""The hours in which a run may train: over midnight, in time zones, and when clocks change."""

from __future__ import annotations

import os
from datetime import UTC, date, datetime, timedelta, tzinfo
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from trainerd.agent.when.local_time import LOCAL, local_time
from trainerd.config.training_hours import DAYS, TrainingHours

BERLIN = ZoneInfo("Europe/Berlin")
# Each with a day on which its clocks change: by an hour, by half an hour, at midnight, and by a whole day.
CHANGES = [
    ("Europe/Berlin", date(2026, 3, 29)),
    ("Europe/Berlin", date(2026, 10, 25)),
    ("America/New_York", date(2026, 3, 8)),
    ("America/New_York", date(2026, 11, 1)),
    ("Australia/Lord_Howe", date(2026, 4, 5)),
    ("Australia/Lord_Howe", date(2026, 10, 4)),
    ("America/Havana", date(2026, 3, 8)),
    ("America/Havana", date(2026, 11, 1)),
    ("Africa/Cairo", date(2026, 4, 24)),
    ("Pacific/Apia", date(2011, 12, 30)),
    ("Asia/Kathmandu", date(2026, 3, 29)),
]


def berlin(text: str) -> datetime:
    return datetime.fromisoformat(text).replace(tzinfo=BERLIN)


def state(hours: str | list[str] | None, days: str | list[str] | None, at: str) -> tuple[bool, str]:
    found = TrainingHours.parse(hours, days).state(berlin(at))
    return found.is_open, f"{found.until:%a %H:%M}" if found.until is not None else "never"


@pytest.mark.parametrize(
    ("hours", "days", "at", "expected"),
    [
        # 2026-11-27 is a Friday.
        ("20:00-08:00", "mon-fri", "2026-11-27T19:59:59.999", (False, "Fri 20:00")),
        ("20:00-08:00", "mon-fri", "2026-11-27T20:00", (True, "Sat 08:00")),
        ("20:00-08:00", "mon-fri", "2026-11-28T07:59", (True, "Sat 08:00")),
        ("20:00-08:00", "mon-fri", "2026-11-28T08:00", (False, "Mon 20:00")),
        ("20:00-08:00", "mon-fri", "2026-11-30T07:00", (False, "Mon 20:00")),
        (["12:00-13:00", "20:00-08:00"], None, "2026-11-27T10:00", (False, "Fri 12:00")),
        (["20:00-08:00", "07:00-09:30"], None, "2026-11-27T21:00", (True, "Sat 09:30")),
        (None, "sat,sun", "2026-11-27T23:00", (False, "Sat 00:00")),
        (None, "sat,sun", "2026-11-28T00:00", (True, "Mon 00:00")),
        (None, ["mon-thu", "SAT - sun"], "2026-11-28T00:00", (True, "Fri 00:00")),
        ("08:00-24:00", None, "2026-11-28T23:59", (True, "Sun 00:00")),
        ("00:00-24:00", None, "2026-11-28T00:00", (True, "never")),
        (["00:00-12:00", "12:00-0:00"], "fri-thu", "2026-11-28T00:00", (True, "never")),
        ("00:00-12:00", "wed", "2026-11-28T00:00", (False, "Wed 00:00")),
    ],
)
def test_hours_past_midnight_belong_to_the_day_on_which_they_begin(
    hours: str | list[str] | None, days: str | list[str] | None, at: str, expected: tuple[bool, str]
) -> None:
    assert state(hours, days, at) == expected


@pytest.mark.parametrize(
    ("hours", "at", "is_open", "until"),
    [
        # The clock goes from 02:00 to 03:00: 02:30 is at 03:00.
        ("02:30-05:00", "2026-03-29T01:59+01:00", False, "2026-03-29T03:00+02:00"),
        ("02:30-05:00", "2026-03-29T03:00+02:00", True, "2026-03-29T05:00+02:00"),
        ("22:00-02:30", "2026-03-29T01:59+01:00", True, "2026-03-29T03:00+02:00"),
        ("02:10-02:50", "2026-03-29T01:00+01:00", False, "2026-03-30T02:10+02:00"),
        # The clock goes from 03:00 to 02:00: 02:30 is the first one.
        ("02:30-05:00", "2026-10-25T02:29+02:00", False, "2026-10-25T02:30+02:00"),
        ("02:30-05:00", "2026-10-25T02:10+01:00", True, "2026-10-25T05:00+01:00"),
        ("22:00-02:30", "2026-10-25T02:29+02:00", True, "2026-10-25T02:30+02:00"),
        ("22:00-02:30", "2026-10-25T02:10+01:00", False, "2026-10-25T22:00+01:00"),
        # The next change is after the clock has changed.
        ("20:00-08:00", "2026-03-28T21:00+01:00", True, "2026-03-29T08:00+02:00"),
        ("20:00-08:00", "2026-10-24T21:00+02:00", True, "2026-10-25T08:00+01:00"),
    ],
)
def test_a_clock_that_changes(hours: str, at: str, is_open: bool, until: str) -> None:
    moment = datetime.fromisoformat(at).astimezone(BERLIN)
    found = TrainingHours.parse(hours, None).state(moment)
    assert found.until is not None
    assert (found.is_open, found.until.isoformat(timespec="minutes")) == (is_open, until)


def minutes(zone: tzinfo, first: date, count: int) -> list[datetime]:
    """Every minute of some days."""
    begin = datetime(first.year, first.month, first.day, tzinfo=UTC) - timedelta(hours=14)
    return [(begin + timedelta(minutes=minute)).astimezone(zone) for minute in range(count)]


def by_minutes(hours: TrainingHours, moments: list[datetime]) -> list[bool]:
    """Whether the hours are open at each minute, by the definition: a time is come when a clock shows it or a later."""
    walls = [moment.replace(tzinfo=None) for moment in moments]
    latest = walls[:1]  # the latest time that the clock has shown so far
    for wall in walls[1:]:
        latest.append(max(latest[-1], wall))
    days = {walls[0].date() + timedelta(days=offset) for offset in range(-2, 12)}
    opened = [
        (datetime(day.year, day.month, day.day) + timedelta(minutes=begin), timedelta(minutes=end - begin))
        for day in days
        if day.weekday() in hours.days
        for begin, end in hours.spans
    ]
    return [any(begin <= shown < begin + length for begin, length in opened) for shown in latest]


@pytest.mark.parametrize(("zone", "day"), CHANGES)
@given(
    spans=st.lists(st.tuples(st.integers(0, 95), st.integers(1, 95)), min_size=1, max_size=3),
    days=st.frozensets(st.integers(0, 6), min_size=1),
    at=st.integers(0, 4 * 1440),
)
@settings(max_examples=25, deadline=None)
def test_every_minute_is_as_the_definition_says(
    zone: str, day: date, spans: list[tuple[int, int]], days: frozenset[int], at: int
) -> None:
    hours = TrainingHours(tuple((15 * begin, 15 * (begin + length)) for begin, length in spans), days)
    moments = minutes(ZoneInfo(zone), day - timedelta(days=1), 5 * 1440)
    expected = by_minutes(hours, moments)
    found = hours.state(moments[at])
    assert found.is_open == expected[at]
    change = next((index for index in range(at, len(expected)) if expected[index] != expected[at]), None)
    if change is not None:
        assert found.until is not None and found.until.timestamp() == moments[change].timestamp()
    else:
        assert found.until is None or found.until.timestamp() > moments[-1].timestamp()


def test_a_clock_that_is_set_leaves_nothing_behind() -> None:
    hours = TrainingHours.parse("20:00-08:00", None)
    night, day = berlin("2026-11-27T23:00"), berlin("2026-11-27T12:00")
    assert [hours.state(each).is_open for each in (night, day, night)] == [True, False, True]


def test_the_local_zone_knows_the_changes_to_come(in_berlin: None) -> None:
    for day in (date(2026, 3, 29), date(2026, 10, 25)):
        for moment in minutes(BERLIN, day, 2 * 1440)[::5]:
            local = datetime.fromtimestamp(moment.timestamp(), LOCAL)
            assert (local.isoformat(), local.fold) == (moment.isoformat(), moment.fold)
            assert local.timestamp() == moment.timestamp()


def test_a_machine_that_moves_to_another_zone(in_berlin: None) -> None:
    now = berlin("2026-11-27T19:30").timestamp()
    hours = TrainingHours.parse("20:00-08:00", None)
    found = list[tuple[bool, float]]()
    for zone in ("Europe/Berlin", "Europe/Helsinki", "America/New_York"):
        os.environ["TZ"] = zone
        there = hours.state(local_time(now))
        assert there.until is not None
        found.append((there.is_open, (there.until.timestamp() - now) / 3600))
    assert found == [(False, 0.5), (True, 11.5), (False, 6.5)]


@pytest.mark.parametrize(
    ("hours", "days", "message"),
    [
        ("25:00-08:00", None, "there is no 25:00"),
        ("08:60-09:00", None, "there is no 08:60"),
        ("20:00", None, "expected a span"),
        ("08:00-08:00", None, "ends when it begins"),
        ("0:00-0:00", None, "ends when it begins"),
        ("24:00-00:00", None, "ends when it begins"),
        (["20:00-21:00", ""], None, "expected a span"),
        (None, "", "expected days"),
        (None, "monday", "expected days"),
        (None, "mon,", "expected days"),
        (None, ["mon", "fry"], "expected days"),
    ],
)
def test_what_is_no_span_and_no_day(hours: str | list[str] | None, days: str | list[str] | None, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        TrainingHours.parse(hours, days)


def test_the_days_are_those_of_datetime() -> None:
    assert DAYS[date(2026, 11, 27).weekday()] == "fri"
