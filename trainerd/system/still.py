"""Measures for how long a value has not changed: whether something that should move stands still."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass
class Still:
    """A value, and when it last changed: seconds on a clock that is never set."""

    value: object = None
    since: float = 0.0

    def secs(self, value: object, now: float) -> float:
        """Return for how many seconds this has been the value."""
        if value != self.value:
            self.value, self.since = value, now
        return now - self.since
