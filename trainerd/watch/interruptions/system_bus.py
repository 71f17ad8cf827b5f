"""The part of the system bus that logind needs, by jeepney (https://jeepney.readthedocs.io)."""

from __future__ import annotations

import contextlib
from collections import deque
from collections.abc import Iterator
from typing import Any

from trainerd.system.extras import install_command
from trainerd.text import printable
from trainerd.watch.interruptions.interruption import AbsentError, SourceError

LOGIND = "org.freedesktop.login1"
_PATH = "/org/freedesktop/login1"
_MANAGER = f"{LOGIND}.Manager"
_CALL_SECS = 2.0
_KEPT = 16  # signals that wait


class LogindConnection:
    """A connection to the system bus, and through it to logind.

    Args:
      loss: what trainerd does not do without one, for the errors.

    Raises:
      AbsentError: this machine has no system bus, or jeepney is not installed.
      SourceError: the bus cannot be used; so do all methods if the connection is lost.
    """

    def __init__(self, loss: str) -> None:
        try:
            from jeepney import DBusAddress
            from jeepney.io.blocking import open_dbus_connection
        except ImportError:
            raise AbsentError(
                f"the package `jeepney` is not installed: {loss}. Install it with `{install_command('watch')}`."
            ) from None
        self._loss = loss
        self._logind = DBusAddress(_PATH, bus_name=LOGIND, interface=_MANAGER)
        with self._errors():
            self._connection: Any = open_dbus_connection("SYSTEM", enable_fds=True)

    def call(self, method: str, signature: str | None = None, *arguments: str) -> Any:
        """Return the value of logind's answer to a method; None if it has none."""
        from jeepney import new_method_call

        return self.send(new_method_call(self._logind, method, signature, arguments))

    def properties(self, path: str, interface: str) -> dict[str, Any]:
        """Return the properties of one of logind's objects."""
        from jeepney import DBusAddress, Properties

        found = self.send(Properties(DBusAddress(path, bus_name=LOGIND, interface=interface)).get_all())
        return {name: value for name, (_, value) in found.items()}

    def send(self, message: Any) -> Any:
        """Return the value of an answer; None if it has none."""
        from jeepney.wrappers import unwrap_msg

        with self._errors():
            body = unwrap_msg(self._connection.send_and_get_reply(message, timeout=_CALL_SECS))
        return body[0] if body else None

    def close(self) -> None:
        """End the connection."""
        with contextlib.suppress(OSError):
            self._connection.close()

    @contextlib.contextmanager
    def _errors(self) -> Iterator[None]:
        """Turn an error of the connection or of the answer into a SourceError."""
        from jeepney import AuthenticationError, DBusErrorResponse

        try:
            yield
        except DBusErrorResponse as error:
            said = " ".join(printable(str(each)) for each in error.data)
            raise SourceError(f"the system bus answers with {error.name}: {said}") from error
        except FileNotFoundError as error:
            raise AbsentError(f"this machine has no system bus: {self._loss}") from error
        except (OSError, AuthenticationError, RuntimeError) as error:
            raise SourceError(f"the system bus cannot be used: {error}") from error


class SystemBus(LogindConnection):
    """Logind's signals and locks.

    Raises:
      AbsentError: this machine has no system bus, or jeepney is not installed.
      SourceError: the bus cannot be used; so do all methods if the connection is lost.
    """

    def __init__(self) -> None:
        super().__init__("trainerd does not save before sleep and shutdown")
        from jeepney import MatchRule

        self._signals: deque[Any] = deque(maxlen=_KEPT)
        with self._errors():
            rule = MatchRule(type="signal", interface=_MANAGER, path=_PATH)
            self._connection.filter(rule, queue=self._signals)
            rule = MatchRule(type="signal", sender=LOGIND, interface=_MANAGER, path=_PATH)
            self._call_bus("AddMatch", "s", rule.serialise())
        self._sender = self._owner()

    def inhibit(self, what: str, who: str, why: str) -> Any:
        """Take a delay lock, which lasts until the returned file descriptor is closed.

        Args:
          what: what is delayed, such as "sleep".
          who, why: what `systemd-inhibit --list` shows.
        """
        return self.call("Inhibit", "ssss", what, who, why, "delay")

    def most_delay_secs(self) -> float:
        """Return how long logind waits for a delay lock, in seconds."""
        from jeepney import Properties

        _, micros = self.send(Properties(self._logind).get("InhibitDelayMaxUSec"))
        return float(micros) / 1e6

    def next_signal(self, secs: float) -> tuple[str, bool] | None:
        """Wait for a signal of logind that has one argument, true or false.

        Returns:
          Its name and its argument; None if none has come within so many seconds.
        """
        with self._errors():
            try:
                message = self._connection.recv_until_filtered(self._signals, timeout=secs)
            except TimeoutError:
                return None
        from jeepney import HeaderFields

        fields = message.header.fields
        if not self._is_logind(str(fields.get(HeaderFields.sender))):
            return None
        match message.body:
            case (bool() as argument,):
                return str(fields.get(HeaderFields.member)), argument
        return None

    def _is_logind(self, sender: str) -> bool:
        """Return whether a signal is logind's: each process may send one of its name to this connection alone."""
        if sender != self._sender:
            self._sender = self._owner()
        return sender == self._sender

    def _owner(self) -> str:
        """Return logind's own name on the bus; empty while it does not run."""
        from jeepney.wrappers import DBusErrorResponse

        try:
            return str(self._call_bus("GetNameOwner", "s", LOGIND))
        except SourceError as error:
            if isinstance(error.__cause__, DBusErrorResponse):
                return ""
            raise

    def _call_bus(self, method: str, signature: str, *arguments: str) -> Any:
        from jeepney import DBusAddress, new_method_call

        bus = DBusAddress("/org/freedesktop/DBus", bus_name="org.freedesktop.DBus", interface="org.freedesktop.DBus")
        return self.send(new_method_call(bus, method, signature, arguments))
