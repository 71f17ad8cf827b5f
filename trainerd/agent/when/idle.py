"""Reads how long ago somebody used the machine: at a terminal, or at a desktop that tells logind."""

from __future__ import annotations

import contextlib
import stat
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Protocol

from trainerd.agent.when.reading import Reading
from trainerd.watch.interruptions.interruption import SourceError
from trainerd.watch.interruptions.system_bus import LOGIND, LogindConnection

_SESSION = f"{LOGIND}.Session"
_DESKTOPS = ("x11", "wayland", "mir")
_FUTURE_SECS = 8.0  # the kernel notes the use of a terminal in steps of this


class LogindSessions(Protocol):
    """The part of logind that knows the sessions; see `LogindConnection`."""

    def call(self, method: str) -> Any:
        """Return the value of logind's answer to a method."""

    def properties(self, path: str, interface: str) -> dict[str, Any]:
        """Return the properties of one of its objects."""

    def close(self) -> None:
        """End the connection."""


def connect() -> LogindSessions:
    """Connect to logind.

    Raises:
      SourceError: there is none, or it cannot be asked.
    """
    return LogindConnection("the agent sees the use of terminals, and not that of a desktop")


class IdleTime:
    """Reads how long ago somebody used the machine.

    Args:
      connect: connects to logind.
      devices: the folder /dev.
      clock: seconds since 1970 (UTC).
    """

    def __init__(
        self,
        connect: Callable[[], LogindSessions] = connect,
        devices: Path = Path("/dev"),
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._connect, self._devices, self._clock = connect, devices, clock
        self._logind: LogindSessions | None = None

    def read(self) -> Reading[float]:
        """Return the seconds since somebody used a terminal or a desktop."""
        now = self._clock()
        used = list(self._terminals(now))
        trouble = ""
        try:
            desktops = self._desktops(now)
        except SourceError as error:
            self._disconnect()
            trouble = str(error)
        else:
            used += [at for at, _ in desktops]
            trouble = next((never for _, never in desktops if never), "")
        if not used:
            return Reading(None, trouble or "no terminal is seen")
        return Reading(max(0.0, now - max(used)), trouble)

    def _terminals(self, now: float) -> Iterator[float]:
        """Yield when somebody last typed at each terminal. A time to come is from before the clock was set."""
        for pattern in ("tty[0-9]*", "pts/[0-9]*"):
            for path in self._devices.glob(pattern):
                with contextlib.suppress(OSError):  # it is closed
                    found = path.stat()
                    if stat.S_ISCHR(found.st_mode) and found.st_atime <= now + _FUTURE_SECS:
                        yield found.st_atime

    def _desktops(self, now: float) -> list[tuple[float, str]]:
        """Return when each desktop was last used, and what is odd about it.

        Raises:
          SourceError: logind cannot be asked.
        """
        if self._logind is None:
            self._logind = self._connect()
        found = []
        for name, _, _, _, path in self._logind.call("ListSessions"):
            session = self._logind.properties(path, _SESSION)
            is_shown = session["Active"] and session["Class"] == "user" and session["Type"] in _DESKTOPS
            if not is_shown:
                continue
            since = session["IdleSinceHint"] / 1e6
            if session["IdleHint"]:
                found.append((since, ""))
            else:
                odd = f"the desktop of session {name} has never reported that it is idle, and counts as used"
                found.append((now, "" if since else odd))
        return found

    def _disconnect(self) -> None:
        if self._logind is not None:
            self._logind.close()
        self._logind = None
