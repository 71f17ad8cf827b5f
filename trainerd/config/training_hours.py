"""The hours in which a run may train: a pure function of the moment and its time zone."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import date, datetime, timedelta, tzinfo

DAYS = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")
_DAY_MINS = 24 * 60
_ONE_DAY = timedelta(days=1)
_MOST_DAYS = 16  # a span may be empty on the one day of a week on which clocks jump over it

Span = tuple[int, int]  # the begin and the end


@dataclass(frozen=True)
class HoursState:
    """The state of the hours at a moment.

    Attributes:
      is_open: whether a run may train.
      until: when that changes, in the time zone of that moment; None: never.
    """

    is_open: bool
    until: datetime | None


@dataclass(frozen=True)
class TrainingHours:
    """Spans of the day, and the days of the week on which they begin.

    A span begins and ends when the local clock first shows its time, or a later one. So a time that a clock jumps over
    comes at the jump, and one that comes twice counts the first time.

    Attributes:
      spans: the begin and the end of each, in minutes since midnight. One that ends after midnight ends above 24 h.
      days: 0 is Monday.
    """

    spans: tuple[Span, ...] = ((0, _DAY_MINS),)
    days: frozenset[int] = frozenset(range(7))

    @classmethod
    def parse(cls, hours: str | Sequence[str] | None, days: str | Sequence[str] | None) -> TrainingHours:
        """Read the keys `hours` and `days`, each a string or a list of them. None stands for the whole day or week.

        Raises:
          ValueError: one of them is wrong.
        """
        spans = cls.spans if hours is None else tuple(map(parse_span, _several(hours)))
        return cls(spans, cls.days if days is None else frozenset().union(*map(parse_days, _several(days))))

    def state(self, at: datetime) -> HoursState:
        """Return the state at a moment, which has a time zone."""
        zone = at.tzinfo
        assert zone is not None
        now = at.timestamp()
        last = at.date() + _MOST_DAYS * _ONE_DAY
        for begin, end in self._periods(zone, at.date() - _ONE_DAY, last):
            if now < begin:
                return HoursState(False, datetime.fromtimestamp(begin, zone))
            if now < end:
                is_endless = end >= _instant(last, 0, zone)
                return HoursState(True, None if is_endless else datetime.fromtimestamp(end, zone))
        raise AssertionError(f"{self} never come")

    def _periods(self, zone: tzinfo, first: date, last: date) -> Iterator[tuple[float, float]]:
        """Yield the begin and the end of each period that begins on these days, in seconds since 1970 (UTC).

        Spans that touch or overlap are one period.
        """
        found: tuple[float, float] | None = None
        for begin, end in self._spans_from(zone, first, last):
            if begin >= end:  # a clock jumps over all of it
                continue
            if found is not None and begin <= found[1]:
                found = found[0], max(found[1], end)
                continue
            if found is not None:
                yield found
            found = begin, end
        if found is not None:
            yield found

    def _spans_from(self, zone: tzinfo, first: date, last: date) -> Iterator[tuple[float, float]]:
        day = first
        while day <= last:
            if day.weekday() in self.days:
                for begin, end in sorted(self.spans):
                    yield _instant(day, begin, zone), _instant(day, end, zone)
            day += _ONE_DAY


def _several(said: str | Sequence[str]) -> Sequence[str]:
    return [said] if isinstance(said, str) else said


def parse_span(said: str) -> Span:
    """Read a span such as "20:00-08:00".

    Raises:
      ValueError: it is none.
    """
    found = re.fullmatch(r"\s*(\d{1,2}):(\d\d)\s*-\s*(\d{1,2}):(\d\d)\s*", said)
    if found is None:
        raise ValueError('expected a span such as "20:00-08:00"')
    begin, end = _minute(found[1], found[2]), _minute(found[3], found[4])
    if begin % _DAY_MINS == end % _DAY_MINS and (begin, end) != (0, _DAY_MINS):
        raise ValueError('it ends when it begins. A whole day is "00:00-24:00"')
    begin %= _DAY_MINS
    return begin, end if end > begin else end + _DAY_MINS


def _minute(hour: str, minute: str) -> int:
    found = int(hour) * 60 + int(minute)
    if int(minute) >= 60 or found > _DAY_MINS:
        raise ValueError(f"there is no {hour}:{minute}. A day is from 00:00 to 24:00")
    return found


def parse_days(said: str) -> frozenset[int]:
    """Read days such as "mon-fri" or "sat,sun".

    Raises:
      ValueError: there are others.
    """
    return frozenset(day for each in said.split(",") for day in _days(each))


def _days(said: str) -> list[int]:
    """Return the days of "mon" or "mon-fri". "sat-mon" goes over the end of the week."""
    found = re.fullmatch(r"\s*([a-z]+)\s*(?:-\s*([a-z]+)\s*)?", said.lower())
    named = [each for each in found.groups() if each is not None] if found is not None else list[str]()
    if not named or any(each not in DAYS for each in named):
        raise ValueError(f'expected days such as "mon-fri" or "sat,sun". The days are {", ".join(DAYS)}')
    first, last = DAYS.index(named[0]), DAYS.index(named[-1])
    return [(first + offset) % 7 for offset in range((last - first) % 7 + 1)]


def _instant(day: date, minute: int, zone: tzinfo) -> float:
    """Return when the local clock first shows this minute of the day or a later one, in seconds since 1970 (UTC)."""
    days, minute = divmod(minute, _DAY_MINS)
    day += days * _ONE_DAY
    wall = datetime(day.year, day.month, day.day, minute // 60, minute % 60, tzinfo=zone)
    before, after = wall.timestamp(), wall.replace(fold=1).timestamp()
    if after >= before:  # the time comes once; or twice, and this is the first
        return before
    # No clock shows it. By the offset after the jump it is before the jump, and the other way round.
    low, high = round(after), round(before)
    offset = datetime.fromtimestamp(low, zone).utcoffset()
    while high - low > 1:
        middle = (low + high) // 2
        is_before = datetime.fromtimestamp(middle, zone).utcoffset() == offset
        low, high = (middle, high) if is_before else (low, middle)
    return float(high)
