"""The time zone of the machine, as the C library knows it now."""

from __future__ import annotations

import time
from datetime import UTC, datetime, timedelta, tzinfo


class LocalZone(tzinfo):
    """The machine's time zone with all its changes of the clock.

    `datetime.astimezone()` has the present offset alone, with which a time after the next change of the clock is wrong.
    """

    def utcoffset(self, dt: datetime | None) -> timedelta | None:
        return None if dt is None else dt.replace(tzinfo=None).astimezone().utcoffset()

    def dst(self, dt: datetime | None) -> timedelta | None:
        return None

    def tzname(self, dt: datetime | None) -> str | None:
        return None if dt is None else dt.replace(tzinfo=None).astimezone().tzname()

    def fromutc(self, dt: datetime) -> datetime:
        local = dt.replace(tzinfo=UTC).astimezone()
        found = local.replace(tzinfo=self)
        return found if found.utcoffset() == local.utcoffset() else found.replace(fold=1)


LOCAL = LocalZone()


def local_time(now: float) -> datetime:
    """Return a moment in the machine's time zone, which somebody may have changed since the last call.

    Args:
      now: seconds since 1970 (UTC).
    """
    time.tzset()  # the C library otherwise keeps the zone that it has read first
    return datetime.fromtimestamp(now, LOCAL)
