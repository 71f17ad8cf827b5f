"""The address at which the page listens: a port, or a unix socket."""

from __future__ import annotations

import contextlib
import ipaddress
import socket
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from trainerd.errors import ConfigError

_UNIX = "unix:"
_MODE = 0o660  # of a unix socket: the owner and the group


@dataclass(frozen=True)
class ListenAddress:
    """An address as a person gives it: "127.0.0.1:9780", "[::1]:9780", "localhost:9780" or "unix:/run/trainerd.sock".

    Attributes:
      host, port: of a port; port 0 is any that is free.
      path: of a unix socket, else None.
    """

    host: str = ""
    port: int = 0
    path: Path | None = None

    @classmethod
    def parse(cls, text: str) -> ListenAddress:
        """Read an address.

        Raises:
          ConfigError: the text is not one.
        """
        if text.startswith(f"{_UNIX}/"):
            return cls(path=Path(text.removeprefix(_UNIX)))
        host, colon, port = text.rpartition(":")
        host = host.removeprefix("[").removesuffix("]") if host.startswith("[") else host
        is_port = port.isascii() and port.isdecimal() and int(port) <= 0xFFFF
        if not (host and colon and is_port) or (":" in host and not text.startswith("[")):
            raise ConfigError(f"listen: expected HOST:PORT or unix:/PATH, such as 127.0.0.1:9780, got {text!r}.")
        return cls(host, int(port))

    def __str__(self) -> str:
        """Return the address as a person writes it."""
        if self.path is not None:
            return f"{_UNIX}{self.path}"
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    @property
    def is_of_this_machine_only(self) -> bool:
        """True if nobody on another machine can reach it."""
        return self.path is not None or is_loopback(self.host)


def is_loopback(host: str) -> bool:
    """Return whether a name or an IP address is that of this machine for itself."""
    address = ip_of(host)
    return host.lower() == "localhost" or (address is not None and address.is_loopback)


def ip_of(host: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    """Return the IP address that a text stands for; None if it is not an IP address."""
    try:
        return ipaddress.ip_address(host)
    except ValueError:
        return None


def bound(address: ListenAddress) -> socket.socket:
    """Return a socket that is bound to an address, and does not listen yet.

    Raises:
      ConfigError: it is in use, or cannot be had.
    """
    where: Any  # in the form that the family has
    with _as_config_error(address), contextlib.ExitStack() as stack:
        if address.path is None:
            host = "127.0.0.1" if address.host.lower() == "localhost" else address.host
            found = socket.getaddrinfo(host, address.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
            family, kind, protocol, _, where = found[0]
            made = stack.enter_context(socket.socket(family, kind, protocol))
        else:
            _remove_stale(address.path)
            where, made = str(address.path), stack.enter_context(socket.socket(socket.AF_UNIX, socket.SOCK_STREAM))
        made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        made.bind(where)
        if address.path is not None:
            address.path.chmod(_MODE)  # nobody can connect before it listens
        stack.pop_all()
    return made


def _remove_stale(path: Path) -> None:
    """Remove the socket of a watcher that has ended, which leaves it behind when it is killed."""
    try:
        if not stat.S_ISSOCK(path.lstat().st_mode):
            raise ConfigError(f"{path} exists and is not a socket. Move it, or listen on another path.")
    except FileNotFoundError:
        return
    with contextlib.closing(socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)) as probe:
        try:
            probe.connect(str(path))
        except ConnectionRefusedError:
            path.unlink()
            return
    raise ConfigError(f"another process listens on {path}. End that one, or listen on another path.")


@contextlib.contextmanager
def _as_config_error(address: ListenAddress) -> Iterator[None]:
    """Turn an OSError in the block into a ConfigError that says which address could not be listened on."""
    try:
        yield
    except OSError as error:
        where = f"port {address.port} of {address.host}" if address.path is None else str(address.path)
        reason = error.strerror or str(error)
        raise ConfigError(f"cannot listen on {where}: {reason}. Set another `listen` in watch.toml.") from error
