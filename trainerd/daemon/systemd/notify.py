"""Notifications to systemd: readiness, status, the watchdog, and more time for a long save.

The protocol is that of sd_notify(3), lines in a datagram; that page advises to speak it without a library.
"""

from __future__ import annotations

import logging
import os
import socket
import time

from trainerd.rundir.state import Phase, State
from trainerd.text import printable

log = logging.getLogger(__name__)

STATUS_CHARS = 1000
_FAILED = "cannot notify systemd: %s"


class Notifier:
    """Sends notifications to the socket that NOTIFY_SOCKET names; does nothing without a service manager."""

    def __init__(self) -> None:
        # What the job starts must not speak for us.
        address = os.environ.pop("NOTIFY_SOCKET", None)
        self._socket = _connect(address) if address else None
        self._ready = False

    def send(self, text: str) -> None:
        """Send one notification: lines of NAME=VALUE."""
        if self._socket is None:
            return
        try:
            self._socket.sendall(text.encode("utf-8", "replace"))
        except OSError as error:
            log.warning(_FAILED, error)

    def close(self) -> None:
        """Send no more."""
        if self._socket is not None:
            self._socket.close()
            self._socket = None

    def observe(self, state: State) -> None:
        """Notify of a new state. READY comes with the first step, or with a run that was over already."""
        over_in_peace = state.phase in (Phase.PAUSED, Phase.FINISHED)
        if not self._ready and (state.phase.has_begun or over_in_peace):
            self._ready = True
            self.send("READY=1")
        self.send(f"STATUS={status_line(state)}")

    def reloading(self) -> None:
        """Notify that a reload has begun. Before the first step nothing is sent: its end would count as readiness."""
        if not self._ready:
            return
        self.send(f"RELOADING=1\nMONOTONIC_USEC={time.clock_gettime_ns(time.CLOCK_MONOTONIC) // 1000}")

    def reloaded(self) -> None:
        """Notify that the reload is done."""
        if self._ready:
            self.send("READY=1")

    def alive(self) -> None:
        """Notify that the loop makes progress."""
        self.send("WATCHDOG=1")

    def extend(self, seconds: float) -> None:
        """Extend the running timeout of a start or a stop to so much time from now."""
        self.send(f"EXTEND_TIMEOUT_USEC={int(seconds * 1e6)}")


def _connect(address: str) -> socket.socket | None:
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC)
    try:
        connection.connect("\0" + address[1:] if address.startswith("@") else address)
    except OSError as error:  # a shell that a service left behind: the variable stays, the socket is gone
        connection.close()
        log.warning(_FAILED, f"{address}: {error}")
        return None
    return connection


def status_line(state: State) -> str:
    """Return one line for `systemctl status`. It is short: systemd drops a notification of more than 4096 bytes."""
    saved = f"; saved step {state.last_checkpoint.step}" if state.last_checkpoint else ""
    trouble = f"; {state.warnings[-1]}" if state.warnings else ""
    error = f"; {state.error.splitlines()[0]}" if state.error else ""
    line = f"{state.phase}: {state.line()}{saved}{trouble}{error}".replace("\n", " ")
    return printable(line)[:STATUS_CHARS]
