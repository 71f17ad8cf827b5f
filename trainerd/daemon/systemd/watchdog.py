"""The watchdog: keep-alive notifications, sent only while the loop makes progress.

Time is passed in: the ticker calls `beat` a few times a second.
"""

from __future__ import annotations

import os
from collections.abc import Callable

from trainerd.config.schema import WatchdogConfig
from trainerd.daemon.systemd.notify import Notifier
from trainerd.rundir.state import Phase, State
from trainerd.system.still import Still

EXTENSION_SECS = 30.0  # how much time is asked for at once
EXTEND_EVERY_SECS = 5.0
_HANG = 0.9  # of WatchdogSec without a sign of life: what systemd is about to do is noted before it does


def interval_from_environment() -> float:
    """Return the unit's WatchdogSec in seconds; 0 if systemd does not watch this process."""
    if os.environ.get("WATCHDOG_PID", str(os.getpid())) != str(os.getpid()):
        return 0.0
    return int(os.environ.get("WATCHDOG_USEC", "0")) / 1e6


_SAVING = (Phase.SAVING, Phase.PAUSING)
_UNSEEN = (Phase.GATHERING, Phase.UNMANAGED)  # nothing shows their progress, so they have no deadline
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
        self._phase, self._step = Phase.STARTING, 0
        self._saved: object = None  # how far the save under way had come at the last beat
        self._still = Still(since=now)
        self._alive_at = now
        self._hung, self._is_hung = hung, False
        self._extended_at = -EXTEND_EVERY_SECS

    def reconfigure(self, config: WatchdogConfig) -> None:
        """Use other deadlines from now on."""
        self._config = config

    def observe(self, state: State, now: float) -> None:
        """Take note of a boundary."""
        self._phase, self._step = state.phase, state.step
        self._still_for(now)

    def _still_for(self, now: float) -> float:
        """Return for how many seconds there was no progress, as far as the last beat has seen."""
        return self._still.secs((self._phase, self._step, self._saved), now)

    def beat(self, now: float) -> None:
        """Send what is due."""
        self._saved = self._save_progress() if self._phase in _SAVING else None
        still = self._still_for(now)
        if self._interval and now - self._alive_at >= self._interval / 4 and self._is_alive(still):
            self._alive_at, self._is_hung = now, False
            self._notifier.alive()
        silence = now - self._alive_at
        if self._interval and silence >= _HANG * self._interval and not self._is_hung:
            self._is_hung = True
            self._hung(silence)
        if self._wants_time(still) and now - self._extended_at >= EXTEND_EVERY_SECS:
            self._extended_at = now
            self._notifier.extend(EXTENSION_SECS)

    def _is_alive(self, still: float) -> bool:
        """Return whether the phase has made progress within its own deadline."""
        if self._phase in _UNSEEN:
            return True
        deadline = {
            Phase.STARTING: self._config.first_step_secs,
            Phase.RESTORING: self._config.first_step_secs,
            Phase.FINISHING: self._config.first_step_secs,
            Phase.EVALUATING: self._config.evaluate_secs,
            Phase.SAVING: self._config.save_secs,
            Phase.PAUSING: self._config.save_secs,
        }.get(self._phase, self._interval / 2)
        return not deadline or still < deadline

    def _wants_time(self, still: float) -> bool:
        """Return whether systemd must extend the timeout of a start or a stop: something long is under way and makes
        progress."""
        if self._phase in _SAVING:
            return still < 2 * EXTEND_EVERY_SECS
        return self._phase in _LONG and self._is_alive(still)
