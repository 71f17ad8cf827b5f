"""The page's server."""

from __future__ import annotations

import contextlib
import logging
import socket
from collections import Counter
from dataclasses import replace
from typing import Any

import waitress.server
from waitress import wasyncore
from waitress.channel import HTTPChannel

from trainerd.watch.page.app import App
from trainerd.watch.page.guard import RequestGuard
from trainerd.watch.page.listen import ListenAddress, bound
from trainerd.watch.page.queue import PageQueue
from trainerd.watch.run_reader import Runs

_THREADS = 3  # answers are made of what is read already
MOST_CONNECTIONS = 100
_MOST_OPEN = 2 * MOST_CONNECTIONS  # descriptors: where all connections are being answered, no more are taken
SILENT_SECS = 30  # after which a connection that sends no whole request is closed
_LARGEST = 1 << 14  # bytes of a request's headers, and of its body


class _Connection(HTTPChannel):
    """A connection. One that sends a byte now and then, and never a whole request, is closed as if it sent nothing."""

    def handle_read(self) -> None:
        """See waitress, to which a byte is a sign of life."""
        before = self.last_activity
        super().handle_read()
        self.last_activity = before


def _connect(server: Any, connected: socket.socket, address: tuple[str, int], adjustments: Any, **options: Any) -> None:
    """Take one more connection; if there are too many, in place of another.

    That is one of the address that has the most, and the one that has waited longest for a request. So connections
    that ask for nothing keep nobody out, and those of one address cost no other address any.
    """
    channels: list[_Connection] = [*server.active_channels.values()]
    if len(channels) >= MOST_CONNECTIONS:
        counts = Counter(each.addr[0] for each in channels)
        idle = [each for each in channels if not each.requests]  # the others are being answered
        if idle:
            min(idle, key=lambda each: (-counts[each.addr[0]], each.last_activity)).handle_close()
    _Connection(server, connected, address, adjustments, **options)


class Page:
    """Serves the page and the metrics, from the thread that calls `serve` until any thread calls `close`.

    Args:
      listen: "127.0.0.1:9780", "[::1]:9780" or "unix:/path"; port 0 is any that is free.
      runs: what is known of the runs.
      token: what a person or Prometheus must show; None for none, which only this machine's own addresses may have.

    Attributes:
      address: where it listens.

    Raises:
      ConfigError: the address is none, is in use, or needs a token.
    """

    def __init__(self, listen: str, runs: Runs, token: str | None = None) -> None:
        address = ListenAddress.parse(listen)
        app = App(runs, PageQueue(), RequestGuard(address, token))
        self._socket = bound(address)
        self.address = address if address.path is not None else replace(address, port=self._socket.getsockname()[1])
        logging.getLogger("waitress.queue").setLevel(logging.ERROR)  # that a request waits for another is not news
        self._connections: dict[int, Any] = {}  # by descriptor: waitress keeps them in it
        server: Any = waitress.server.create_server(  # what it gives depends on the socket
            app,
            map=self._connections,
            sockets=[self._socket],
            threads=_THREADS,
            connection_limit=_MOST_OPEN,
            channel_timeout=SILENT_SECS,
            cleanup_interval=SILENT_SECS,
            asyncore_loop_timeout=SILENT_SECS,  # it waits for connections, and need not wake each second
            max_request_header_size=_LARGEST,
            max_request_body_size=_LARGEST,
            ident=None,
        )
        self._server = server
        self._server.channel_class = _connect

    @property
    def url(self) -> str:
        """The URL that a person types into a browser; for a unix socket, its address."""
        return str(self.address) if self.address.path is not None else f"http://{self.address}/"

    def serve(self) -> None:
        """Answer requests until `close`."""
        try:
            self._server.run()
        finally:
            self._server.task_dispatcher.shutdown()

    def close(self) -> None:
        """End `serve`, and close all connections. Called once, after `serve` has begun or when it never will."""
        if self.address.path is not None:
            with contextlib.suppress(OSError):
                self.address.path.unlink()
        with contextlib.suppress(OSError):  # it has ended by itself
            self._server.trigger.pull_trigger(self._close_all)

    def _close_all(self) -> None:
        """Close all connections, on the thread of `serve`: `run` returns when the map of connections is empty."""
        wasyncore.close_all(self._connections, ignore_all=True)
