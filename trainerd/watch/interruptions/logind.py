"""Sleep and shutdown, as systemd's logind announces them. Delay locks have it wait until the runs have saved.

https://systemd.io/INHIBITOR_LOCKS
"""

from __future__ import annotations

import contextlib
import logging
import time
from collections.abc import Callable, Sequence
from typing import Any, Literal, Protocol

from trainerd.watch.interruptions.interruption import MachineInterruption, SourceError

log = logging.getLogger(__name__)

LogindKind = Literal["sleep", "shutdown"]
_WAIT_SECS = 60.0
_MARGIN_SECS = 0.5  # for the report, before logind stops waiting
_DELAY_SECS = 5.0  # logind's default
_SIGNALS: dict[str, tuple[LogindKind, str]] = {
    "PrepareForSleep": ("sleep", "the machine goes to sleep"),
    "PrepareForShutdown": ("shutdown", "the machine shuts down"),
}


class LogindBus(Protocol):
    """A connection to logind; see `SystemBus`."""

    def inhibit(self, what: LogindKind, who: str, why: str) -> Any:
        """Take a delay lock."""

    def most_delay_secs(self) -> float:
        """Return how long logind waits for a delay lock."""

    def next_signal(self, secs: float) -> tuple[str, bool] | None:
        """Wait for a signal."""

    def close(self) -> None:
        """End the connection."""


class Logind:
    """Announces sleep and shutdown.

    Args:
      connect: connects to the system bus.
      kinds: what is announced.
      clock: seconds since 1970 (UTC).
    """

    name = "logind"
    poll_secs = 0.0

    def __init__(
        self,
        connect: Callable[[], LogindBus],
        kinds: Sequence[LogindKind],
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._connect, self._kinds, self._clock = connect, kinds, clock
        self._bus: LogindBus | None = None
        self._locks: dict[LogindKind, Any] = {}  # the file descriptors that are the locks
        self._refused: dict[LogindKind, str] = {}  # why there is none
        self._is_stopping = False  # until the machine is awake again

    def poll(self) -> MachineInterruption | None:
        try:
            if self._bus is None:
                self._bus = self._connect()
            if not self._is_stopping:
                self._take_locks(self._bus)
            signal = self._bus.next_signal(_WAIT_SECS)
            return self._interruption(self._bus, *signal) if signal is not None else None
        except SourceError:
            self._disconnect()
            raise

    def finish(self) -> None:
        """Give the locks back. They are taken again when the machine is awake."""
        for lock in self._locks.values():
            lock.close()
        self._locks = {}

    def _interruption(self, bus: LogindBus, signal: str, begins: bool) -> MachineInterruption | None:
        """Return what a signal announces; None if that is over or is none of the kinds."""
        kind, title = _SIGNALS.get(signal, (None, ""))
        if kind is None or kind not in self._kinds:
            return None
        self._is_stopping = begins  # meanwhile logind gives no locks
        if not begins:
            return None
        secs = _DELAY_SECS
        if kind in self._locks:
            with contextlib.suppress(SourceError):
                secs = bus.most_delay_secs()
        secs = max(0.0, secs - _MARGIN_SECS)
        return MachineInterruption(kind, f"{kind} {self._clock():.0f}", title, secs)

    def _take_locks(self, bus: LogindBus) -> None:
        """Take a lock for each kind that has none: to an ordinary user logind refuses one for several.

        Without a lock the runs are asked all the same, and the machine does not wait for them.
        """
        for kind in self._kinds:
            if kind in self._locks:
                continue
            try:
                self._locks[kind] = bus.inhibit(kind, "trainerd", "training runs save")
            except SourceError as error:
                if self._refused.get(kind) != str(error):
                    log.warning(
                        "logind grants no lock for %s, and the machine will not wait until runs have saved: %s. See "
                        "docs/guides/laptops-and-spot-instances.md.",
                        kind,
                        error,
                    )
                self._refused[kind] = str(error)
            else:
                self._refused.pop(kind, None)

    def _disconnect(self) -> None:
        self.finish()
        self._is_stopping = False
        if self._bus is not None:
            with contextlib.suppress(SourceError):
                self._bus.close()
        self._bus = None
