"""A UPS whose battery becomes empty, as `upsc` of NUT (https://networkupstools.org) shows it."""

from __future__ import annotations

import math
import subprocess
import time
from collections.abc import Callable, Mapping

from trainerd.text import printable, seconds
from trainerd.watch.interruptions.interruption import MachineInterruption, NoticeSource, SourceError, bounded

POLL_SECS = 5.0
UPSC_SECS = 5.0
_NOTICE_SECS = 60.0  # where the UPS does not say how long it lasts
_ON_BATTERY, _LOW, _SHUTDOWN = "OB", "LB", "FSD"


def ask_upsc(name: str) -> dict[str, str]:
    """Return the variables of a UPS.

    Raises:
      SourceError: `upsc` is not installed, fails, or takes too long.
    """
    try:
        done = subprocess.run(
            ["upsc", name], capture_output=True, text=True, errors="replace", timeout=UPSC_SECS, check=False
        )
    except FileNotFoundError:
        raise SourceError("`upsc` is not installed: Debian has it in the package nut-client") from None
    except subprocess.TimeoutExpired:
        raise SourceError(f"`upsc {name}` has not answered for {seconds(UPSC_SECS)}") from None
    except OSError as error:
        raise SourceError(f"`upsc {name}` cannot be started: {error}") from error
    if done.returncode:
        said = done.stderr.strip().splitlines()
        reason = printable(said[-1]) if said else "it gives no reason"
        raise SourceError(f"`upsc {name}` fails with {done.returncode}: {reason}")
    pairs = (line.partition(":") for line in done.stdout.splitlines())
    return {key.strip(): value.strip() for key, colon, value in pairs if colon}


class Ups(NoticeSource):
    """Announces that a battery is almost empty, once until the power is back.

    Args:
      ups: its name, as `upsc` takes it.
      runtime_secs: on battery with less than this left counts as almost empty.
      ask: returns its variables; see `ask_upsc`.
      clock: seconds since 1970 (UTC).
    """

    poll_secs = POLL_SECS

    def __init__(
        self,
        ups: str,
        runtime_secs: float,
        ask: Callable[[str], Mapping[str, str]] = ask_upsc,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.name = f"the UPS {ups}"
        self._ups, self._runtime_secs, self._ask, self._clock = ups, runtime_secs, ask, clock
        self._is_announced = False

    def poll(self) -> MachineInterruption | None:
        found = self._ask(self._ups)
        status = found.get("ups.status", "").split()
        if not status:
            raise SourceError(f"`upsc {self._ups}` shows no ups.status")
        left = _number(found.get("battery.runtime", ""))
        is_on_battery = _ON_BATTERY in status
        is_short = left is not None and left < self._runtime_secs
        is_empty = _SHUTDOWN in status or (is_on_battery and (_LOW in status or is_short))
        was_announced, self._is_announced = self._is_announced, is_empty or (self._is_announced and is_on_battery)
        if was_announced or not is_empty:
            return None
        lasts = f", {seconds(left)} left" if left is not None else ""
        title = printable(f"the battery of the UPS {self._ups} is almost empty ({' '.join(status)}{lasts})")
        key = f"ups {self._ups} {self._clock():.0f}"
        secs = _NOTICE_SECS if left is None else bounded(left)
        return MachineInterruption("ups", key, title, secs)


def _number(text: str) -> float | None:
    try:
        value = float(text)
    except ValueError:
        return None
    return value if math.isfinite(value) and value >= 0 else None
