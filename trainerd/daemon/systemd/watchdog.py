"""The watchdog: keep-alive notifications, sent only while the loop makes progress.

Time is passed in: the ticker calls `beat` a few times a second.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass

from trainerd.config.schema import WatchdogConfig
from trainerd.daemon.systemd.notify import Notifier
from trainerd.rundir.state import Phase, State

EXTENSION_SECS = 30.0  # how much time is asked for at once
EXTEND_EVERY_SECS = 5.0
_HANG = 0.9  # of WatchdogSec without a sign of life: what systemd is about to do is noted before it does


def interval_from_environment() -> float:
    """Return the unit's WatchdogSec in seconds; 0 if systemd does not watch this process."""
    if os.environ.get("WATCHDOG_PID", str(os.getpid())) != str(os.getpid()):
        return 0.0
    return int(os.environ.get("WATCHDOG_USEC", "0")) / 1e6


@dataclass
class WatchdogProgress:
    """The last known value of something, and when it last changed."""

    value: object = None
    at: float = 0.0

    def update(self, value: object, now: float) -> None:
        """Record the value now."""
        if value != self.value:
            self.value, self.at = value, now


_LONG = (Phase.GATHERING, Phase.STARTING, Phase.RESTORING, Phase.EVALUATING, Phase.FINISHING)


class Watchdog:
    """Decides when systemd is notified.

    Args:
      notifier: sends the notifications.
      interval: WatchdogSec in seconds; 0: none.
      config: the deadlines of everything but a step.
      now: seconds on a clock that is never set.
      save_progress: returns a value that changes while the save under way gets written.
      hung: called once with how many seconds have passed without a sign of life, before systemd ends the process.
    """

    def __init__(
        self,
        notifier: Notifier,
        interval: float,
        config: WatchdogConfig,
        *,
        now: float,
        save_progress: Callable[[], object],
        hung: Callable[[float], None] = lambda secs: None,
    ) -> None:
        self._config = config
        self._save_progress = save_progress
        self._notifier = notifier
        self._interval = interval
        self._phase = Phase.STARTING
        self._phase_since = now
        self._steps = WatchdogProgress(at=now)
        self._save = WatchdogProgress(at=now)
        self._alive_at = now
        self._hung, self._is_hung = hung, False
        self._extended_at = -EXTEND_EVERY_SECS

    def reconfigure(self, config: WatchdogConfig) -> None:
        """Use other deadlines from now on."""
        self._config = config

    def observe(self, state: State, now: float) -> None:
        """Take note of a boundary."""
        if state.phase is not self._phase:
            self._phase, self._phase_since = state.phase, now
        self._steps.update((state.step, state.phase), now)

    def beat(self, now: float) -> None:
        """Send what is due."""
        if self._phase in (Phase.SAVING, Phase.PAUSING):
            self._save.update(self._save_progress(), now)
        if self._interval and now - self._alive_at >= self._interval / 4 and self.is_alive(now):
            self._alive_at, self._is_hung = now, False
            self._notifier.alive()
        silence = now - self._alive_at
        if self._interval and silence >= _HANG * self._interval and not self._is_hung:
            self._is_hung = True
            self._hung(silence)
        if self.wants_time(now) and now - self._extended_at >= EXTEND_EVERY_SECS:
            self._extended_at = now
            self._notifier.extend(EXTENSION_SECS)

    def is_alive(self, now: float) -> bool:
        """Return whether the phase has made progress within its own deadline."""
        deadline = {
            Phase.GATHERING: 0.0,
            Phase.STARTING: self._config.first_step_secs,
            Phase.RESTORING: self._config.first_step_secs,
            Phase.FINISHING: self._config.first_step_secs,
            Phase.EVALUATING: self._config.evaluate_secs,
            Phase.SAVING: self._config.save_secs,
            Phase.PAUSING: self._config.save_secs,
        }.get(self._phase, self._interval / 2)
        return not deadline or now - self._moved_at() < deadline

    def wants_time(self, now: float) -> bool:
        """Return whether systemd must extend the timeout of a start or a stop: something long is under way and makes
        progress."""
        if self._phase in (Phase.SAVING, Phase.PAUSING):
            return now - self._moved_at() < 2 * EXTEND_EVERY_SECS
        return self._phase in _LONG and self.is_alive(now)

    def _moved_at(self) -> float:
        """Return the time at which the present phase last made progress."""
        if self._phase in (Phase.SAVING, Phase.PAUSING):
            return max(self._save.at, self._phase_since)
        if self._phase is Phase.TRAINING:
            return self._steps.at
        return self._phase_since
