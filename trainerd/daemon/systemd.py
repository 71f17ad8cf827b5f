"""What systemd is told: readiness, status, life signs, and that a long save needs more time. See sd_notify(3)."""

from __future__ import annotations

import logging
import os
import time

import sdnotify

from trainerd.state import Phase, State

log = logging.getLogger(__name__)


class Notifier:
    """Sends notifications; does nothing where no service manager listens.

    Args:
      send: what sends one, for tests; by default the socket that NOTIFY_SOCKET names.
    """

    def __init__(self) -> None:
        self._sender = sdnotify.SystemdNotifier(debug=True) if os.environ.get("NOTIFY_SOCKET") else None
        self._ready = False
        # What the job starts must not speak for us.
        os.environ.pop("NOTIFY_SOCKET", None)

    def send(self, text: str) -> None:
        """Send one notification: lines of NAME=VALUE."""
        if self._sender is None:
            return
        try:
            self._sender.notify(text)
        except OSError as error:
            log.warning("cannot notify systemd: %s", error)

    def close(self) -> None:
        """Nothing more will be sent."""
        if self._sender is not None:
            self._sender.socket.close()
            self._sender = None

    def observe(self, state: State) -> None:
        """Tell what the run says of itself. READY comes with the first step, or with a run that was over already."""
        lines = [f"STATUS={status_line(state)}"]
        over_in_peace = state.phase in (Phase.PAUSED, Phase.FINISHED)
        if not self._ready and (state.phase is Phase.TRAINING or over_in_peace):
            self._ready = True
            lines.insert(0, "READY=1")
        self.send("\n".join(lines))

    def reloading(self) -> None:
        """A reload has begun."""
        self.send(f"RELOADING=1\nMONOTONIC_USEC={time.clock_gettime_ns(time.CLOCK_MONOTONIC) // 1000}")

    def reloaded(self) -> None:
        """It is done."""
        self.send("READY=1")

    def alive(self) -> None:
        """The loop makes progress."""
        self.send("WATCHDOG=1")

    def extend(self, seconds: float) -> None:
        """Ask for that much time from now, whatever timeout of a start or a stop is running."""
        self.send(f"EXTEND_TIMEOUT_USEC={int(seconds * 1e6)}")


def status_line(state: State) -> str:
    """One line for `systemctl status`."""
    saved = f"; saved step {state.last_checkpoint.step}" if state.last_checkpoint else ""
    trouble = f"; {state.warnings[-1]}" if state.warnings else ""
    error = f"; {state.error.splitlines()[0]}" if state.error else ""
    return f"{state.phase}: {state.line()}{saved}{trouble}{error}".replace("\n", " ")
